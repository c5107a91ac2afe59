"""Share out rights: areas of administration, switches of groups, scopes of keys, and what became of erased people.

Revision: 0009, after 0008"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0009"
down_revision: str | Sequence[str] | None = "0008"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_NONE = sa.text("'{}'")
_ORIGIN = "source IN ('manual', 'directory')"


def upgrade() -> None:
    _share_out_administration()
    _let_groups_allow_more()
    _limit_keys()
    op.create_table(
        "exports",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_exports_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exports")),
    )
    op.create_index(op.f("ix_exports_user_id"), "exports", ["user_id"], unique=False)
    op.create_table(
        "erasures",
        sa.Column("person_id", sa.Uuid(), nullable=False),
        sa.Column("by_id", sa.Uuid(), nullable=False),
        sa.Column("removed", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("kept", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_erasures")),
    )


def _share_out_administration() -> None:
    op.add_column("users", sa.Column("areas", postgresql.ARRAY(sa.String(20)), server_default=_NONE, nullable=False))
    op.create_check_constraint(op.f("ck_users_areas_of_members"), "users", "role = 'member' OR areas = '{}'")
    op.create_check_constraint(
        op.f("ck_users_areas"), "users", "areas <@ ARRAY['people', 'models', 'usage', 'audit']::varchar[]"
    )


def _let_groups_allow_more() -> None:
    op.add_column("groups", sa.Column("rights", postgresql.ARRAY(sa.String(20)), server_default=_NONE, nullable=False))
    op.add_column("groups", sa.Column("parent_id", sa.Uuid(), nullable=True))
    op.add_column("groups", sa.Column("source", sa.String(20), server_default="manual", nullable=False))
    op.add_column("groups", sa.Column("external_id", sa.String(300), nullable=True))
    depth = sa.Computed("CASE WHEN parent_id IS NULL THEN 0 ELSE 1 END", persisted=True)
    op.add_column("groups", sa.Column("depth", sa.Integer(), depth, nullable=False))
    parents = sa.Computed("CASE WHEN parent_id IS NULL THEN NULL::integer ELSE 0 END", persisted=True)
    op.add_column("groups", sa.Column("parent_depth", sa.Integer(), parents, nullable=True))
    op.create_check_constraint(op.f("ck_groups_source"), "groups", _ORIGIN)
    op.create_check_constraint(
        op.f("ck_groups_directory_knows_it"), "groups", "(source = 'directory') = (external_id IS NOT NULL)"
    )
    op.create_unique_constraint(op.f("uq_groups_external_id"), "groups", ["external_id"])
    op.create_unique_constraint("uq_groups_depth", "groups", ["id", "depth"])
    op.create_foreign_key("fk_groups_parent", "groups", "groups", ["parent_id", "parent_depth"], ["id", "depth"])
    op.create_index(op.f("ix_groups_parent_id"), "groups", ["parent_id"], unique=False)
    op.add_column("group_members", sa.Column("source", sa.String(20), server_default="manual", nullable=False))
    op.create_check_constraint(op.f("ck_group_members_source"), "group_members", _ORIGIN)


def _limit_keys() -> None:
    scopes: sa.Column[list[str]] = sa.Column(
        "scopes", postgresql.ARRAY(sa.String(20)), server_default="{models,chat}", nullable=False
    )
    op.add_column("api_keys", scopes)
    op.add_column("api_keys", sa.Column("model_ids", postgresql.ARRAY(sa.Uuid()), nullable=True))
    op.create_check_constraint(op.f("ck_api_keys_scopes"), "api_keys", "scopes <@ ARRAY['models', 'chat']::varchar[]")


def downgrade() -> None:
    op.drop_table("erasures")
    op.drop_index(op.f("ix_exports_user_id"), table_name="exports")
    op.drop_table("exports")
    op.drop_constraint(op.f("ck_api_keys_scopes"), "api_keys", type_="check")
    op.drop_column("api_keys", "model_ids")
    op.drop_column("api_keys", "scopes")
    op.drop_constraint(op.f("ck_group_members_source"), "group_members", type_="check")
    op.drop_column("group_members", "source")
    op.drop_index(op.f("ix_groups_parent_id"), table_name="groups")
    op.drop_constraint("fk_groups_parent", "groups", type_="foreignkey")
    op.drop_constraint("uq_groups_depth", "groups", type_="unique")
    op.drop_constraint(op.f("uq_groups_external_id"), "groups", type_="unique")
    op.drop_constraint(op.f("ck_groups_directory_knows_it"), "groups", type_="check")
    op.drop_constraint(op.f("ck_groups_source"), "groups", type_="check")
    for column in ("parent_depth", "depth", "external_id", "source", "parent_id", "rights"):
        op.drop_column("groups", column)
    op.drop_constraint(op.f("ck_users_areas"), "users", type_="check")
    op.drop_constraint(op.f("ck_users_areas_of_members"), "users", type_="check")
    op.drop_column("users", "areas")

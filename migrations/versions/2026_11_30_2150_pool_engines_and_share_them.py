"""Pool engines and share them: groups, keys for the API, what admins say of models and engines, measurements.

Revision: 0004, after 0003"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0004"
down_revision: str | Sequence[str] | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


# As in 0001.
_MINE = "owner_id = nullif(current_setting('parley.person', true), '')::uuid"
_WORKER = "current_setting('parley.worker', true) = 'on'"

_ALWAYS_SAID = {
    "engines": ("draining", "external", "priorities", "session_header"),
    "models": ("color", "thinking", "adjustable", "for_everybody"),
}


def upgrade() -> None:
    op.create_table(
        "bench_runs",
        sa.Column("engine_id", sa.Uuid(), nullable=True),
        sa.Column("engine_name", sa.String(length=80), nullable=False),
        sa.Column("upstream_name", sa.String(length=300), nullable=False),
        sa.Column("result", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["engine_id"], ["engines.id"], name=op.f("fk_bench_runs_engine_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bench_runs")),
    )
    op.create_index(op.f("ix_bench_runs_engine_id"), "bench_runs", ["engine_id"], unique=False)
    op.create_table(
        "groups",
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("weight BETWEEN 1 AND 100", name=op.f("ck_groups_weight")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_groups")),
        sa.UniqueConstraint("name", name=op.f("uq_groups_name")),
    )
    op.create_table(
        "api_keys",
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("hint", sa.String(length=12), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_api_keys_owner_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
    )
    op.create_index(op.f("ix_api_keys_owner_id"), "api_keys", ["owner_id"], unique=False)
    op.create_table(
        "group_members",
        sa.Column("group_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"], ["groups.id"], name=op.f("fk_group_members_group_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_group_members_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("group_id", "user_id", name=op.f("pk_group_members")),
    )
    op.create_index(op.f("ix_group_members_user_id"), "group_members", ["user_id"], unique=False)
    op.create_table(
        "default_models",
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("group_id", sa.Uuid(), nullable=True),
        sa.Column("model_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("num_nonnulls(user_id, group_id) <= 1", name=op.f("ck_default_models_whose")),
        sa.ForeignKeyConstraint(
            ["group_id"], ["groups.id"], name=op.f("fk_default_models_group_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_default_models_model_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_default_models_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_default_models")),
        sa.UniqueConstraint(
            "user_id", "group_id", name=op.f("uq_default_models_user_id"), postgresql_nulls_not_distinct=True
        ),
    )
    op.create_index(op.f("ix_default_models_group_id"), "default_models", ["group_id"], unique=False)
    op.create_index(op.f("ix_default_models_model_id"), "default_models", ["model_id"], unique=False)
    op.create_table(
        "model_groups",
        sa.Column("model_id", sa.Uuid(), nullable=False),
        sa.Column("group_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["groups.id"], name=op.f("fk_model_groups_group_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_model_groups_model_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("model_id", "group_id", name=op.f("pk_model_groups")),
    )
    op.create_index(op.f("ix_model_groups_group_id"), "model_groups", ["group_id"], unique=False)
    op.add_column(
        "conversations",
        sa.Column(
            "parameters", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
    )
    op.add_column("deployments", sa.Column("thinks", sa.Boolean(), nullable=True))
    op.add_column("deployments", sa.Column("revision", sa.String(length=300), nullable=True))
    op.add_column("deployments", sa.Column("pinned_revision", sa.String(length=300), nullable=True))
    op.add_column("deployments", sa.Column("pinned_version", sa.String(length=80), nullable=True))
    op.add_column("engines", sa.Column("forced_kind", sa.String(length=20), nullable=True))
    op.add_column("engines", sa.Column("draining", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("engines", sa.Column("external", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("engines", sa.Column("priorities", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column(
        "engines", sa.Column("session_header", sa.String(length=80), server_default=sa.text("''"), nullable=False)
    )
    op.add_column(
        "messages",
        sa.Column(
            "parameters", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
    )
    op.add_column("models", sa.Column("color", sa.String(length=20), server_default=sa.text("''"), nullable=False))
    op.add_column("models", sa.Column("thinking", sa.String(length=10), server_default=sa.text("''"), nullable=False))
    op.add_column(
        "models",
        sa.Column(
            "adjustable", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False
        ),
    )
    op.add_column("models", sa.Column("max_concurrent", sa.Integer(), nullable=True))
    op.add_column("models", sa.Column("maintenance_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("models", sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("models", sa.Column("fallback_id", sa.Uuid(), nullable=True))
    op.add_column("models", sa.Column("for_everybody", sa.Boolean(), server_default=sa.true(), nullable=False))
    op.create_check_constraint(
        op.f("ck_models_max_concurrent"), "models", "max_concurrent IS NULL OR max_concurrent > 0"
    )
    op.create_check_constraint(op.f("ck_models_fallback"), "models", "fallback_id <> id")
    for table, columns in _ALWAYS_SAID.items():
        for column in columns:
            op.alter_column(table, column, server_default=None)
    op.create_index(op.f("ix_models_fallback_id"), "models", ["fallback_id"], unique=False)
    op.create_foreign_key(
        op.f("fk_models_fallback_id"), "models", "models", ["fallback_id"], ["id"], ondelete="SET NULL"
    )
    # The causes of usage that are new: the API, and measurements.
    op.drop_constraint(op.f("ck_usage_cause"), "usage", type_="check")
    op.create_check_constraint(op.f("ck_usage_cause"), "usage", "cause IN ('chat', 'title', 'api', 'bench')")
    op.execute("ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY mine ON api_keys USING ({_MINE} OR {_WORKER})")
    op.add_column("usage", sa.Column("key_id", sa.Uuid(), nullable=True))
    op.create_index(op.f("ix_usage_key_id"), "usage", ["key_id"], unique=False)


def downgrade() -> None:
    op.execute("DELETE FROM usage WHERE cause IN ('api', 'bench')")
    op.drop_constraint(op.f("ck_usage_cause"), "usage", type_="check")
    op.create_check_constraint(op.f("ck_usage_cause"), "usage", "cause IN ('chat', 'title')")
    op.drop_index(op.f("ix_usage_key_id"), table_name="usage")
    op.drop_column("usage", "key_id")
    op.drop_constraint(op.f("fk_models_fallback_id"), "models", type_="foreignkey")
    op.drop_index(op.f("ix_models_fallback_id"), table_name="models")
    op.drop_constraint(op.f("ck_models_fallback"), "models", type_="check")
    op.drop_constraint(op.f("ck_models_max_concurrent"), "models", type_="check")
    op.drop_column("models", "for_everybody")
    op.drop_column("models", "fallback_id")
    op.drop_column("models", "retired_at")
    op.drop_column("models", "maintenance_until")
    op.drop_column("models", "max_concurrent")
    op.drop_column("models", "adjustable")
    op.drop_column("models", "thinking")
    op.drop_column("models", "color")
    op.drop_column("messages", "parameters")
    op.drop_column("engines", "session_header")
    op.drop_column("engines", "priorities")
    op.drop_column("engines", "external")
    op.drop_column("engines", "draining")
    op.drop_column("engines", "forced_kind")
    op.drop_column("deployments", "pinned_version")
    op.drop_column("deployments", "pinned_revision")
    op.drop_column("deployments", "revision")
    op.drop_column("deployments", "thinks")
    op.drop_column("conversations", "parameters")
    op.drop_index(op.f("ix_model_groups_group_id"), table_name="model_groups")
    op.drop_table("model_groups")
    op.drop_table("default_models")
    op.drop_index(op.f("ix_group_members_user_id"), table_name="group_members")
    op.drop_table("group_members")
    op.drop_index(op.f("ix_api_keys_owner_id"), table_name="api_keys")
    op.drop_table("api_keys")
    op.drop_table("groups")
    op.drop_index(op.f("ix_bench_runs_engine_id"), table_name="bench_runs")
    op.drop_table("bench_runs")

"""Sign in with the company: providers, identities, directories.

Revision: 0010, after 0009"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0010"
down_revision: str | Sequence[str] | None = "0009"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_TABLES = ("directory_groups", "identity_sessions", "identities", "spent_tokens", "identity_providers")


def upgrade() -> None:
    op.create_table(
        "identity_providers",
        sa.Column("slug", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("source", sa.String(length=20), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("issuer", sa.String(length=500), nullable=False),
        sa.Column("client_id", sa.String(length=500), nullable=False),
        sa.Column("sealed_secret", sa.LargeBinary(), nullable=True),
        sa.Column("rules", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("slug ~ '^[a-z0-9][a-z0-9-]*$'", name=op.f("ck_identity_providers_slug")),
        sa.CheckConstraint("kind IN ('oidc')", name=op.f("ck_identity_providers_kind")),
        sa.CheckConstraint("source IN ('database', 'deployment')", name=op.f("ck_identity_providers_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_identity_providers")),
        sa.UniqueConstraint("slug", name=op.f("uq_identity_providers_slug")),
        sa.UniqueConstraint("name", name=op.f("uq_identity_providers_name")),
    )
    op.create_table(
        "identities",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("issuer", sa.String(length=500), nullable=False),
        sa.Column("subject", sa.String(length=255), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_identities_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_identities")),
        sa.UniqueConstraint("issuer", "subject", name=op.f("uq_identities_issuer")),
    )
    op.create_index(op.f("ix_identities_user_id"), "identities", ["user_id"], unique=False)
    op.create_table(
        "identity_sessions",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("identity_id", sa.Uuid(), nullable=False),
        sa.Column("provider_id", sa.Uuid(), nullable=True),
        sa.Column("sid", sa.String(length=255), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_id"], ["login_sessions.id"], name=op.f("fk_identity_sessions_session_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["identity_id"], ["identities.id"], name=op.f("fk_identity_sessions_identity_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["provider_id"],
            ["identity_providers.id"],
            name=op.f("fk_identity_sessions_provider_id"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_identity_sessions")),
    )
    op.create_index(op.f("ix_identity_sessions_identity_id"), "identity_sessions", ["identity_id"], unique=False)
    op.create_index(op.f("ix_identity_sessions_provider_id"), "identity_sessions", ["provider_id"], unique=False)
    op.create_table(
        "spent_tokens",
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_spent_tokens")),
    )
    op.create_index(op.f("ix_spent_tokens_expires_at"), "spent_tokens", ["expires_at"], unique=False)
    op.create_table(
        "directory_groups",
        sa.Column("group_id", sa.Uuid(), nullable=False),
        sa.Column("origin", sa.String(length=500), nullable=False),
        sa.Column("external_name", sa.String(length=255), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"], ["groups.id"], name=op.f("fk_directory_groups_group_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_directory_groups")),
        sa.UniqueConstraint("origin", "external_name", name=op.f("uq_directory_groups_origin")),
    )
    op.create_index(op.f("ix_directory_groups_group_id"), "directory_groups", ["group_id"], unique=False)


def downgrade() -> None:
    for table in _TABLES:
        op.drop_table(table)

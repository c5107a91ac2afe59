"""Let people in safely: second factors, passkeys, sign-up.

Revision: 0008, after 0007"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0008"
down_revision: str | Sequence[str] | None = "0007"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


_PURPOSE = "ck_one_time_links_purpose"


def upgrade() -> None:
    op.add_column("login_sessions", sa.Column("authenticated_at", sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE login_sessions SET authenticated_at = created_at")
    op.alter_column("login_sessions", "authenticated_at", nullable=False)
    op.drop_constraint(op.f(_PURPOSE), "one_time_links", type_="check")
    op.create_check_constraint(
        op.f(_PURPOSE), "one_time_links", "purpose IN ('setup', 'invitation', 'reset', 'second_step')"
    )
    # What was counted is worth a day at most; it is counted anew, per network.
    op.drop_table("sign_in_throttles")
    op.create_table(
        "sign_in_throttles",
        sa.Column("account", sa.LargeBinary(length=32), nullable=False),
        sa.Column("network", sa.LargeBinary(length=32), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("recent", postgresql.ARRAY(sa.DateTime(timezone=True)), nullable=False),
        sa.Column("last_try_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("known_until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("account", "network", name=op.f("pk_sign_in_throttles")),
    )
    op.create_table(
        "second_factors",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("confirmed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_second_factors_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", name=op.f("pk_second_factors")),
    )
    op.create_table(
        "recovery_codes",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_recovery_codes_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recovery_codes")),
        sa.UniqueConstraint("digest", name=op.f("uq_recovery_codes_digest")),
    )
    op.create_index(op.f("ix_recovery_codes_user_id"), "recovery_codes", ["user_id"], unique=False)
    op.create_table(
        "passkeys",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("credential_id", sa.LargeBinary(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("sign_count", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_passkeys_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_passkeys")),
        sa.UniqueConstraint("credential_id", name=op.f("uq_passkeys_credential_id")),
    )
    op.create_index(op.f("ix_passkeys_user_id"), "passkeys", ["user_id"], unique=False)
    op.create_table(
        "used_challenges",
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_used_challenges")),
    )


def downgrade() -> None:
    op.drop_table("used_challenges")
    op.drop_table("passkeys")
    op.drop_table("recovery_codes")
    op.drop_table("second_factors")
    op.drop_table("sign_in_throttles")
    op.create_table(
        "sign_in_throttles",
        sa.Column("account", sa.LargeBinary(length=32), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("last_failure_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("blocked_until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("account", name=op.f("pk_sign_in_throttles")),
    )
    op.execute("DELETE FROM one_time_links WHERE purpose = 'second_step'")
    op.drop_constraint(op.f(_PURPOSE), "one_time_links", type_="check")
    op.create_check_constraint(op.f(_PURPOSE), "one_time_links", "purpose IN ('setup', 'invitation', 'reset')")
    op.drop_column("login_sessions", "authenticated_at")

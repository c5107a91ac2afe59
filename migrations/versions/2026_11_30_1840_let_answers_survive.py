"""Let conversations branch and answers be picked up: the shown branch, deleted messages, what a continuation needs.

Revision: 0002, after 0001"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | Sequence[str] | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    # A heartbeat that changes no index stays on its page; those who run are found by `uq_messages_running`.
    op.drop_index("ix_messages_heartbeat", "messages")
    op.add_column("conversations", sa.Column("leaf_id", sa.Uuid(), nullable=True))
    op.execute(
        "UPDATE conversations SET leaf_id = (SELECT id FROM messages"
        " WHERE conversation_id = conversations.id ORDER BY id DESC LIMIT 1)"
    )
    op.create_foreign_key(
        "fk_conversations_leaf",
        "conversations",
        "messages",
        ["id", "leaf_id"],
        ["conversation_id", "id"],
        deferrable=True,
        initially="DEFERRED",
    )
    op.add_column("messages", sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("messages", sa.Column("is_continuation", sa.Boolean(), nullable=False, server_default="false"))
    op.add_column("messages", sa.Column("instruction", sa.String(), nullable=False, server_default=""))
    op.add_column("messages", sa.Column("context_tokens", sa.Integer(), nullable=True))
    op.add_column("messages", sa.Column("context_from", sa.Uuid(), nullable=True))
    op.add_column("messages", sa.Column("resumed", sa.Integer(), nullable=False, server_default="0"))
    for column in ("is_continuation", "instruction", "resumed"):
        op.alter_column("messages", column, server_default=None)
    op.create_check_constraint(
        op.f("ck_messages_deleted_is_empty"), "messages", "deleted_at IS NULL OR text = '' AND reasoning = ''"
    )
    op.create_check_constraint(
        op.f("ck_messages_deleted_has_ended"), "messages", "deleted_at IS NULL OR status NOT IN ('queued', 'streaming')"
    )
    op.add_column("deployments", sa.Column("continues", sa.Boolean(), nullable=True))
    op.add_column("deployments", sa.Column("sees", sa.Boolean(), nullable=True))


def downgrade() -> None:
    op.drop_column("deployments", "sees")
    op.drop_column("deployments", "continues")
    op.drop_constraint(op.f("ck_messages_deleted_has_ended"), "messages", type_="check")
    op.drop_constraint(op.f("ck_messages_deleted_is_empty"), "messages", type_="check")
    for column in ("resumed", "context_from", "context_tokens", "instruction", "is_continuation", "deleted_at"):
        op.drop_column("messages", column)
    op.drop_constraint("fk_conversations_leaf", "conversations", type_="foreignkey")
    op.drop_column("conversations", "leaf_id")
    op.create_index(
        "ix_messages_heartbeat",
        "messages",
        ["heartbeat_at"],
        postgresql_where=sa.text("status IN ('queued', 'streaming')"),
    )

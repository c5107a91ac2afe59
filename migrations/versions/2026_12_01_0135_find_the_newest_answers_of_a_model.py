"""Find the newest answers of a model: an index on what may be a big table, so it stands in a revision of its own.

Revision: 0006, after 0005"""

from collections.abc import Sequence

from alembic import op

revision: str = "0006"
down_revision: str | Sequence[str] | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_messages_model")  # of a try that was broken off
        op.execute("CREATE INDEX CONCURRENTLY ix_messages_model ON messages (model_id, created_at)")
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_messages_model_id")


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("CREATE INDEX CONCURRENTLY IF NOT EXISTS ix_messages_model_id ON messages (model_id)")
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_messages_model")

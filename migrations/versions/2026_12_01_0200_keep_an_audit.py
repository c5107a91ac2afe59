"""Keep an audit: who did what to whom.

Revision: 0006, after 0005b"""

from collections.abc import Sequence

revision: str = "0006"
down_revision: str | Sequence[str] | None = "0005b"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass

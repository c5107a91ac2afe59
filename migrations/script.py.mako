"""${message}

Revision: ${up_revision}, after ${down_revision | comma,n}

Add in one release, fill in the next, enforce in the one after: the old version still runs while the new one starts.
Build indexes on big tables CONCURRENTLY, in a revision of their own (`with op.get_context().autocommit_block()`).
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision: str = ${repr(up_revision)}
down_revision: str | Sequence[str] | None = ${repr(down_revision)}
branch_labels: str | Sequence[str] | None = ${repr(branch_labels)}
depends_on: str | Sequence[str] | None = ${repr(depends_on)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}

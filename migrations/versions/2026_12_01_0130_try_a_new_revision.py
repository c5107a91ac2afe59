"""Try a new revision: stages of deployments, shares of a trial, ratings of answers.

Revision: 0005, after 0004"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | Sequence[str] | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_STAGES = "stage IN ('current', 'trial', 'former', 'withdrawn')"


def upgrade() -> None:
    op.add_column(
        "deployments", sa.Column("stage", sa.String(length=20), server_default=sa.text("'current'"), nullable=False)
    )
    op.create_check_constraint(op.f("ck_deployments_stage"), "deployments", _STAGES)
    op.add_column("models", sa.Column("trial_share", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.add_column("models", sa.Column("trial_group_id", sa.Uuid(), nullable=True))
    op.add_column("models", sa.Column("trial_since", sa.DateTime(timezone=True), nullable=True))
    op.create_check_constraint(op.f("ck_models_trial_share"), "models", "trial_share BETWEEN 0 AND 100")
    op.create_index(op.f("ix_models_trial_group_id"), "models", ["trial_group_id"], unique=False)
    op.create_foreign_key(
        op.f("fk_models_trial_group_id"), "models", "groups", ["trial_group_id"], ["id"], ondelete="SET NULL"
    )
    op.add_column("messages", sa.Column("rating", sa.SmallInteger(), nullable=True))
    op.create_check_constraint(
        op.f("ck_messages_rating"), "messages", "rating IS NULL OR rating IN (-1, 1) AND speaker = 'model'"
    )


def downgrade() -> None:
    op.drop_constraint(op.f("ck_messages_rating"), "messages", type_="check")
    op.drop_column("messages", "rating")
    op.drop_constraint(op.f("fk_models_trial_group_id"), "models", type_="foreignkey")
    op.drop_index(op.f("ix_models_trial_group_id"), table_name="models")
    op.drop_constraint(op.f("ck_models_trial_share"), "models", type_="check")
    op.drop_column("models", "trial_since")
    op.drop_column("models", "trial_group_id")
    op.drop_column("models", "trial_share")
    op.drop_constraint(op.f("ck_deployments_stage"), "deployments", type_="check")
    op.drop_column("deployments", "stage")

"""That somebody's data was handed out, and that somebody was erased."""

from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKey
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from backend.accounts.models import User
from backend.core.db import Row


class Export(Row):
    """One time that a person took their data along: only so many go in an hour."""

    __tablename__ = "exports"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), index=True)


class Erasure(Row):
    """The certificate. It names nobody: the ids belong to rows that are gone, or may go one day."""

    __tablename__ = "erasures"

    person_id: Mapped[UUID]
    by_id: Mapped[UUID]  # the same, where a person did it themselves
    removed: Mapped[dict[str, Any]] = mapped_column(JSONB)  # rows, by table
    kept: Mapped[dict[str, Any]] = mapped_column(JSONB)  # rows that say of nobody any more whose they were

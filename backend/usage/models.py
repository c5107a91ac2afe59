"""What was used: one row per call of an engine, whoever caused it."""

from enum import StrEnum
from uuid import UUID

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from backend.core.db import Row, words


class Cause(StrEnum):
    CHAT = "chat"
    TITLE = "title"
    API = "api"
    BENCH = "bench"


class UsageRecord(Row):
    __tablename__ = "usage"
    __table_args__ = (Index("ix_usage_user_id", "user_id", "created_at"),)

    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    model_id: Mapped[UUID | None] = mapped_column(ForeignKey("models.id", ondelete="SET NULL"), index=True)
    engine_id: Mapped[UUID | None] = mapped_column(ForeignKey("engines.id", ondelete="SET NULL"), index=True)
    message_id: Mapped[UUID | None] = mapped_column(index=True)  # no key: the count outlives the conversation
    key_id: Mapped[UUID | None] = mapped_column(index=True)  # no key either: it outlives the one it was asked with
    cause: Mapped[Cause] = mapped_column(words(Cause, "cause"))
    prompt_tokens: Mapped[int]
    cached_tokens: Mapped[int | None]
    completion_tokens: Mapped[int]
    estimated: Mapped[bool]  # the engine sent no usage

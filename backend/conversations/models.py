"""Conversations and their messages: a tree of rows in which nothing is overwritten."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    SmallInteger,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from backend.core.db import Base, Row, words

MAX_REASON = 300  # characters


class Speaker(StrEnum):
    PERSON = "person"
    MODEL = "model"


class Status(StrEnum):
    """Of an answer. A question is `done` from the start."""

    QUEUED = "queued"
    STREAMING = "streaming"
    DONE = "done"
    STOPPED = "stopped"  # a person pressed Stop
    INTERRUPTED = "interrupted"  # the engine or we went away in mid-answer
    FAILED = "failed"  # the engine said no

    @property
    def running(self) -> bool:
        return self in (Status.QUEUED, Status.STREAMING)


class TitleSource(StrEnum):
    FIRST_WORDS = "first_words"
    MODEL = "model"
    PERSON = "person"


class Conversation(Row):
    __tablename__ = "conversations"
    __table_args__ = (
        UniqueConstraint("id", "owner_id"),
        ForeignKeyConstraint(  # looked at when the transaction ends, because the message comes after its conversation
            ["id", "leaf_id"],
            ["messages.conversation_id", "messages.id"],
            name="fk_conversations_leaf",
            deferrable=True,
            initially="DEFERRED",
            use_alter=True,
        ),
        Index("ix_conversations_sidebar", "owner_id", "updated_at", "id"),
    )

    owner_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    title: Mapped[str] = mapped_column(String(200))
    title_source: Mapped[TitleSource] = mapped_column(words(TitleSource, "title_source"))
    model_id: Mapped[UUID | None] = mapped_column(ForeignKey("models.id", ondelete="SET NULL"), index=True)
    updated_at: Mapped[datetime]  # the last question; rows of the sidebar are sorted by it
    seen_at: Mapped[datetime]  # an answer that ended later is unread
    leaf_id: Mapped[UUID | None]  # the last message of the branch that is shown
    parameters: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default="{}")  # chosen by its person, for answers


class Message(Row):
    """One node of a conversation's tree: a question, or the answer to its parent."""

    __tablename__ = "messages"
    __table_args__ = (
        UniqueConstraint("conversation_id", "id"),
        ForeignKeyConstraint(  # and belongs to the same person: row-level security reads this copy, without a join
            ["conversation_id", "owner_id"],
            ["conversations.id", "conversations.owner_id"],
            name="fk_messages_conversation",
            ondelete="CASCADE",
        ),
        ForeignKeyConstraint(  # a parent is in the same conversation
            ["conversation_id", "parent_id"],
            ["messages.conversation_id", "messages.id"],
            name="fk_messages_parent",
            ondelete="CASCADE",
        ),
        Index("ix_messages_parent", "conversation_id", "parent_id"),
        Index(  # one answer at a time
            "uq_messages_running",
            "conversation_id",
            unique=True,
            postgresql_where=text("status IN ('queued', 'streaming')"),
        ),
        Index("ix_messages_model", "model_id", "created_at"),
        Index("uq_messages_send_key", "owner_id", "send_key", unique=True),
        CheckConstraint("speaker = 'model' OR status = 'done'", name="question_is_done"),
        CheckConstraint("deleted_at IS NULL OR text = '' AND reasoning = ''", name="deleted_is_empty"),
        CheckConstraint("deleted_at IS NULL OR status NOT IN ('queued', 'streaming')", name="deleted_has_ended"),
        CheckConstraint("(speaker = 'person') = (send_key IS NOT NULL)", name="question_has_key"),
        CheckConstraint("rating IS NULL OR rating IN (-1, 1) AND speaker = 'model'", name="rating"),
        CheckConstraint("(status IN ('queued', 'streaming')) = (finished_at IS NULL)", name="finished"),
    )

    conversation_id: Mapped[UUID]
    owner_id: Mapped[UUID]
    parent_id: Mapped[UUID | None]
    speaker: Mapped[Speaker] = mapped_column(words(Speaker, "speaker"))
    text: Mapped[str] = mapped_column(default="")
    status: Mapped[Status] = mapped_column(words(Status, "status"))
    finished_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]  # emptied and hidden; what follows it stays

    # A question
    send_key: Mapped[UUID | None]  # one per press of Send, so that a repeated request is the same question
    is_continuation: Mapped[bool] = mapped_column(default=False)  # Continue, where the engine cannot pick an answer up

    # An answer
    reasoning: Mapped[str] = mapped_column(default="")
    reason: Mapped[str] = mapped_column(String(MAX_REASON), default="")  # a sentence: why it did not end well
    ended_by: Mapped[str | None] = mapped_column(String(40))  # the engine's finish reason
    model_id: Mapped[UUID | None] = mapped_column(ForeignKey("models.id", ondelete="SET NULL"))
    model_name: Mapped[str] = mapped_column(String(100), default="")  # as it was called then
    provenance: Mapped[dict[str, Any]] = mapped_column(JSONB, default=dict)
    instruction: Mapped[str] = mapped_column(default="")  # what was asked beside the question: "shorter, please"
    parameters: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default="{}")  # as its person chose them
    rating: Mapped[int | None] = mapped_column(SmallInteger)  # 1: its person found it good, -1: bad
    context_tokens: Mapped[int | None]  # prompt and answer together, as the engine counted them
    context_from: Mapped[UUID | None]  # the first message the engine was shown; None: from the beginning

    # Who writes it. Every write compares `attempt`, so that a writer that was given up cannot come back.
    attempt: Mapped[int] = mapped_column(Integer, default=1)
    heartbeat_at: Mapped[datetime | None]
    resumed: Mapped[int] = mapped_column(Integer, default=0)  # by itself, since a person last asked for it

    @property
    def broke_off(self) -> bool:
        """An answer that has text and could go on from it; `statements.REOPEN` compares the same."""
        ended_early = self.status in (Status.STOPPED, Status.INTERRUPTED, Status.FAILED)
        at_its_limit = self.status is Status.DONE and self.ended_by == "length"
        return bool(self.text) and (ended_early or at_its_limit)


class AnswerPart(Base):
    """What a running answer gained since the last part, about once a second; folded into the message at the end."""

    __tablename__ = "answer_parts"

    message_id: Mapped[UUID] = mapped_column(ForeignKey("messages.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]
    reasoning: Mapped[str]

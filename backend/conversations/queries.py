"""Selects over conversations. Access is part of the select: a stranger's row is simply not there."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import Select, exists, literal, select, tuple_

from backend.conversations.models import AnswerPart, Conversation, Message, Speaker, Status

RUNNING = (Status.QUEUED, Status.STREAMING)


def visible_to(person_id: UUID) -> Select[Conversation]:
    """Every conversation this person may open; the one place that decides it."""
    return select(Conversation).where(Conversation.owner_id == person_id)


def message_visible_to(person_id: UUID, conversation_id: UUID, message_id: UUID) -> Select[Message]:
    """Both ids and the person in one WHERE, so that neither id is trusted because the other was checked."""
    return select(Message).where(
        Message.id == message_id, Message.conversation_id == conversation_id, Message.owner_id == person_id
    )


def sidebar(person_id: UUID, before: tuple[datetime, UUID] | None, limit: int) -> Select[Conversation, bool, bool]:
    """Newest first, each with "an answer is running" and "one came unseen"; `before` is the last row shown."""
    running = exists().where(Message.conversation_id == Conversation.id, Message.status.in_(RUNNING))
    unread = exists().where(
        Message.conversation_id == Conversation.id,
        Message.finished_at > Conversation.seen_at,
        Message.speaker == Speaker.MODEL,
    )
    rows = select(Conversation, running, unread).where(Conversation.owner_id == person_id)
    if before is not None:
        rows = rows.where(tuple_(Conversation.updated_at, Conversation.id) < tuple_(*map(literal, before)))
    return rows.order_by(Conversation.updated_at.desc(), Conversation.id.desc()).limit(limit)


def newest_leaf(conversation_id: UUID) -> Select[UUID]:
    """Where the conversation goes on: whatever was written last has no children."""
    return select(Message.id).where(Message.conversation_id == conversation_id).order_by(Message.id.desc()).limit(1)


def path_to(leaf_id: UUID) -> Select[Message]:
    """The branch that ends at `leaf_id`, oldest first: exactly what a reader sees and an engine is shown."""
    path = select(Message.id, Message.parent_id, literal(0).label("height")).where(Message.id == leaf_id)
    steps = path.cte("path", recursive=True)
    steps = steps.union_all(
        select(Message.id, Message.parent_id, steps.c.height + 1).join(steps, Message.id == steps.c.parent_id)
    )
    return select(Message).join(steps, Message.id == steps.c.id).order_by(steps.c.height.desc())


def opening(conversation_id: UUID) -> Select[Message]:
    """The first two messages ever written: what a title is made from."""
    return select(Message).where(Message.conversation_id == conversation_id).order_by(Message.id).limit(2)


def sent_with(person_id: UUID, send_key: UUID) -> Select[Message]:
    return select(Message).where(Message.owner_id == person_id, Message.send_key == send_key)


def newest_answer_to(question_id: UUID) -> Select[Message]:
    return select(Message).where(Message.parent_id == question_id).order_by(Message.id.desc()).limit(1)


def parts_of(message_id: UUID, attempt: int) -> Select[AnswerPart]:
    """What a running answer has saved so far, in order."""
    return (
        select(AnswerPart)
        .where(AnswerPart.message_id == message_id, AnswerPart.attempt == attempt)
        .order_by(AnswerPart.number)
    )


def abandoned(before: datetime) -> Select[Message]:
    """Running answers whose writer was not heard of since `before`."""
    return select(Message).where(Message.status.in_(RUNNING), Message.heartbeat_at < before)

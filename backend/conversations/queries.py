"""Selects over conversations. Access is part of the select: a stranger's row is simply not there."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import Select, exists, literal, or_, select, tuple_
from sqlalchemy.orm import aliased

from backend.conversations.models import Conversation, Message, Speaker, Status

RUNNING = (Status.QUEUED, Status.STREAMING)


def visible_to(person_id: UUID) -> Select[Conversation]:
    """Every conversation this person may open; the one place that decides it."""
    return select(Conversation).where(Conversation.owner_id == person_id)


def message_visible_to(person_id: UUID, conversation_id: UUID, message_id: UUID) -> Select[Message]:
    """Both ids and the person in one WHERE, so that neither id is trusted because the other was checked."""
    return select(Message).where(
        Message.id == message_id, Message.conversation_id == conversation_id, Message.owner_id == person_id
    )


def sidebar(
    person_id: UUID, before: tuple[datetime, UUID] | None, limit: int
) -> Select[UUID, str, datetime, bool, bool]:
    """Newest first, each with "an answer is running" and "one came unseen"; `before` is the last row shown."""
    running = exists().where(Message.conversation_id == Conversation.id, Message.status.in_(RUNNING))
    unread = exists().where(
        Message.conversation_id == Conversation.id,
        Message.finished_at > Conversation.seen_at,
        Message.speaker == Speaker.MODEL,
    )
    rows = select(
        Conversation.id, Conversation.title, Conversation.updated_at, running.label("running"), unread.label("unread")
    ).where(Conversation.owner_id == person_id)
    if before is not None:
        rows = rows.where(tuple_(Conversation.updated_at, Conversation.id) < tuple_(*map(literal, before)))
    return rows.order_by(Conversation.updated_at.desc(), Conversation.id.desc()).limit(limit)


def messages_of(conversation_id: UUID) -> Select[Message]:
    """All of them, every branch; `tree.py` finds its way."""
    return select(Message).where(Message.conversation_id == conversation_id).order_by(Message.id)


def versions(message: Message) -> Select[UUID]:
    """The message and what was said instead of it, oldest first, without what was deleted; see `tree.versions`."""
    in_its_place = (
        Message.conversation_id == message.conversation_id,
        Message.parent_id.is_not_distinct_from(message.parent_id),
        Message.speaker == message.speaker,
    )
    # Below what was deleted, down to the first that was not: mostly there is nothing to walk.
    follower = aliased(Message)
    below = select(Message.id.label("version_id"), Message.id, Message.deleted_at).where(*in_its_place)
    walk = below.where(Message.deleted_at.is_not(None)).cte("below", recursive=True)
    walk = walk.union_all(
        select(walk.c.version_id, follower.id, follower.deleted_at)
        .join(walk, follower.parent_id == walk.c.id)
        .where(follower.conversation_id == message.conversation_id, walk.c.deleted_at.is_not(None))
    )
    followed = select(walk.c.version_id).where(walk.c.deleted_at.is_(None))
    return (
        select(Message.id)
        .where(*in_its_place, or_(Message.deleted_at.is_(None), Message.id == message.id, Message.id.in_(followed)))
        .order_by(Message.id)
    )


def counted_below(message: Message) -> Select[UUID]:
    """The answers, this one among them, that counted `message` with the conversation they had to read."""
    node = aliased(Message)
    walk = select(Message.id).where(Message.id == message.id).cte("below", recursive=True)
    walk = walk.union_all(
        select(node.id).join(walk, node.parent_id == walk.c.id).where(node.conversation_id == message.conversation_id)
    )
    return select(Message.id).where(
        Message.id.in_(select(walk.c.id)), Message.context_tokens.is_not(None), Message.status.not_in(RUNNING)
    )


def opening(conversation_id: UUID) -> Select[Message]:
    """The first two messages ever written: what a title is made from."""
    return select(Message).where(Message.conversation_id == conversation_id).order_by(Message.id).limit(2)


def sent_with(person_id: UUID, send_key: UUID) -> Select[Message]:
    return select(Message).where(Message.owner_id == person_id, Message.send_key == send_key)


def newest_answer_to(question_id: UUID) -> Select[Message]:
    return select(Message).where(Message.parent_id == question_id).order_by(Message.id.desc()).limit(1)

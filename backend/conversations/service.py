"""Changes to conversations that are not a turn."""

from uuid import UUID

from sqlalchemy import inspect, update
from sqlalchemy.ext.asyncio import AsyncSession

from backend.conversations import queries, tree
from backend.conversations.models import Conversation, Message, Speaker, TitleSource
from backend.core.clock import now
from backend.core.errors import BadInput, Conflict
from backend.core.i18n import _
from backend.core.ids import new_id
from backend.core.text import one_line
from backend.files import service as files

MAX_TITLE = 200


def rename(conversation: Conversation, title: str) -> None:
    """From now on no model touches the title. Raises BadInput when nothing is left of it."""
    line = one_line(title, MAX_TITLE)
    if not line:
        raise BadInput(_("Please enter a title."))
    conversation.title = line
    conversation.title_source = TitleSource.PERSON


def see(conversation: Conversation) -> None:
    """The person looked at it: what ended before now is no longer unread."""
    conversation.seen_at = now()


async def delete(session: AsyncSession, conversation: Conversation) -> None:
    """Remove a conversation with all its messages. Stop its running answer after the commit."""
    await session.delete(conversation)
    await session.flush()
    await files.free(session, conversation.owner_id)


async def show(session: AsyncSession, message: Message) -> None:
    """Let the conversation go on from this branch: from what was written last below `message`."""
    conversation = await session.get_one(Conversation, message.conversation_id)
    messages = await session.scalars(queries.messages_of(message.conversation_id))
    conversation.leaf_id = tree.newest_below(messages, message.id)


async def empty(session: AsyncSession, message: Message) -> None:
    """Delete one message: its row stays, empty and hidden, because others follow it. It must have ended.

    Where nothing follows it and another version is there, that one takes its place.
    """
    # The conversation first, as `ask` does: in another order two of them could wait for each other.
    conversation = await session.get_one(Conversation, message.conversation_id, with_for_update=True)
    await session.refresh(message, with_for_update=True)  # as it is now: it may be taken up in this moment
    if message.status.running:
        raise Conflict(_("This answer is still being written. Stop it first."))
    versions = (await session.scalars(queries.versions(message))).all()
    message.text = message.reasoning = message.instruction = message.reason = ""
    message.rating = None
    message.deleted_at = now()
    counted = queries.counted_below(message)  # they would count what is no longer sent, and leave no room for other
    await session.execute(update(Message).where(Message.id.in_(counted)).values(context_tokens=None))
    await files.remove_from(session, message.owner_id, [message.id])
    if conversation.leaf_id == message.id and len(versions) > 1:
        place = versions.index(message.id)
        beside = versions[place - 1] if place else versions[1]
        await show(session, await session.get_one(Message, beside))


def rate(message: Message, rating: int | None) -> None:
    """Say that an answer is good (1) or bad (-1), or take it back (None). Raises Conflict where there is none."""
    if message.status.running or message.deleted_at:
        raise Conflict(_("There is no answer here that could be rated."))
    message.rating = rating


async def fork(session: AsyncSession, message: Message) -> Conversation:
    """A new conversation with copies of everything up to `message`. Raises Conflict while it is being written."""
    path = tree.path(await session.scalars(queries.messages_of(message.conversation_id)), message.id)
    if any(step.status.running for step in path):
        raise Conflict(_("This answer is still being written. Wait for its end, or stop it first."))
    origin = await session.get_one(Conversation, message.conversation_id)
    moment = now()
    forked = Conversation(
        id=new_id(),
        owner_id=origin.owner_id,
        title=one_line(_("{title}, continued").format(title=origin.title[: MAX_TITLE - 20]), MAX_TITLE),
        title_source=origin.title_source,
        model_id=origin.model_id,
        parameters=origin.parameters,
        updated_at=moment,
        seen_at=moment,
    )
    session.add(forked)
    await session.flush()
    copies = {step.id: new_id() for step in path}
    session.add_all(_copy(step, forked.id, copies) for step in path)
    await session.flush()
    await files.copy(session, copies)
    forked.leaf_id = copies[message.id]
    return forked


def _copy(message: Message, conversation_id: UUID, copies: dict[UUID, UUID]) -> Message:
    """The same message in another conversation; `copies` leads from the ids of its forerunners to those of theirs."""
    values = {column.key: getattr(message, column.key) for column in inspect(Message).column_attrs}
    values |= {
        "id": copies[message.id],
        "conversation_id": conversation_id,
        "parent_id": copies.get(message.parent_id) if message.parent_id else None,
        "context_from": copies.get(message.context_from) if message.context_from else None,
        "send_key": new_id() if message.speaker is Speaker.PERSON else None,
        "rating": None,  # it was given once
    }
    return Message(**values)

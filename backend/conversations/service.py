"""Changes to conversations that are not a turn."""

from sqlalchemy.ext.asyncio import AsyncSession

from backend.conversations.models import Conversation, TitleSource
from backend.core.clock import now
from backend.core.errors import BadInput
from backend.core.i18n import _
from backend.core.text import one_line

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

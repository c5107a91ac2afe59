"""Whose conversation, whose message: routes name these as parameters and get a row of their own person or a 404."""

from typing import Annotated
from uuid import UUID

from fastapi import Depends

from backend.conversations import queries
from backend.conversations.models import Conversation, Message
from backend.core.db import Session
from backend.core.errors import NotFound
from backend.core.i18n import _
from web.dependencies import CurrentUser


async def own_conversation(conversation_id: UUID, user: CurrentUser, session: Session) -> Conversation:
    found = await session.scalar(queries.visible_to(user.id).where(Conversation.id == conversation_id))
    if found is None:
        raise NotFound(_("There is no conversation here. It may have been deleted, or it belongs to somebody else."))
    return found


OwnConversation = Annotated[Conversation, Depends(own_conversation)]


async def own_message(conversation_id: UUID, message_id: UUID, user: CurrentUser, session: Session) -> Message:
    found = await session.scalar(queries.message_visible_to(user.id, conversation_id, message_id))
    if found is None:
        raise NotFound(_("There is no message here. It may have been deleted, or it belongs to somebody else."))
    return found


OwnMessage = Annotated[Message, Depends(own_message)]

"""Whose conversation, whose message: routes name these as parameters and get a row of their own person or a 404."""

from typing import Annotated
from uuid import UUID

from fastapi import Depends
from sqlalchemy.ext.asyncio import AsyncSession

from backend.conversations import queries
from backend.conversations.models import Conversation, Message
from backend.conversations.refusals import NoSuchConversation, NoSuchMessage
from backend.core.db import Session
from web.dependencies import CurrentUser


async def find_conversation(session: AsyncSession, person_id: UUID, conversation_id: UUID) -> Conversation:
    found = await session.scalar(queries.visible_to(person_id).where(Conversation.id == conversation_id))
    if found is None:
        raise NoSuchConversation
    return found


async def find_message(session: AsyncSession, person_id: UUID, conversation_id: UUID, message_id: UUID) -> Message:
    found = await session.scalar(queries.message_visible_to(person_id, conversation_id, message_id))
    if found is None:
        raise NoSuchMessage
    return found


async def own_conversation(conversation_id: UUID, user: CurrentUser, session: Session) -> Conversation:
    return await find_conversation(session, user.id, conversation_id)


OwnConversation = Annotated[Conversation, Depends(own_conversation)]


async def own_message(conversation_id: UUID, message_id: UUID, user: CurrentUser, session: Session) -> Message:
    return await find_message(session, user.id, conversation_id, message_id)


OwnMessage = Annotated[Message, Depends(own_message)]

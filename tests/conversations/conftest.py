"""Turns without the web: a real database, a real registry, a scripted engine."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID

import pytest
from sqlalchemy import select

from backend.accounts.models import User
from backend.conversations import queries
from backend.conversations.models import Conversation, Message
from backend.conversations.titles import Titles
from backend.conversations.turns import Question, Turn, Turns
from backend.core.db import Sessions
from backend.core.ids import new_id
from backend.core.security import Sealer
from backend.core.settings import Settings
from backend.engines.registry import Registry
from tests.site import QUICK


@dataclass
class Desk:
    """What a test of turns works with."""

    db: Sessions
    turns: Turns
    titles: Titles
    registry: Registry
    owner: User

    @property
    def model_id(self) -> UUID:
        return self.registry.offers[0].id

    async def ask(self, text: str, to: Conversation | None = None, *, key: UUID | None = None, **more: UUID) -> Turn:
        question = Question(text, more.pop("model_id", self.model_id), key or new_id(), **more)
        async with self.db.as_person(self.owner.id) as session:
            conversation = await session.get(Conversation, to.id) if to else None
            return await self.turns.ask(session, self.owner.id, conversation, question)

    async def message(self, message_id: UUID) -> Message:
        async with self.db.as_worker() as session:
            return await session.get_one(Message, message_id)

    async def ended(self, turn: Turn) -> Message:
        """The answer, once it is final."""
        async with asyncio.timeout(5):
            while (answer := await self.message(turn.answer.id)).status.running:
                await asyncio.sleep(0.01)
        return answer

    async def conversation(self, conversation_id: UUID) -> Conversation:
        async with self.db.as_worker() as session:
            return await session.get_one(Conversation, conversation_id)

    async def messages(self, conversation_id: UUID) -> list[Message]:
        async with self.db.as_worker() as session:
            rows = await session.scalars(
                select(Message).where(Message.conversation_id == conversation_id).order_by(Message.id)
            )
            return list(rows)

    async def stop(self, message_id: UUID) -> Message:
        await self.turns.stop(await self.message(message_id))
        return await self.message(message_id)

    async def path(self, leaf: UUID) -> list[Message]:
        async with self.db.as_worker() as session:
            return list(await session.scalars(queries.path_to(leaf)))


@pytest.fixture
def titles_enabled() -> bool:
    return False


@pytest.fixture
async def desk(db: Sessions, settings: Settings, alice: User, titles_enabled: bool) -> AsyncIterator[Desk]:
    async with Registry(settings, db, Sealer(settings.secrets(), "engine keys")) as registry:
        async with asyncio.timeout(5):
            while not any(offer.available for offer in registry.offers):
                await asyncio.sleep(0.01)
        titles = Titles(db, registry, enabled=titles_enabled)
        async with Turns(
            db, registry, titles, salt_key=b"salt", message_bytes=settings.message_bytes, timing=QUICK
        ) as turns:
            yield Desk(db, turns, titles, registry, alice)
        await titles.close()

"""Turns without the web: a real database, a real registry, a scripted engine."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID

import pytest
from sqlalchemy import select

from backend.accounts.models import User
from backend.admission.service import Admission, Pace
from backend.conversations import queries, tree
from backend.conversations.asking import Question, Turn
from backend.conversations.live import LiveAnswer
from backend.conversations.models import Conversation, Message
from backend.conversations.running import Running
from backend.conversations.titles import Titles
from backend.conversations.turns import Turns
from backend.core.bus import Bus
from backend.core.db import Sessions
from backend.core.direct import Direct
from backend.core.ids import new_id
from backend.core.security import Sealer
from backend.core.settings import Settings
from backend.engines.aliases import Aliases
from backend.engines.pool import Pool
from backend.engines.registry import Registry
from tests.fakes.engine import FakeEngine
from tests.site import QUICK


@dataclass
class Lost:
    """An answer of a process that is gone, which in a test still holds its connection to the engine."""

    running: Running

    async def end(self) -> None:
        assert self.running.task is not None
        await self.running.task

    async def hang_up(self) -> None:
        assert self.running.task is not None
        self.running.task.cancel()
        await asyncio.wait([self.running.task])


@dataclass
class Desk:
    """What a test of turns works with."""

    db: Sessions
    direct: Direct
    turns: Turns
    titles: Titles
    registry: Registry
    pool: Pool
    owner: User

    @property
    def model_id(self) -> UUID:
        return self.registry.offers[0].id

    async def ask(self, text: str, to: Conversation | None = None, *, key: UUID | None = None, **more: UUID) -> Turn:
        question = Question(
            text,
            more.pop("model_id", self.model_id),
            key or new_id(),
            after=more.pop("after", None),
            edits=more.pop("edits", None),
        )
        return await self.turns.ask(self.owner.id, to.id if to else None, question)

    async def message(self, message_id: UUID) -> Message:
        async with self.db.as_worker() as session:
            return await session.get_one(Message, message_id)

    async def ended(self, turn: Turn) -> Message:
        """The answer, once it is final."""
        async with asyncio.timeout(5):
            while (answer := await self.message(turn.answer.id)).status.running:
                await asyncio.sleep(0.01)
        return answer

    async def lose(self, turn: Turn) -> "Lost":
        """As if the answer were written by a process that is gone: it was saved, and nobody hears of it again."""
        await self.turns._upkeep.save()
        return Lost(self.turns._running.pop(turn.answer.id))

    async def probed_again(self, engine: FakeEngine) -> None:
        """Wait until the registry knows what the engine can do now."""
        engine.version += "1"
        async with asyncio.timeout(10):
            while any(
                endpoint.continues != engine.continues or endpoint.engine_version != engine.version
                for offer in self.registry.offers
                for endpoint in offer.endpoints
            ):
                self.registry.look_now(self.registry.engines[0].id)
                await asyncio.sleep(0.05)

    async def taken_over(self, turn: Turn) -> LiveAnswer:
        """The answer, once it is written here again."""
        async with asyncio.timeout(5):
            while (live := self.turns.live(turn.answer.id)) is None:
                await asyncio.sleep(0.01)
        return live

    async def written(self, turn: Turn, text: str) -> None:
        """Wait until the answer has got this far."""
        live = self.turns.live(turn.answer.id)
        assert live is not None
        async with asyncio.timeout(5):
            while live.text != text:
                await live.news(live.version)

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
            message = await session.get_one(Message, leaf)
            return tree.path(await session.scalars(queries.messages_of(message.conversation_id)), leaf)


@pytest.fixture
def titles_enabled() -> bool:
    return False


@pytest.fixture
async def desk(db: Sessions, settings: Settings, alice: User, titles_enabled: bool) -> AsyncIterator[Desk]:
    async with Registry(settings, db, Sealer(settings.secrets(), "engine keys")) as registry:
        async with asyncio.timeout(5):
            while not registry.offers or not all(
                each.continues for offer in registry.offers for each in offer.endpoints
            ):
                await asyncio.sleep(0.01)
        async with (
            Bus(settings.database_url) as bus,
            Admission(
                bus,
                limit_of=registry.limit_of,
                weight_of=registry.weight_of,
                per_person=settings.answers_per_person,
                pace=Pace(beat=QUICK.save_every),
            ) as admission,
            Direct(settings.database_url, connections=2) as direct,
        ):
            pool = Pool(registry, admission)
            titles = Titles(db, pool, Aliases(b"salt"), enabled=titles_enabled)
            async with Turns(
                db,
                direct,
                bus,
                registry,
                pool,
                titles,
                aliases=Aliases(b"salt"),
                message_bytes=settings.message_bytes,
                files_per_message=settings.files_per_message,
                timing=QUICK,
            ) as turns:
                yield Desk(db, direct, turns, titles, registry, pool, alice)
            await titles.close()

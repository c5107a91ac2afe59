"""Whether a conversation finds its own beginning in an engine's cache: two real llama.cpp servers with one model.

Each conversation has a slot of its own on either server. For some of them the pool says where a turn goes; for as many
others the servers take turns (round robin). What an earlier turn of a conversation sent or received need not be read
again; how much of that came from the cache is what is told.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from sqlalchemy import select

from backend.audit import chain
from backend.core.db import Sessions, connect
from backend.core.ids import new_id
from backend.core.security import Sealer
from backend.core.settings import EngineSetting, Settings
from backend.engines import publishing
from backend.engines.client import ChatMessage, ChatRequest
from backend.engines.events import Delta, Event, Usage
from backend.engines.models import Deployment
from backend.engines.pool import Ask, Pool, Urgency
from backend.engines.registry import Endpoint, Registry
from tests.fakes.admission import Always
from tests.load import llamacpp

_SECRET = "0123456789abcdef0123456789abcdef"
_ANSWER = 16  # tokens
_SUBJECTS = ("the harbour", "a bakery", "our garden", "the old mill", "a violin", "the night train", "a glacier")


@dataclass
class Chat:
    """A conversation, and what is known of its tokens."""

    number: int
    id: UUID = field(default_factory=new_id)
    messages: list[ChatMessage] = field(default_factory=list)
    known: int = 0  # tokens that were sent or received so far
    engines: list[str] = field(default_factory=list)

    def ask(self, turn: int) -> None:
        subject = _SUBJECTS[self.number % len(_SUBJECTS)]
        told = " ".join(f"Note {n} on {subject}, number {self.number}: {n * 37 % 101} of it is kept." for n in range(6))
        text = f"Read this. {told} What is {subject} about?" if turn == 0 else f"And what else, for the {turn}. time?"
        self.messages.append({"role": "user", "content": text})


@dataclass
class Found:
    """Tokens of all turns but the first ones."""

    known: int = 0  # the conversation had sent or received them before
    cached: int = 0  # of these, what was not read again
    turns: int = 0
    chats: Sequence[Chat] = ()

    @property
    def share(self) -> float:
        return self.cached / self.known if self.known else 0.0


@dataclass
class Pair:
    registry: Registry
    pool: Pool

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return self.registry.offers[0].endpoints

    async def by_affinity(self, chat: Chat, _turn: int) -> Usage:
        async def request(endpoint: Endpoint) -> ChatRequest:
            chat.engines.append(endpoint.engine_name)
            return _request(endpoint, chat)

        ask = Ask(
            offer=self.registry.offers[0],
            person_id=chat.id,
            affinity=chat.id,
            urgency=Urgency.CHAT,
            cost=chat.known + _ANSWER,
            request=request,
            on_place=lambda _place: None,
            on_endpoint=lambda _endpoint: None,
        )
        return await _hear(chat, self.pool.answer(ask))

    async def in_turn(self, chat: Chat, turn: int) -> Usage:
        endpoint = self.endpoints[(chat.number + turn) % len(self.endpoints)]
        chat.engines.append(endpoint.engine_name)
        return await _hear(chat, endpoint.client.answer(_request(endpoint, chat)))


async def measure(database_url: str, *, chats: int, turns: int) -> tuple[Found, Found]:
    """By the pool, and in turn."""
    async with _pair(database_url, slots=2 * chats) as pair:
        pooled = await talk(pair.by_affinity, [Chat(number) for number in range(chats)], turns)
        return pooled, await talk(pair.in_turn, [Chat(number) for number in range(chats, 2 * chats)], turns)


async def talk(answer: Callable[[Chat, int], Awaitable[Usage]], chats: Sequence[Chat], turns: int) -> Found:
    """All conversations at once, turn by turn. Those with other numbers are about something else."""
    found = Found(chats=chats)

    async def one(chat: Chat, turn: int) -> None:
        chat.ask(turn)
        usage = await answer(chat, turn)
        if turn:
            found.turns += 1
            found.known += chat.known
            found.cached += min(usage.cached_tokens or 0, chat.known)
        chat.known = usage.prompt_tokens + usage.completion_tokens

    for turn in range(turns):
        await asyncio.gather(*(one(chat, turn) for chat in found.chats))
    return found


async def _hear(chat: Chat, answer: AsyncGenerator[list[Event], None]) -> Usage:
    text, usage = "", None
    async with aclosing(answer) as batches:
        async for events in batches:
            text += "".join(event.text for event in events if isinstance(event, Delta))
            usage = next((event for event in events if isinstance(event, Usage)), usage)
    assert usage is not None, "llama.cpp counts"
    chat.messages.append({"role": "assistant", "content": text})
    return usage


def _request(endpoint: Endpoint, chat: Chat) -> ChatRequest:
    return ChatRequest(endpoint.upstream_name, tuple(chat.messages), max_tokens=_ANSWER, temperature=0)


@asynccontextmanager
async def _pair(database_url: str, *, slots: int) -> AsyncIterator[Pair]:
    """Two servers that have seen nothing yet, and a registry that knows them to have one model."""
    with tempfile.TemporaryDirectory(prefix="parley-affinity-") as folder, ExitStack() as servers:
        logs = [Path(folder) / f"engine-{number}.log" for number in (1, 2)]
        urls = [servers.enter_context(llamacpp.running(slots, log)) for log in logs]
        async with AsyncExitStack() as stack:
            engine = connect(database_url, connections=2)
            stack.push_async_callback(engine.dispose)
            chain.use([_SECRET])
            db = Sessions(engine)
            engines = tuple(EngineSetting(name=f"engine-{n}", url=url) for n, url in enumerate(urls, 1))
            settings = Settings(database_url=database_url, secret_key=_SECRET, engines=engines, probe_seconds=2)
            registry = await stack.enter_async_context(Registry(settings, db, Sealer([_SECRET], "engine keys")))
            await registry.first_look()
            await _publish(db, registry)
            await _until_tried(registry)
            yield Pair(registry, Pool(registry, Always()))


async def _publish(db: Sessions, registry: Registry) -> None:
    async with db.begin() as session:
        for found in (await session.scalars(select(Deployment).where(Deployment.model_id.is_(None)))).all():
            await publishing.publish(session, found)
    await registry.reload()
    assert len(registry.offers[0].endpoints) == 2


async def _until_tried(registry: Registry) -> None:
    """What the models can do is tried with small questions of their own, which would take slots meanwhile."""
    for engine in registry.engines:
        registry.look_now(engine.id)
    async with asyncio.timeout(60):
        while not all(each.continues for each in registry.offers[0].endpoints):
            await asyncio.sleep(0.05)

"""Two real vLLM servers with one model behind the pool: a warm cache, priorities, load, and one that is drained."""

import asyncio
import time
from contextlib import aclosing
from uuid import UUID

import pytest

from backend.core.ids import new_id
from backend.engines.client import ChatRequest, EngineClient
from backend.engines.events import Delta
from backend.engines.pool import Ask, Pool, Urgency
from backend.engines.registry import Endpoint, Registry
from backend.engines.service import find_engine
from tests.engines.conftest import Ground, until
from tests.engines.support import ask
from tests.fakes.admission import Always
from tests.load import affinity, report
from tests.load.report import Row
from tests.vllm.chats import chats, found_in
from tests.vllm.conftest import Measured
from tests.vllm.servers import MODEL, Server

LONG = "Tell me a very long story about a lighthouse, with every detail you can think of."
SLOTS = 8  # answers at once, by the servers' --max-num-seqs


@pytest.fixture
async def registry(ground: Ground, replicas: tuple[Server, ...]) -> Registry:
    """Both replicas, with their model published once for both."""
    registry = await ground.registry(*(replica.api for replica in replicas), probe_seconds=0.5)
    await registry.first_look()
    await ground.publish(MODEL)
    await registry.reload()
    assert len(registry.offers[0].endpoints) == 2
    return registry


async def test_the_pool_finds_both_and_what_they_are(registry: Registry) -> None:
    endpoints = registry.offers[0].endpoints

    assert [(each.engine_kind, each.context_length) for each in endpoints] == [("vllm", 4096)] * 2
    assert all((each.engine_version or "").startswith("0.") for each in endpoints)
    await until(lambda: all(each.continues for each in registry.offers[0].endpoints), seconds=60)


@pytest.mark.timeout(600)
async def test_a_conversation_finds_its_beginning_in_the_cache_of_its_engine(
    registry: Registry, measured: Measured
) -> None:
    pair = affinity.Pair(registry, Pool(registry, Always()))

    pooled = await affinity.talk(pair.by_affinity, chats(range(5)), turns=4)
    in_turn = await affinity.talk(pair.in_turn, chats(range(5, 10)), turns=4)

    measured(
        report.at_least("two replicas, affinity: from the cache", 100 * pooled.share, 90, "%", note=found_in(pooled))
    )
    measured(Row("the same, round robin", f"{100 * in_turn.share:,.0f} %", note=found_in(in_turn)))
    assert all(len(set(chat.engines)) == 1 for chat in pooled.chats)
    assert all(len(set(chat.engines)) == 2 for chat in in_turn.chats)
    assert pooled.share >= 0.9
    assert in_turn.share < pooled.share


async def test_a_salt_keeps_what_people_share_from_each_other(replicas: tuple[Server, ...]) -> None:
    """Whoever asks the same with another salt cannot see by the cache that it was asked before."""
    question = [f"What is the best way to learn the violin at the age of {number}?" for number in range(20, 30)]

    async with EngineClient(replicas[0].api, kind="vllm") as client:

        async def cached(salt: str) -> int:
            request = ChatRequest(
                MODEL, [{"role": "user", "content": " ".join(question)}], max_tokens=1, temperature=0, salt=salt
            )
            return (await ask(client, request)).usage[-1].cached_tokens or 0

        alice, alice_again, bob = [await cached(salt * 64) for salt in ("a", "a", "b")]

    assert alice == bob == 0
    assert alice_again >= 128


@pytest.mark.timeout(300)
async def test_a_question_passes_what_waits_in_the_background(replicas: tuple[Server, ...], measured: Measured) -> None:
    """With as many answers running as the engine has places, and another waiting that is in no hurry."""
    begun: dict[str, float] = {}

    async with EngineClient(replicas[0].api, kind="vllm") as client:
        client.speak("vllm", priorities=True)

        async def put(name: str, priority: int, tokens: int) -> None:
            request = ChatRequest(
                MODEL, [{"role": "user", "content": f"{name}: {LONG}"}], max_tokens=tokens, priority=priority
            )
            async with aclosing(client.answer(request)) as batches:
                async for _events in batches:
                    begun.setdefault(name, time.monotonic())

        async def waiting() -> int:
            page = await client.numbers("metrics")
            line = next(line for line in page.splitlines() if line.startswith(b"vllm:num_requests_waiting{"))
            return int(float(line.split()[-1]))

        running = [asyncio.create_task(put(f"running {number}", 2, 150)) for number in range(SLOTS)]
        await until(lambda: len(begun) == SLOTS, seconds=60)
        later = asyncio.create_task(put("in the background", 2, 2))
        async with asyncio.timeout(60):
            while not await waiting():
                await asyncio.sleep(0.05)
        question = asyncio.create_task(put("a person's", 0, 2))
        await asyncio.gather(later, question, *running)

    ahead = begun["in the background"] - begun["a person's"]
    measured(Row("priority: a question is answered before a background request that waited first", f"{ahead:.1f} s"))
    assert ahead > 0


async def test_both_tell_how_busy_they_are(registry: Registry) -> None:
    pool = Pool(registry, Always())
    chats = [_chat_of(registry, number) for number in (1, 2)]

    answers = [asyncio.create_task(_text(pool, registry, chat, LONG, 100)) for chat in chats]
    await until(lambda: all((_load(registry, n) or 0) == 1 for n in (0, 1)), seconds=60)
    await asyncio.gather(*answers)
    await until(lambda: all(_load(registry, n) == 0 for n in (0, 1)), seconds=60)

    for engine in registry.engines:
        told = registry.loads(engine.id)
        assert all(load.waiting == 0 and load.kv is not None and 0 <= load.kv <= 1 for load in told)
        assert any((load.tokens_per_second or 0) > 0 for load in told)
        assert any(load.ttft is not None and load.ttft > 0 for load in told)
        assert any(load.hit_rate is not None and 0 <= load.hit_rate <= 1 for load in told)


def _load(registry: Registry, number: int) -> int | None:
    load = registry.load(registry.engines[number].id)
    return load.running if load else None


@pytest.mark.timeout(300)
async def test_an_engine_that_is_drained_ends_its_answers_and_gets_no_more(ground: Ground, registry: Registry) -> None:
    pool = Pool(registry, Always())
    chat, other = _chat_of(registry, 1), _chat_of(registry, 1)
    asked: list[str] = []
    begins = asyncio.Event()

    running = asyncio.create_task(_text(pool, registry, chat, LONG, 120, begins=begins, asked=asked))
    await begins.wait()
    await _drain(ground, registry, draining=True)
    elsewhere = await _text(pool, registry, other, "What is the capital of France?", 10, asked=asked)
    still_running = registry.traffic.running_on(registry.engines[0].id)
    story = await running
    await _drain(ground, registry, draining=False)
    again = await _text(pool, registry, chat, "What is the capital of France?", 10, asked=asked)

    assert asked == ["engine-1", "engine-2", "engine-1"]
    assert still_running == 1
    assert len(story.split()) > 40
    assert elsewhere and again


async def _drain(ground: Ground, registry: Registry, *, draining: bool) -> None:
    async with ground.db.begin() as session:
        engine = await find_engine(session, registry.engines[0].id)
        engine.draining = draining
    await registry.reload()


def _chat_of(registry: Registry, number: int) -> UUID:
    """A conversation whose favourite is this engine."""
    while True:
        chat = new_id()
        if registry.choose(registry.offers[0], chat).engine_name == f"engine-{number}":
            return chat


async def _text(
    pool: Pool,
    registry: Registry,
    chat: UUID,
    question: str,
    tokens: int,
    *,
    begins: asyncio.Event | None = None,
    asked: list[str] | None = None,
) -> str:
    async def request(endpoint: Endpoint) -> ChatRequest:
        return ChatRequest(
            endpoint.upstream_name, [{"role": "user", "content": question}], max_tokens=tokens, temperature=0
        )

    wish = Ask(
        offer=registry.offers[0],
        person_id=chat,
        affinity=chat,
        urgency=Urgency.CHAT,
        cost=tokens,
        request=request,
        on_place=lambda _place: None,
        on_endpoint=lambda endpoint: asked.append(endpoint.engine_name) if asked is not None else None,
    )
    text = ""
    async with aclosing(pool.answer(wish)) as batches:
        async for events in batches:
            text += "".join(event.text for event in events if isinstance(event, Delta))
            if begins:
                begins.set()
    return text

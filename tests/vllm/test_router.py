"""vllm-router in front of two real vLLM servers: by the header that Parley sends, a conversation stays where it is."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing

import aiohttp
import pytest

from backend.engines.client import ChatMessage, ChatRequest, EngineClient
from backend.engines.dialects.vllm import METRICS
from backend.engines.events import Usage
from backend.engines.kinds import Kind
from backend.engines.metrics import Number, parse
from tests.engines.support import ask
from tests.load import affinity, report
from tests.load.report import Row
from tests.vllm.chats import chats, found_in
from tests.vllm.conftest import Measured
from tests.vllm.servers import MODEL, Server


@pytest.fixture
async def client(router: Server) -> AsyncIterator[EngineClient]:
    async with EngineClient(router.api, kind=Kind.VLLM_ROUTER) as client:
        yield client


async def test_it_is_known_for_what_it_is(client: EngineClient) -> None:
    client.speak(None)

    found = await client.probe()

    assert found.kind is Kind.VLLM_ROUTER
    assert [(model.id, model.context_length) for model in found.models] == [(MODEL, 4096)]


class Talking:
    """Puts questions to the router one at a time, so that it can be seen which worker answers."""

    def __init__(self, client: EngineClient, workers: tuple[Server, ...], *, header: bool) -> None:
        self._client = client
        self._workers = workers
        self._header = header
        self._one_at_a_time = asyncio.Lock()

    async def answer(self, chat: affinity.Chat, _turn: int) -> Usage:
        session = chat.id.hex if self._header else None
        request = ChatRequest(MODEL, tuple(chat.messages), max_tokens=16, temperature=0, session=session)
        async with self._one_at_a_time:
            before = [await _written(worker) for worker in self._workers]
            heard = await ask(self._client, request)
            after = [await _written(worker) for worker in self._workers]
        counts = zip(self._workers, before, after, strict=True)
        chat.engines += [worker.name for worker, then, now in counts if then < now]
        chat.messages.append({"role": "assistant", "content": heard.text})
        return heard.usage[-1]


@pytest.mark.timeout(600)
async def test_a_conversation_stays_on_one_worker_by_the_session_header(
    client: EngineClient, replicas: tuple[Server, ...], measured: Measured
) -> None:
    talking = Talking(client, replicas, header=True)

    found = await affinity.talk(talking.answer, chats(range(20, 25)), turns=3)

    measured(
        report.at_least("vllm-router, session header: from the cache", 100 * found.share, 90, "%", note=found_in(found))
    )
    assert all(len(set(chat.engines)) == 1 for chat in found.chats)
    assert found.share >= 0.9


@pytest.mark.timeout(300)
async def test_conversations_spread_only_where_the_header_tells_them_apart(
    client: EngineClient, replicas: tuple[Server, ...], measured: Measured
) -> None:
    """Without it vllm-router takes all of them for one, and one worker does all the work."""
    asked = {}
    for header in (True, False):
        talking = Talking(client, replicas, header=header)
        found = await affinity.talk(talking.answer, [affinity.Chat(number) for number in range(30, 42)], turns=1)
        asked[header] = Counter(worker for chat in found.chats for worker in chat.engines)

    told = [" and ".join(str(count) for count in asked[header].values()) for header in (True, False)]
    measured(Row("vllm-router: 12 conversations on its two workers", f"{told[0]}; without the header {told[1]}"))
    assert set(asked[True]) == {replica.name for replica in replicas}
    assert len(asked[False]) == 1


async def test_the_salt_reaches_the_workers(client: EngineClient) -> None:
    """It is lost on nobody's way: the same question of another person finds nothing in the cache."""
    question = " ".join(f"How far is it from the harbour to island number {number}?" for number in range(12))

    async def cached(salt: str) -> int:
        messages: list[ChatMessage] = [{"role": "user", "content": question}]
        request = ChatRequest(MODEL, messages, max_tokens=1, temperature=0, salt=salt * 64, session="0123abcd")
        return (await ask(client, request)).usage[-1].cached_tokens or 0

    alice, alice_again, bob = [await cached(salt) for salt in ("c", "c", "d")]

    assert alice == bob == 0
    assert alice_again >= 128


async def test_whoever_leaves_frees_the_worker_behind_it(
    client: EngineClient, replicas: tuple[Server, ...], measured: Measured
) -> None:
    request = ChatRequest(MODEL, [{"role": "user", "content": "Tell me a very long story."}], max_tokens=2000)

    async with aclosing(client.answer(request)) as batches:
        await anext(batches)
        running = sum([await _running(worker) for worker in replicas])

    left = time.monotonic()
    async with asyncio.timeout(20):
        while any([await _running(worker) for worker in replicas]):
            await asyncio.sleep(0.02)

    measured(Row("vllm-router: a worker is free after somebody has left", f"{time.monotonic() - left:.2f} s"))
    assert running == 1


async def _running(worker: Server) -> float:
    return (await _numbers(worker))[Number.RUNNING]


async def _written(worker: Server) -> float:
    return (await _numbers(worker))[Number.GENERATED]


async def _numbers(worker: Server) -> dict[Number, float]:
    async with aiohttp.ClientSession() as session, session.get(f"{worker.url}/metrics") as response:
        return parse(await response.read(), METRICS)

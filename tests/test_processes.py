"""Two `parley serve` on one database: an answer is written by one, and read, stopped and taken over by the other."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import httpx
import pytest

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.ids import new_id
from tests.chaos.forked import Forked
from tests.chaos.people import Page
from tests.conftest import sign_in
from tests.fakes.engine import FakeEngine
from tests.served import Serve, Served, model_of, ready
from tests.site import free_port, read_events
from tests.web.chat.conftest import visible

pytestmark = pytest.mark.long

ANSWER = [f"{'' if number % 10 else chr(10) * 2}word{number} " for number in range(120)]
WHOLE = "".join(ANSWER).split()


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with FakeEngine(window=1_000_000, itl=0.02) as running:
        running.script = ANSWER
        yield running


@dataclass
class Somebody:
    """A person whose requests go to whichever process a test says."""

    http: httpx.AsyncClient
    model: str

    async def ask(self, at: Served) -> Page:
        form = {"text": "Tell me", "model": self.model, "key": str(new_id())}
        reply = await self.http.post(f"{at.address}/chat", data=form)
        assert reply.status_code == 200, reply.text
        return Page.of(reply.text, reply.headers["hx-push-url"])

    async def read(self, at: Served, page: Page, until: str = "") -> None:
        """To the end of the answer, until it holds a word, or until the connection is lost."""
        headers = {"accept": "text/event-stream"} | ({"last-event-id": page.cursor} if page.cursor else {})
        async with self.http.stream("GET", at.address + page.stream, headers=headers) as reply:
            assert reply.status_code == 200
            async for event in read_events(reply.aiter_lines()):
                page.take(event)
                assert words(page) == WHOLE[: len(words(page))], "each word once, in order"
                if until and until in words(page):
                    return

    async def stop(self, at: Served, page: Page) -> Page:
        reply = await self.http.post(f"{at.address}{page.address}/stop", data={"": ""})
        assert reply.status_code == 200, reply.text
        return Page.of(reply.text, page.conversation, page.answer)


@dataclass
class Pair:
    one: Served
    other: Served
    alice: Somebody


@pytest.fixture
async def pair(serve: Serve, db: Sessions, alice: User, engine: FakeEngine) -> AsyncIterator[Pair]:
    one, other = (serve(Forked, port=free_port(), drain_seconds=0.5) for _ in range(2))
    await asyncio.gather(ready(one), ready(other))
    token = await sign_in(db, alice)
    model = await model_of(one.address, token)
    await model_of(other.address, token)
    headers = {"sec-fetch-site": "same-origin", "hx-request": "true", "user-agent": "test"}
    async with httpx.AsyncClient(cookies={"sid": token}, headers=headers, timeout=10, verify=False) as http:
        await engine.until(lambda fake: bool(fake.probes))
        yield Pair(one, other, Somebody(http, model))


def words(page: Page) -> list[str]:
    return visible(page.html).split()


@asynccontextmanager
async def reading(somebody: Somebody, at: Served, page: Page) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(somebody.read(at, page))
    yield task
    async with asyncio.timeout(15):
        await task


async def test_an_answer_is_read_and_stopped_through_the_other_process(
    pair: Pair, engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    page = await pair.alice.ask(pair.one)
    whole = replace(page)
    began = time.monotonic()
    await pair.alice.read(pair.other, whole)
    seconds = time.monotonic() - began

    to_stop = await pair.alice.ask(pair.one)
    async with reading(pair.alice, pair.other, to_stop):
        while "word9" not in words(to_stop):
            await asyncio.sleep(0.01)
        shown = words(to_stop)
        pressed = time.monotonic()
        stopped = await pair.alice.stop(pair.other, to_stop)
        replied = time.monotonic()
    closed = engine.aborted[-1].at

    with capsys.disabled():
        print(f"\nstop through the other process: {1000 * (closed - pressed):.0f} ms at the engine, ", end="")
        print(f"{1000 * (replied - pressed):.0f} ms to the reply; 120 words read there in {seconds:.1f} s")
    assert words(whole) == WHOLE
    assert closed - pressed < 1, "the goal is 100 ms; a loaded machine gets more"
    assert stopped.is_over
    assert words(stopped)[: len(shown)] == shown
    assert stopped.can_continue
    assert len(engine.questions) == 2


async def test_a_reader_elsewhere_gets_the_whole_answer_when_its_writer_is_killed(
    pair: Pair, engine: FakeEngine
) -> None:
    page = await pair.alice.ask(pair.one)
    async with reading(pair.alice, pair.other, page):
        while "word30" not in words(page):
            await asyncio.sleep(0.01)
        pair.one.kill()

    assert page.is_over
    assert words(page) == WHOLE
    assert [call.continues for call in engine.questions] == [False, True]
    assert "word15" in engine.questions[1].last_text


async def test_a_reader_whose_process_is_killed_goes_on_elsewhere_with_the_cursor(
    pair: Pair, engine: FakeEngine
) -> None:
    page = await pair.alice.ask(pair.one)
    await pair.alice.read(pair.other, page, until="word30")
    losing = asyncio.create_task(pair.alice.read(pair.other, page))
    await asyncio.sleep(0.2)

    pair.other.kill()
    with pytest.raises(httpx.TransportError):
        await losing
    had = page.blocks
    await pair.alice.read(pair.one, page)

    assert had, "what it had already was not drawn again"
    assert words(page) == WHOLE
    assert len(engine.questions) == 1


async def test_what_takes_longer_than_a_drain_goes_on_in_the_other_process_at_once(
    pair: Pair, engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    page = await pair.alice.ask(pair.one)
    async with reading(pair.alice, pair.other, page):
        while "word10" not in words(page):
            await asyncio.sleep(0.01)
        told = time.monotonic()
        pair.one.signal(signal.SIGTERM)
        await engine.until(lambda fake: len(fake.questions) == 2, 10)

    first, second = engine.questions
    drained, gap = engine.aborted[0].at - told, second.at - engine.aborted[0].at
    with capsys.disabled():
        print(f"\ndrained for {drained:.2f} s, went on in the other process {1000 * gap:.0f} ms later")
    assert words(page) == WHOLE
    assert drained > 0.4
    assert gap < 1, "sooner than an answer whose process died without a word"
    assert (first.continues, second.continues) == (False, True)


async def test_a_reader_of_an_answer_elsewhere_does_not_hold_up_a_process_that_goes(
    pair: Pair, engine: FakeEngine
) -> None:
    page = await pair.alice.ask(pair.one)
    await pair.alice.read(pair.other, page, until="word10")
    losing = asyncio.create_task(pair.alice.read(pair.other, page))
    await asyncio.sleep(0.1)

    told = time.monotonic()
    pair.other.signal(signal.SIGTERM)
    async with asyncio.timeout(20):
        await losing  # the stream ends in good order, and the browser comes back
        while pair.other.is_running:
            await asyncio.sleep(0.02)
    seconds = time.monotonic() - told
    await pair.alice.read(pair.one, page)

    assert seconds < 10, "the drain takes half a second, and it was not held up"
    assert words(page) == WHOLE
    assert not [line for line in pair.other.log if line["level"] == "error"]
    assert len(engine.questions) == 1

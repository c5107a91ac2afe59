"""Two `parley serve` on one database, and a model that gives one answer at a time: the line is one for both."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import psycopg
import pytest

from backend.accounts.models import User
from backend.core.db import Sessions
from tests.chaos.forked import Forked
from tests.chaos.people import Page
from tests.conftest import sign_in
from tests.fakes.engine import FakeEngine
from tests.served import Serve, Served, model_of, ready
from tests.site import free_port, read_events
from tests.test_processes import Somebody
from tests.web.chat.conftest import visible

pytestmark = pytest.mark.long

LONG = [f"word{number} " for number in range(5_000)]


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with FakeEngine(window=1_000_000, itl=0.02) as running:
        yield running


@dataclass
class Line:
    """`leader` decides for both."""

    leader: Served
    follower: Served
    alice: Somebody
    bob: Somebody


@pytest.fixture
async def line(
    serve: Serve, db: Sessions, alice: User, bob: User, engine: FakeEngine, owner_url: str
) -> AsyncIterator[Line]:
    tokens = [await sign_in(db, person) for person in (alice, bob)]
    first = serve(Forked, port=free_port())
    await ready(first)
    model = await model_of(first.address, tokens[0])
    first.end()
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("UPDATE models SET max_concurrent = 1")
    leader = serve(Forked, port=free_port())
    await ready(leader)
    follower = serve(Forked, port=free_port())
    await ready(follower)
    await asyncio.gather(model_of(leader.address, tokens[0]), model_of(follower.address, tokens[0]))
    headers = {"sec-fetch-site": "same-origin", "hx-request": "true", "user-agent": "test"}
    async with (
        httpx.AsyncClient(cookies={"sid": tokens[0]}, headers=headers, timeout=10, verify=False) as alices,
        httpx.AsyncClient(cookies={"sid": tokens[1]}, headers=headers, timeout=10, verify=False) as bobs,
    ):
        yield Line(leader, follower, Somebody(alices, model), Somebody(bobs, model))


@asynccontextmanager
async def never_two(engine: FakeEngine) -> AsyncIterator[None]:
    """Looks all the while how much the engine has to do."""
    most = 0

    async def look() -> None:
        nonlocal most
        while True:
            most = max(most, engine.running)
            await asyncio.sleep(0.002)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    assert most == 1


async def until_shown(somebody: Somebody, at: Served, page: Page, words: str) -> None:
    async with asyncio.timeout(20), somebody.http.stream("GET", at.address + page.stream) as reply:
        async for event in read_events(reply.aiter_lines()):
            page.take(event)
            if words in visible(event.data):
                return


async def test_one_limit_holds_over_two_processes_and_who_waits_sees_it_and_can_leave(
    line: Line, engine: FakeEngine
) -> None:
    engine.plan(LONG, ["Hello ", "Alice"])
    async with never_two(engine):
        bobs = await line.bob.ask(line.leader)
        await engine.until(lambda fake: fake.running == 1)
        gone, waits = await line.alice.ask(line.follower), await line.alice.ask(line.follower)
        await until_shown(line.alice, line.leader, waits, "You are number 2 in line")

        stopped = await line.alice.stop(line.leader, gone)  # it waits in the other process
        await until_shown(line.alice, line.leader, waits, "You are number 1 in line")
        await line.bob.stop(line.follower, bobs)
        await until_shown(line.alice, line.leader, waits, "Hello Alice")

    assert stopped.is_over
    assert len(engine.questions) == 2


@pytest.mark.parametrize("killed", ["leader", "follower"])
async def test_what_a_killed_process_held_is_free_and_nobody_is_stuck(
    line: Line, engine: FakeEngine, killed: str
) -> None:
    """Bob's answer is taken over, and stands in line like any other."""
    dies, stays = (line.leader, line.follower) if killed == "leader" else (line.follower, line.leader)
    engine.plan(LONG)
    engine.script = ["word0 ", "and ", "so on."]
    async with never_two(engine):
        bobs = await line.bob.ask(dies)
        await engine.until(lambda fake: fake.running == 1)
        alices = await line.alice.ask(stays)
        await until_shown(line.alice, stays, alices, "You are number 1 in line")

        dies.kill()
        await until_shown(line.alice, stays, alices, "so on.")
        await until_shown(line.bob, stays, bobs, "so on.")

    assert len(engine.questions) == 3

"""LIFE-05, LIFE-06: the web app is killed again and again under load, and what it promised is checked from outside.

People send twice at the same moment, and the same again after a lost connection.

`CHAOS_KILLS` and `CHAOS_SEED` change how often and how; the seed decides what people do and who is killed, not the
moment within a millisecond. `make chaos` runs it for longer.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pytest

from backend.accounts.models import Role
from backend.core.db import Sessions
from backend.embedded import processes
from tests.chaos.book import Book, Cut, Row
from tests.chaos.forked import Forked
from tests.chaos.people import Person
from tests.conftest import AddPerson, sign_in
from tests.fakes.engine import FakeEngine
from tests.served import Serve, Served, model_of, ready
from tests.site import free_port

KILLS = int(os.environ.get("CHAOS_KILLS", "15"))
SEED = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
SHARES = {"one": 1 / 5, "two": 3 / 5, "workers": 1 / 5}  # of the kills
PEOPLE = 5
SAFE_AGE = 2.0  # seconds: what was shown for so long has been stored
RECOVERED = 10.0

pytestmark = [pytest.mark.timeout(120 + 15 * KILLS), pytest.mark.long]


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    """Repeats the question, a word every 40 ms; an answer has some seconds in which it can be cut."""
    with FakeEngine(window=1_000_000, itl=0.04) as running:
        yield running


@dataclass
class House:
    """The processes, what people saw of them, and a view of the rows that passes them by."""

    served: Sequence[Served]
    book: Book
    rows: "psycopg.AsyncConnection[Any]"
    chance: random.Random

    async def kill(self) -> int:
        """One of them, one of its workers, or all at once; now and then before it was up. How many it were."""
        victims = self.served if self.chance.random() < 0.5 else [self.chance.choice(self.served)]
        moment = time.monotonic()
        for victim in victims:
            workers = victim.workers
            if workers and self.chance.random() < 0.7:
                os.kill(self.chance.choice(list(workers.values())), signal.SIGKILL)  # started again by the first one
            else:
                victim.kill()
                while any(processes.started_at(pid) for pid in workers.values()):
                    await asyncio.sleep(0.02)
        self.book.cuts += await self._cut(moment)
        for victim in victims:
            if not victim.is_running:
                victim.start()
        return len(victims)

    async def _cut(self, moment: float) -> list[Cut]:
        found = await self.rows.execute(
            "SELECT id, attempt, text || coalesce((SELECT string_agg(part.text, '' ORDER BY number)"
            " FROM answer_parts AS part WHERE message_id = messages.id AND part.attempt = messages.attempt), '')"
            " FROM messages WHERE status IN ('queued', 'streaming')"
        )
        return [Cut(answer, moment, attempt, text) for answer, attempt, text in await found.fetchall()]

    async def recover(self) -> None:
        """Wait until every answer has ended or is being written by somebody who is alive."""
        for served in self.served:
            await ready(served)
        began = time.monotonic()
        since = await self.rows.execute("SELECT clock_timestamp()")
        moment = await since.fetchone()
        assert moment
        while True:
            left = await self.rows.execute(
                "SELECT id FROM messages WHERE status IN ('queued', 'streaming') AND created_at < %s"
                " AND heartbeat_at < %s",
                [moment[0], moment[0]],
            )
            behind = await left.fetchall()
            if not behind:
                break
            if time.monotonic() - began > RECOVERED:
                self.book.odd.append(f"{len(behind)} answers were left behind")
                break
            await asyncio.sleep(0.05)
        self.book.recovered.append(time.monotonic() - began)


@pytest.mark.parametrize("setting", SHARES)
async def test_nothing_that_was_promised_is_lost_when_the_web_app_is_killed(
    serve: Serve,
    engine: FakeEngine,
    db: Sessions,
    add_person: AddPerson,
    owner_url: str,
    setting: str,
) -> None:
    """One process, two on one database, and one that starts two of its own."""
    kills = round(KILLS * SHARES[setting])
    print(f"CHAOS_SEED={SEED}")
    began = time.monotonic()
    book = Book()
    if setting == "workers":
        served = [serve(module="tests.quick", processes=2, drain_seconds=1)]
    else:
        served = [serve(Forked, port=free_port(), drain_seconds=1) for _ in range(2 if setting == "two" else 1)]
    for each in served:
        await ready(each)
    people = [await add_person(f"Person{number} Somebody", Role.MEMBER) for number in range(PEOPLE)]
    tokens = [await sign_in(db, person) for person in people]
    addresses = [each.address for each in served]
    model = await model_of(addresses[0], tokens[0])
    crowd = [
        Person(number, person.id, token, addresses, book, seed=SEED, model=model)
        for number, (person, token) in enumerate(zip(people, tokens, strict=True))
    ]
    leave = asyncio.Event()

    async with await psycopg.AsyncConnection.connect(owner_url, autocommit=True) as rows:
        await until_it_continues(rows)
        house = House(served, book, rows, random.Random(SEED))
        async with asyncio.TaskGroup() as group:
            for person in crowd:
                group.create_task(person.live(leave))
            killed = 0
            while killed < kills:
                await asyncio.sleep(house.chance.uniform(0.2, 1.2))
                killed += await house.kill()
                if house.chance.random() < 0.8:
                    await house.recover()
            await house.recover()
            leave.set()
        found = await rows.execute(
            "SELECT id, parent_id, owner_id, send_key, text, status, attempt, reason FROM messages ORDER BY id"
        )
        messages = [Row(*row) for row in await found.fetchall()]
        counted = await rows.execute("SELECT message_id, count(*) FROM usage GROUP BY message_id")
        usage: dict[UUID, int] = dict(await counted.fetchall())

    broken = book.judge(messages, engine.questions, usage, age=SAFE_AGE)
    print(
        f"{killed} kills in {time.monotonic() - began:.0f} s: {len(book.sent)} sent, {len(engine.questions)} calls, "
        f"{len(book.cuts)} cut, {len(book.stopped)} stopped, {len(book.continued)} continued, "
        f"{len(book.regenerated)} regenerated, left behind for {max(book.recovered):.1f} s at most"
    )
    assert not broken, "\n".join([f"CHAOS_SEED={SEED}", *broken])
    assert any(row.attempt > 1 for row in messages), "nothing was being written when its process was killed"
    assert sum(sent.acknowledged for sent in book.sent) >= PEOPLE


async def until_it_continues(rows: "psycopg.AsyncConnection[Any]") -> None:
    async with asyncio.timeout(60):
        while not await (await rows.execute("SELECT 1 FROM deployments WHERE continues")).fetchone():
            await asyncio.sleep(0.05)

"""The load test itself: what it measures with is right, and it can drive the product as it is now."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

import pytest

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.settings import Settings
from backend.engines.client import ChatRequest, EngineClient
from backend.engines.events import Delta, Usage
from tests.conftest import sign_in
from tests.load import report
from tests.load.client import Broken, Person, Program
from tests.load.engine import MODEL, listen, pieces, plan
from tests.load.report import Point, Row, at_least, at_most
from tests.load.scenarios import question, together
from tests.site import Site


@dataclass(frozen=True)
class Running:
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@pytest.fixture
async def engine() -> AsyncIterator[Running]:
    """In place of the usual double."""
    async with await listen() as server:
        yield Running(server.sockets[0].getsockname()[1])


@pytest.mark.parametrize(("kind", "pace"), [("plain", 0), ("rich", 500)])
async def test_our_client_reads_what_the_fast_engine_sends(engine: Running, kind: str, pace: int) -> None:
    asked = ChatRequest(MODEL, [{"role": "user", "content": plan("t1", kind, 150, pace)}])

    async with EngineClient(engine.url) as client, aclosing(client.answer(asked)) as batches:
        events = [event async for batch in batches for event in batch]

    assert "".join(event.text for event in events if isinstance(event, Delta)) == "".join(pieces(kind, 150))
    assert [event.completion_tokens for event in events if isinstance(event, Usage)] == [150]


async def test_people_and_a_program_read_their_answers(
    site: Site, settings: Settings, engine: Running, db: Sessions, alice: User, bob: User
) -> None:
    model = (await site.until_offered(MODEL))[MODEL]
    people = [Person("127.0.0.1", settings.port, await sign_in(db, person)) for person in (alice, bob)]
    await people[0].open()
    people[1].model = str(model)

    first = await together(people, "rich", 12, pace=100, spread=0.05)
    second = await together(people, "plain", 1, pace=0, spread=0)
    direct = await together([Program("127.0.0.1", engine.port)], "plain", 12, pace=100, spread=0)

    assert people[0].model == str(model)
    for outcome in (*first, *second, *direct):
        assert not outcome.problem
        assert outcome.asked < outcome.first <= outcome.ended
    assert all(len(outcome.updates) > 1 and outcome.gaps for outcome in (*first, *direct))


async def test_a_stranger_is_counted_as_failed(site: Site, settings: Settings) -> None:
    nobody = Person("127.0.0.1", settings.port)

    outcome = await nobody.turn(*question("plain", 2, 0))

    assert outcome.problem.startswith("the send has 401")
    with pytest.raises(Broken, match="every turn failed"):
        await together([nobody], "plain", 2, spread=0)


def test_a_row_says_whether_the_budget_is_met() -> None:
    rows = [
        at_most("a wait", 7.94, 8, "ms", digits=1),
        at_most("another", 8.1, 8, "ms", digits=1, note="why"),
        at_most("quick, but", 1, 8, "ms", failed=3),
        at_least("tokens", 149_999, 150_000, "a second"),
        at_most("nobody minds", 3, None, "MB"),
    ]

    assert [row.met for row in rows] == [True, False, False, False, None]
    lines = report.table(rows).splitlines()
    assert lines[1].split() == ["a", "wait", "≤", "8", "ms", "7.9", "ms", "met"]
    assert lines[3].endswith("NOT MET  3 FAILED")
    assert "| another | ≤ 8 ms | 8.1 ms | **NOT MET** | why |" in report.markdown(rows)


def test_what_people_wrote_around_the_table_stays() -> None:
    rows = [Row("a wait", "7 ms", "≤ 8 ms", met=True)]
    written = report.section(rows, [Point(32, 12, 40), Point(64, 30, None)], ["a remark"])

    once = report.spliced("# Measurements\n\nbefore\n", written)
    twice = report.spliced(f"{once}\nafter\n", written.replace("7 ms", "6 ms"))

    assert once.startswith("# Measurements\n\nbefore\n\n<!--")
    assert twice.startswith("# Measurements\n\nbefore\n\n<!--")
    assert twice.endswith("-->\n\nafter\n")
    assert "6 ms" in twice
    assert "7 ms" not in twice


def test_the_picture_shows_every_point_and_the_budget() -> None:
    drawn = report.picture([Point(32, 12, 40), Point(128, 300, 100), Point(512, 700, None)])

    assert drawn.count("<circle") == 3
    assert "budget" in drawn
    assert ">300<" in drawn

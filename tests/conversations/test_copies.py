"""One answer, two processes: it is written in one, read and stopped in the other."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from backend.conversations.copies import _grown
from backend.conversations.models import Status
from backend.conversations.titles import Titles
from backend.conversations.turns import Turns
from backend.core.bus import Bus
from backend.core.settings import Settings
from backend.engines.aliases import Aliases
from tests.conversations.conftest import Desk
from tests.fakes.engine import STALL, FakeEngine, event
from tests.site import QUICK


@pytest.fixture
async def other(desk: Desk, settings: Settings) -> AsyncIterator[Turns]:
    """The turns of another process on the same database."""
    async with (
        Bus(settings.database_url) as bus,
        Turns(
            desk.db,
            desk.direct,
            bus,
            desk.registry,
            desk.pool,
            Titles(desk.db, desk.pool, Aliases(b"salt"), enabled=False),
            aliases=Aliases(b"salt"),
            message_bytes=settings.message_bytes,
            files_per_message=settings.files_per_message,
            timing=QUICK,
        ) as turns,
    ):
        yield turns


async def test_a_reader_elsewhere_sees_it_grow_to_its_end(desk: Desk, engine: FakeEngine, other: Turns) -> None:
    go_on = asyncio.Event()
    engine.script = ("Well, ", "this ", go_on, "is " * 2_000, "all 😀.")
    turn = await desk.ask("Tell me everything")
    seen = []

    async with asyncio.timeout(10), other.follow(turn.answer.id) as copy:
        while not copy.finished:
            seen.append(copy.text)
            if copy.text == "Well, this ":
                go_on.set()
            await copy.news(copy.version)

    whole = (await desk.ended(turn)).text
    assert all(whole.startswith(text) for text in seen)
    assert "Well, this " in seen
    assert other.live(turn.answer.id) is None


async def test_what_it_gains_arrives_at_once_and_not_with_the_next_look_at_the_row(
    desk: Desk, engine: FakeEngine, other: Turns
) -> None:
    go_on = asyncio.Event()
    engine.script = ("Well, ", go_on, "now.", STALL)
    turn = await desk.ask("Tell me")

    async with asyncio.timeout(10), other.follow(turn.answer.id) as copy:
        while copy.text != "Well, ":
            await copy.news(copy.version)
        await asyncio.sleep(0.2)
        began = time.monotonic()
        go_on.set()
        while copy.text != "Well, now.":
            await copy.news(copy.version)
        assert time.monotonic() - began < 0.7

    await desk.stop(turn.answer.id)


async def test_nothing_is_told_while_nobody_elsewhere_reads(desk: Desk, engine: FakeEngine, other: Turns) -> None:
    engine.script = ("Well, ", STALL)
    turn = await desk.ask("Tell me")
    await desk.written(turn, "Well, ")

    assert not desk.turns._teller._leases
    async with asyncio.timeout(5), other.follow(turn.answer.id):
        while not desk.turns._teller._leases:
            await asyncio.sleep(0.01)
    await desk.stop(turn.answer.id)
    assert not desk.turns._teller._leases


async def test_a_stop_elsewhere_closes_the_engine_connection(desk: Desk, engine: FakeEngine, other: Turns) -> None:
    engine.script = ("Well, ", "this ", STALL)
    turn = await desk.ask("Tell me")
    await desk.written(turn, "Well, this ")

    await other.stop(await desk.message(turn.answer.id))
    await engine.until(lambda fake: fake.running == 0)

    answer = await desk.message(turn.answer.id)
    assert (answer.status, answer.text) == (Status.STOPPED, "Well, this ")


async def test_what_goes_away_is_stopped_in_every_process(desk: Desk, engine: FakeEngine, other: Turns) -> None:
    engine.script = ("Well, ", STALL)
    turn = await desk.ask("Tell me")
    await desk.written(turn, "Well, ")

    other.stop_all(owner_id=desk.owner.id)

    await engine.until(lambda fake: fake.running == 0)
    assert (await desk.ended(turn)).status is Status.STOPPED


async def test_what_a_drained_process_leaves_is_taken_up_at_once(desk: Desk, engine: FakeEngine, other: Turns) -> None:
    engine.script = ("One, ", STALL, "two.")
    turn = await desk.ask("Count")
    await desk.written(turn, "One, ")
    engine.script = ("One, ", "two.")

    desk.turns.begin_drain()
    desk.turns._leave_to_others()
    answer = await desk.ended(turn)

    assert (answer.status, answer.text, answer.resumed) == (Status.DONE, "One, two.", 0)


async def test_a_reader_elsewhere_notices_when_the_writer_has_died(
    desk: Desk, engine: FakeEngine, other: Turns
) -> None:
    """It follows the answer to the process that goes on with it, be it its own."""
    engine.script = ("One, ", STALL, "two.")
    turn = await desk.ask("Count")
    await desk.written(turn, "One, ")
    engine.script = ("One, ", "two.")

    async with asyncio.timeout(10), other.follow(turn.answer.id) as copy:
        while copy.text != "One, ":
            await copy.news(copy.version)
        lost = await desk.lose(turn)
        while not copy.finished:
            await copy.news(copy.version)

    assert (await desk.ended(turn)).text == "One, two."
    await lost.hang_up()


@pytest.mark.parametrize(
    ("known", "at", "piece", "grown"),
    [
        ("", 0, "abc", "abc"),
        ("abc", 3, "def", "abcdef"),
        ("abc", 1, "bcd", "abcd"),  # told twice
        ("abcdef", 0, "abc", "abcdef"),
        ("abc", 3, "", "abc"),
        ("ab", 3, "def", None),  # something is missing in between
    ],
)
def test_a_piece_is_put_where_it_belongs(known: str, at: int, piece: str, grown: str | None) -> None:
    assert _grown(known, at, piece) == grown


async def test_characters_that_take_much_room_silence_nobody(desk: Desk, engine: FakeEngine, other: Turns) -> None:
    """A message between processes is bounded, whatever a model writes: four bytes each, and as much of thoughts."""
    go_on = asyncio.Event()
    large = {"reasoning": "\U0001f600" * 1_200, "content": "\x01" * 1_200}
    engine.script = ("a", go_on, event({"choices": [{"index": 0, "delta": large}]}), STALL)
    turn = await desk.ask("Tell me")

    async with asyncio.timeout(10), other.follow(turn.answer.id) as copy:
        while copy.text != "a":
            await copy.news(copy.version)
        go_on.set()
        while len(copy.text) < 1_201:
            await copy.news(copy.version)
        assert copy.reasoning == large["reasoning"]

    await desk.stop(turn.answer.id)


async def test_a_reader_of_a_copy_moves_on_when_the_answer_is_taken_over_here(desk: Desk, engine: FakeEngine) -> None:
    """A copy of what its own process writes would only be told of by the row, in jumps."""
    engine.script = ("One, ", STALL, "two.")
    turn = await desk.ask("Count")
    await desk.written(turn, "One, ")
    lost = await desk.lose(turn)

    async with asyncio.timeout(5), desk.turns.follow(turn.answer.id) as copy:
        live = await desk.taken_over(turn)
        assert copy is not live
        assert copy.finished

    await desk.stop(turn.answer.id)
    await lost.hang_up()

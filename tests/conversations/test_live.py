"""A running answer in memory: readers see all of it, and none of them holds the writer up."""

import asyncio

import pytest
from hypothesis import given, settings, strategies as st

from backend.conversations.live import LiveAnswer, Phase
from backend.engines.events import Delta, Event, Finish, Reasoning, Usage
from backend.engines.pool import Place


def test_an_answer_collects_what_the_engine_sends() -> None:
    live = LiveAnswer(attempt=3)

    live.enter(Phase.READING)
    live.take([Reasoning("let me "), Reasoning("see")])
    live.take([Delta("Par"), Delta("is.")])
    live.take([Finish("stop"), Usage(10, 2, 8)])

    assert (live.attempt, live.text, live.reasoning) == (3, "Paris.", "let me see")
    assert (live.ended_by, live.usage) == ("stop", Usage(10, 2, 8))


@pytest.mark.parametrize(
    ("events", "phase"),
    [
        ([], Phase.READING),
        ([Reasoning("hm")], Phase.THINKING),
        ([Delta("a")], Phase.WRITING),
        ([Reasoning("hm"), Delta("a")], Phase.WRITING),
        ([Delta("a"), Usage(1, 1), Finish("stop")], Phase.WRITING),
    ],
)
def test_what_it_is_doing_follows_from_what_comes(events: list[Event], phase: Phase) -> None:
    live = LiveAnswer(attempt=1)
    assert live.phase is Phase.WAITING
    live.enter(Phase.READING)

    live.take(events)

    assert live.phase is phase


def test_a_place_in_line_is_shown_until_its_turn_has_come() -> None:
    live = LiveAnswer(attempt=1)
    live.wait(Place(2, 20, False))
    version = live.version

    live.wait(Place(2, 20, False))
    assert live.version == version, "nothing has changed"
    live.enter(Phase.READING)
    read = (live.phase, live.place)
    live.wait(Place(0, 5, False))  # the engine refused it, and it waits again

    assert read == (Phase.READING, None)
    assert (live.phase, live.place) == (Phase.WAITING, Place(0, 5, False))


def test_the_time_of_the_first_text_is_that_of_the_first_text_or_thought() -> None:
    live = LiveAnswer(attempt=1)

    live.take([Usage(1, 0)])
    before = live.first_text_at
    live.take([Reasoning("hm")])
    first = live.first_text_at
    live.take([Delta("a")])

    assert before is None
    assert first is not None
    assert live.first_text_at == first


@settings(deadline=None)
@given(st.lists(st.lists(st.one_of(st.builds(Delta, st.text()), st.builds(Reasoning, st.text())), max_size=4)))
def test_text_is_the_same_however_it_was_cut_and_looked_at(reads: list[list[Event]]) -> None:
    looked_at, not_looked_at = LiveAnswer(attempt=1), LiveAnswer(attempt=1)

    for events in reads:
        looked_at.take(events)
        assert looked_at.text is not None
        assert looked_at.reasoning is not None
        not_looked_at.take(events)

    everything = [event for events in reads for event in events]
    assert looked_at.text == not_looked_at.text
    assert looked_at.text == "".join(event.text for event in everything if isinstance(event, Delta))
    assert looked_at.reasoning == "".join(event.text for event in everything if isinstance(event, Reasoning))


async def test_a_reader_wakes_up_for_news() -> None:
    live = LiveAnswer(attempt=1)
    reader = asyncio.create_task(live.news(live.version))
    await asyncio.sleep(0)
    assert not reader.done()

    live.take([Delta("a")])

    async with asyncio.timeout(1):
        await reader


async def test_a_late_reader_does_not_wait_for_what_is_there() -> None:
    live = LiveAnswer(attempt=1)
    live.take([Delta("a")])

    async with asyncio.timeout(1):
        await live.news(-1)
        await live.news(live.version - 1)


async def test_one_read_of_the_socket_wakes_a_reader_once() -> None:
    live = LiveAnswer(attempt=1)
    before = live.version

    live.take([Delta("a"), Delta("b"), Reasoning("c"), Usage(1, 1), Finish("stop")])

    assert live.version == before + 1


def test_to_be_told_twice_what_it_is_doing_is_no_news() -> None:
    live = LiveAnswer(attempt=1)
    live.enter(Phase.READING)
    before = live.version

    live.enter(Phase.READING)

    assert live.version == before


async def test_a_slow_reader_skips_and_a_quick_one_sees_every_step() -> None:
    live = LiveAnswer(attempt=1)
    seen: dict[str, list[str]] = {"quick": [], "slow": []}

    async def read(name: str, pause: float) -> None:
        version = -1
        while not live.finished:
            await live.news(version)
            version = live.version
            seen[name].append(live.text)
            await asyncio.sleep(pause)

    readers = asyncio.gather(read("quick", 0), read("slow", 0.05))
    for number in range(10):
        live.take([Delta(str(number))])
        await asyncio.sleep(0.004)
    live.finish()
    async with asyncio.timeout(2):
        await readers

    assert len(seen["slow"]) < len(seen["quick"])
    assert all("0123456789".startswith(text) for text in seen["quick"] + seen["slow"])


async def test_the_end_wakes_everybody_and_nobody_waits_after_it() -> None:
    live = LiveAnswer(attempt=1)
    readers = [asyncio.create_task(live.news(live.version)) for _ in range(3)]
    await asyncio.sleep(0)

    live.finish()

    async with asyncio.timeout(1):
        await asyncio.gather(*readers)
        await live.news(live.version)
        await live.news(live.version + 7)


async def test_a_reader_that_leaves_takes_nothing_with_it() -> None:
    live = LiveAnswer(attempt=1)
    leaving, staying = (asyncio.create_task(live.news(live.version)) for _ in range(2))
    await asyncio.sleep(0)

    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    live.take([Delta("a")])

    async with asyncio.timeout(1):
        await staying
    assert leaving.cancelled()


async def test_a_reader_that_is_held_up_in_a_send_does_not_miss_the_end() -> None:
    """It looks at the end before it draws: what came while it was sending is still to be drawn or is final."""
    live = LiveAnswer(attempt=1)
    live.take([Delta("a")])
    version, finished = live.version, live.finished

    live.take([Delta("b")])
    live.finish()

    assert finished is False
    async with asyncio.timeout(1):
        await live.news(version)
    assert live.finished
    assert live.text == "ab"

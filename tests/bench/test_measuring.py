"""Measuring a fake engine whose pace is known. Relations are asserted, which hold however slow this machine is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from backend.bench.measuring import Measuring, Target
from backend.bench.plan import Plan
from backend.bench.results import Ended, Measurement
from backend.engines.client import EngineClient
from tests.fakes.engine import END, Asked, FakeEngine, Status, T, Thought, refusal

WORDS = tuple(f"word{number} " for number in range(10))


def nothing(_asked: Asked) -> bool:
    """Is a title: the short answer at the beginning, which is not counted, is an answer like all others here."""
    return False


@pytest.fixture
async def seated() -> AsyncIterator[FakeEngine]:
    """Two seats; alone an answer takes about 0.25 seconds."""
    async with FakeEngine(seats=2, itl=0.02, ttft=0.05) as engine:
        engine.script, engine.is_title = WORDS, nothing
        yield engine


@pytest.fixture
async def quick() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as engine:
        engine.script, engine.is_title = WORDS, nothing
        yield engine


async def measure(engine: FakeEngine, plan: Plan) -> Measurement:
    async with EngineClient(engine.url) as client:
        measuring = Measuring(client, Target("fake", engine.models[0]), plan)
        await measuring.run()
        return measuring.measurement


async def test_the_total_stops_growing_where_the_seats_end_and_the_wait_begins(seated: FakeEngine) -> None:
    found = await measure(seated, Plan((1, 2, 6), turns=1))

    alone, full, crowded = found.levels
    assert found.ended is Ended.DONE
    assert [level.answered for level in found.levels] == [1, 2, 6]
    assert full.per_second > 1.3 * alone.per_second
    assert crowded.per_second < 1.5 * full.per_second
    assert full.first_p95 is not None and crowded.first_p95 is not None
    assert crowded.first_p95 > 2 * full.first_p95
    assert crowded.completion_tokens == 3 * full.completion_tokens == 6 * alone.completion_tokens
    assert "A benchmark with one request at a time would have said" in found.meaning


async def test_each_person_has_a_chat_of_several_turns_that_nobody_had_before(quick: FakeEngine) -> None:
    first = await measure(quick, Plan((1, 2), turns=3))
    chats = quick.requests[1:]
    again = await measure(quick, Plan((1,), turns=1))

    assert [len(asked.messages) for asked in chats[:3]] == [2, 4, 6]
    assert chats[1].messages[2] == {"role": "assistant", "content": "".join(WORDS)}
    assert {asked.body["max_tokens"] for asked in chats} == {128}
    assert len({asked.messages[1]["content"] for asked in chats}) == 3
    assert first.mark != again.mark
    assert first.levels[0].cached_tokens, "a later turn finds the earlier ones in the cache"
    assert again.levels[0].cached_tokens == 0, "a later run finds nothing"


async def test_failures_are_counted_in_words_and_the_others_go_on(quick: FakeEngine) -> None:
    quick.plan(("Hello.",), refusal(500, "CUDA error", "InternalServerError"))

    found = await measure(quick, Plan((1, 2), turns=2))

    assert found.ended is Ended.DONE
    assert found.levels[0].failures == {"The engine reported a fault of its own. (500: CUDA error)": 1}
    assert [(level.answered, level.failed) for level in found.levels] == [(1, 1), (4, 0)]


async def test_a_refusal_is_a_failure_and_no_long_wait_for_the_first_word(quick: FakeEngine) -> None:
    quick.plan(("Hello.",), Status(429, headers={"Retry-After": "1"}))

    found = await measure(quick, Plan((1,), turns=2))

    (level,) = found.levels
    assert (level.answered, level.failed, len(quick.requests)) == (1, 1, 3)
    assert level.first_p95 is not None and level.first_p95 < 1


async def test_an_engine_that_fails_at_once_is_told_and_asked_nothing_more(quick: FakeEngine) -> None:
    quick.script = Status(401, {"error": "Unauthorized"})

    found = await measure(quick, Plan((1, 2)))

    assert (found.ended, found.levels, len(quick.requests)) == (Ended.FAILED, (), 1)
    assert found.meaning.startswith("Nothing could be measured: The engine does not accept")


async def test_a_level_without_any_answer_is_the_last(quick: FakeEngine) -> None:
    broken = refusal(400, "no", "BadRequestError")
    quick.plan(("Hello.",), WORDS, broken, broken)

    found = await measure(quick, Plan((1, 2, 4), turns=1))

    assert found.ended is Ended.FAILED
    assert [(level.people, level.answered) for level in found.levels] == [(1, 1), (2, 0)]


async def test_it_ends_when_its_time_is_over_and_keeps_what_it_has(quick: FakeEngine) -> None:
    held = asyncio.Event()
    quick.plan(("Hello.",), WORDS, (*WORDS, held), ("Half ", held))

    found = await measure(quick, Plan((1, 2), turns=1, seconds=2))
    await quick.until(lambda engine: engine.running == 0)

    assert found.ended is Ended.TIME
    assert [level.people for level in found.levels] == [1]
    assert len(quick.aborted) == 2
    assert "The time was over" in found.meaning


async def test_it_begins_no_level_that_would_take_more_tokens_than_allowed(quick: FakeEngine) -> None:
    size = Plan((1, 2, 4), turns=1)

    found = await measure(quick, Plan((1, 2, 4), turns=1, tokens=3 * size.tokens_of_a_chat))

    assert found.ended is Ended.TOKENS
    assert [level.people for level in found.levels] == [1, 2]


async def test_cancelling_frees_the_engine_and_keeps_what_was_measured(quick: FakeEngine) -> None:
    held = asyncio.Event()
    quick.plan(("Hello.",), WORDS, ("One ", held), ("Two ", held))
    async with EngineClient(quick.url) as client:
        measuring = Measuring(client, Target("fake", "fake-8b"), Plan((1, 2, 4), turns=1))
        work = asyncio.create_task(measuring.run())
        await quick.until(lambda engine: engine.running == 2)

        measuring.end(Ended.CANCELLED)
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        await quick.until(lambda engine: engine.running == 0)

    assert len(quick.aborted) == 2
    assert measuring.measurement.ended is Ended.CANCELLED
    assert [level.people for level in measuring.measurement.levels] == [1]
    assert len(measuring.calls) == 4, "what was asked is counted, also where it was cut off"


async def test_an_engine_that_counts_nothing_is_estimated_and_thoughts_count_as_words(quick: FakeEngine) -> None:
    quick.script = (T("seven characters of text, and thirty-five"), END)
    uncounted = await measure(quick, Plan((1,), turns=1))
    quick.script = (Thought("Hm. "), Thought("Well. "), "Yes.")
    thinking = await measure(quick, Plan((1,), turns=1))

    assert uncounted.levels[0].estimated
    assert uncounted.levels[0].completion_tokens == round(41 / 3.5)
    assert thinking.thinks
    assert not thinking.levels[0].estimated

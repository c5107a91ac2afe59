import pytest

from backend.bench import plan, results
from backend.bench.chat import LONGEST_QUESTION, LONGEST_SYSTEM, Chat, characters_of
from backend.bench.results import Sample
from backend.core.errors import BadInput
from backend.engines.events import Usage
from tests.bench.support import level, measurement


def sample(asked: float = 0, *, wait: float = 1, took: float = 2, tokens: int = 21, **changed: object) -> Sample:
    first = asked + wait
    made = {
        "asked": asked,
        "ended": first + took,
        "first": first,
        "last": first + took,
        "characters": 70,
        "prompt_characters": 350,
        "usage": Usage(100, tokens, 40),
        "finished": True,
    }
    return Sample(**(made | changed))  # type: ignore[arg-type]


# What was measured


def test_figures_of_a_level_come_from_its_answers() -> None:
    found = results.level_of(2, [sample(0), sample(0, wait=3, took=1), sample(3), sample(4)])

    assert (found.people, found.answered, found.failed, found.unfinished) == (2, 4, 0, 0)
    assert found.seconds == 7
    assert (found.first_p50, found.first_p95) == (1, 2.7)
    assert (found.speed_p50, found.speed_p5) == (10, 10)  # twenty tokens after the first, in two seconds
    assert found.per_second == pytest.approx(4 * 21 / 7, abs=0.001)
    assert (found.prompt_tokens, found.cached_tokens, found.completion_tokens) == (400, 160, 84)
    assert not found.estimated


def test_without_a_count_tokens_are_estimated_and_marked() -> None:
    found = results.level_of(1, [sample(usage=None)])

    assert (found.prompt_tokens, found.completion_tokens, found.cached_tokens) == (100, 20, None)
    assert found.estimated


def test_what_failed_and_what_was_cut_off_is_no_answer() -> None:
    failed = sample(first=None, last=None, characters=0, usage=None, finished=False, failure="The engine is busy.")
    cut = sample(usage=None, finished=False)

    found = results.level_of(3, [sample(), failed, cut])

    assert (found.answered, found.unfinished, found.failures) == (1, 1, {"The engine is busy.": 1})
    assert found.first_p95 == 1  # of the whole answer alone
    assert found.completion_tokens == 21 + 20


def test_an_answer_in_one_piece_has_no_speed() -> None:
    assert sample(took=0).speed is None
    assert results.level_of(1, [sample(took=0)]).speed_p50 is None


def test_percentiles_lie_between_the_nearest_values() -> None:
    assert results.percentile([], 50) is None
    assert results.percentile([7], 95) == 7
    assert results.percentile([4, 1, 3, 2], 50) == 2.5
    assert results.percentile(list(range(101)), 95) == 95


def test_a_record_is_read_back_as_it_was() -> None:
    found = measurement(level(1), level(2, failures={"Busy.": 1}), thinks=True)

    assert results.from_json(found.as_json()) == found
    assert results.from_json(found.as_json()).meaning == found.meaning


# How large it is


def test_levels_double_up_to_the_most_people() -> None:
    assert plan.levels_up_to(1) == (1,)
    assert plan.levels_up_to(8) == (1, 2, 4, 8)
    assert plan.levels_up_to(11) == (1, 2, 4, 8, 11)


def test_a_size_out_of_bounds_is_named() -> None:
    with pytest.raises(BadInput) as wrong:
        plan.make(people=257, turns=0, answer_tokens=128, seconds=300)

    assert wrong.value.fields == {
        "people": "“People at once” is a number from 1 to 256.",
        "turns": "“Turns” is a number from 1 to 8.",
    }


def test_no_chat_is_longer_than_what_the_plan_reckons_with() -> None:
    for person in range(plan.MOST_PEOPLE):
        chat = Chat("0123456789ab", plan.MOST_PEOPLE, person)
        before = 0
        for turn in range(plan.MOST_TURNS):
            messages = chat.ask()
            if turn == 0:
                assert len(messages[0]["content"]) <= LONGEST_SYSTEM
            assert characters_of(messages) - before <= LONGEST_QUESTION + (LONGEST_SYSTEM if turn == 0 else 0)
            before = characters_of(messages)
            chat.hear("")


def test_every_chat_begins_differently_and_is_the_same_in_every_run_but_for_its_mark() -> None:
    first, second = Chat("aaaaaaaaaaaa", 2, 0).ask(), Chat("bbbbbbbbbbbb", 2, 0).ask()
    neighbour = Chat("aaaaaaaaaaaa", 2, 1).ask()

    assert [message["role"] for message in first] == ["system", "user"]
    assert first[0]["content"][:20] != second[0]["content"][:20]
    assert [str(message).replace("aaaaaaaaaaaa", "bbbbbbbbbbbb") for message in first] == [*map(str, second)]
    assert first[1]["content"][:30] != neighbour[1]["content"][:30]

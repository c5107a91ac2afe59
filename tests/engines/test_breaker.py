from contextlib import suppress
from uuid import UUID

import pytest

from backend.engines.breaker import Breakers
from backend.engines.events import EngineFailed, Failure

HERE, THERE = UUID(int=1), UUID(int=2)


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breakers(clock: Clock) -> Breakers:
    return Breakers(clock, spread=lambda: 1.0)


def fail(breakers: Breakers, times: int = 3, failure: Failure = Failure.DEAD, *, speaks: bool = False) -> None:
    for _ in range(times):
        with suppress(EngineFailed), breakers.answering(HERE):
            if speaks:
                breakers.spoke(HERE)
            raise EngineFailed(failure, "No.")


def succeed(breakers: Breakers) -> None:
    with breakers.answering(HERE):
        breakers.spoke(HERE)


def test_some_failures_in_a_row_open_it_and_only_it(breakers: Breakers) -> None:
    fail(breakers, 2)
    before = breakers.refuses(HERE)
    fail(breakers, 1)

    assert not before
    assert breakers.refuses(HERE)
    assert not breakers.refuses(THERE)


def test_an_answer_in_between_begins_the_count_anew(breakers: Breakers) -> None:
    fail(breakers, 2)
    succeed(breakers)
    fail(breakers, 2)

    assert not breakers.refuses(HERE)


def test_one_that_breaks_off_every_answer_in_the_middle_is_left_alone_longer_and_longer(
    breakers: Breakers, clock: Clock
) -> None:
    fail(breakers, 2, Failure.CUT, speaks=True)
    before = breakers.refuses(HERE)
    fail(breakers, 1, Failure.CUT, speaks=True)
    after = breakers.refuses(HERE)
    clock.seconds += 2
    fail(breakers, 1, Failure.CUT, speaks=True)
    clock.seconds += 3

    assert (before, after) == (False, True)
    assert breakers.refuses(HERE)


@pytest.mark.parametrize("failure", [Failure.OVERLOADED, Failure.BAD_REQUEST, Failure.OVERFLOW, Failure.EMPTY])
def test_what_says_nothing_about_the_engine_does_not_count(breakers: Breakers, failure: Failure) -> None:
    fail(breakers, 9, failure)

    assert not breakers.refuses(HERE)


def test_after_the_pause_a_single_answer_tries_and_closes_it(breakers: Breakers, clock: Clock) -> None:
    fail(breakers)
    clock.seconds += 1.9
    too_early = breakers.refuses(HERE)
    clock.seconds += 0.2

    assert too_early
    assert not breakers.refuses(HERE)
    with breakers.answering(HERE):
        assert breakers.refuses(HERE)  # one tries, the others wait for its first words
        breakers.spoke(HERE)
        assert not breakers.refuses(HERE)
    assert not breakers.refuses(HERE)


def test_a_try_that_its_reader_stopped_lets_another_try(breakers: Breakers, clock: Clock) -> None:
    fail(breakers)
    clock.seconds += 3

    with suppress(GeneratorExit), breakers.answering(HERE):
        raise GeneratorExit

    assert not breakers.refuses(HERE)
    fail(breakers, 1)
    assert breakers.refuses(HERE)  # it proved nothing


def test_the_end_of_an_answer_that_began_before_it_opened_lets_nobody_in(breakers: Breakers, clock: Clock) -> None:
    old = breakers.answering(HERE)
    old.__enter__()
    fail(breakers)
    clock.seconds += 3

    with breakers.answering(HERE):
        old.__exit__(GeneratorExit, GeneratorExit(), None)

        assert breakers.refuses(HERE)


def test_each_pause_is_twice_as_long_up_to_two_minutes(breakers: Breakers, clock: Clock) -> None:
    fail(breakers)
    pauses = []
    for _ in range(9):
        began = clock.seconds
        while breakers.refuses(HERE):
            clock.seconds += 0.5
        pauses.append(clock.seconds - began)
        fail(breakers, 1)

    assert pauses == [2, 4, 8, 16, 32, 64, 120, 120, 120]


def test_answers_that_began_before_it_opened_do_not_lengthen_the_pause(breakers: Breakers, clock: Clock) -> None:
    fail(breakers, 9)

    clock.seconds += 2

    assert not breakers.refuses(HERE)


def test_the_looking_disproves_only_that_an_engine_is_away(breakers: Breakers) -> None:
    """One whose models can be listed may still answer nobody."""
    fail(breakers, 3, Failure.UNREACHABLE)
    breakers.looked_at([HERE])
    reached = breakers.refuses(HERE)
    fail(breakers, 3, Failure.TIMEOUT)
    breakers.looked_at([HERE])

    assert not reached
    assert breakers.refuses(HERE)


def test_another_address_or_key_begins_anew(breakers: Breakers) -> None:
    fail(breakers)

    breakers.forget([HERE, THERE])

    assert not breakers.refuses(HERE)

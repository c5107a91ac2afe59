from uuid import UUID

import pytest

from backend.engines.breaker import Breakers
from backend.engines.events import Failure

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


def fail(breakers: Breakers, times: int = 3, failure: Failure = Failure.DEAD) -> None:
    for _ in range(times):
        breakers.begins(HERE)
        breakers.failed(HERE, failure)
        breakers.ends(HERE)


def test_some_failures_in_a_row_open_it_and_only_it(breakers: Breakers) -> None:
    fail(breakers, 2)
    before = breakers.refuses(HERE)
    fail(breakers, 1)

    assert not before
    assert breakers.refuses(HERE)
    assert not breakers.refuses(THERE)


def test_an_answer_in_between_begins_the_count_anew(breakers: Breakers) -> None:
    fail(breakers, 2)
    breakers.succeeded(HERE)
    fail(breakers, 2)

    assert not breakers.refuses(HERE)


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
    breakers.begins(HERE)
    assert breakers.refuses(HERE)  # one tries, the others wait for what comes of it
    breakers.succeeded(HERE)
    breakers.ends(HERE)
    assert not breakers.refuses(HERE)


def test_a_try_that_its_reader_stopped_lets_another_try(breakers: Breakers, clock: Clock) -> None:
    fail(breakers)
    clock.seconds += 3

    breakers.begins(HERE)
    breakers.ends(HERE)

    assert not breakers.refuses(HERE)


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

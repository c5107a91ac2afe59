"""What refusals of an engine teach about how many answers it takes."""

from math import inf

from backend.admission.allowance import Allowance


def test_without_a_refusal_it_is_what_was_set() -> None:
    allowance = Allowance()

    assert allowance.limit(None, 0) == inf
    assert allowance.limit(7, 0) == 7


def test_a_refusal_lowers_it_to_what_ran_and_answers_raise_it_step_by_step() -> None:
    allowance = Allowance()

    allowance.refused(3, 0, None)
    allowance.refused(5, 0, None)  # a late one teaches nothing better
    lowered = allowance.limit(8, 0)
    for _ in range(3):
        allowance.accepted()

    assert lowered == 3
    assert allowance.limit(8, 0) == 4
    for _ in range(3):
        allowance.accepted()
    assert allowance.limit(8, 0) == 4, "of four, four have to come"
    assert allowance.limit(2, 0) == 2


def test_quiet_doubles_it_until_it_is_forgotten() -> None:
    """An engine that refused the first question in the morning serves two hundred people at noon."""
    allowance = Allowance()
    allowance.refused(0, 0, None)

    assert [allowance.limit(None, now) for now in (5, 10, 20, 30)] == [1, 2, 4, 8]
    assert allowance.limit(12, 40) == 12
    assert allowance.limit(None, 1_000) == inf


def test_an_engine_that_asks_for_a_pause_gets_it_but_not_for_hours() -> None:
    allowance = Allowance()

    allowance.refused(4, 0, 3.0)
    assert [allowance.limit(8, now) for now in (0, 2.9, 3.0)] == [0, 0, 4]
    allowance.refused(0, 5, None)  # it does nothing, and refuses
    assert [allowance.limit(8, now) for now in (5.5, 6.0)] == [0, 1]
    allowance.refused(1, 10, 86_400)
    assert allowance.limit(8, 40) >= 1
    allowance.refused(0, 50, 0)  # "at once" is no answer to somebody who was just refused
    assert allowance.limit(8, 50.5) == 0

"""The judge of the crash test finds what it is there to find."""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from tests.chaos.book import Book, Cut, Row, Sent, Sight
from tests.fakes.engine import Asked

OWNER, KEY, QUESTION, ANSWER = (UUID(int=number) for number in range(4))
TEXT = "one two three"
WHOLE = f"You asked: {TEXT}"


class Case:
    """One question, cut and continued, and everything as it should be."""

    def __init__(self) -> None:
        self.book = Book()
        self.book.sent = [Sent(OWNER, KEY, TEXT, {ANSWER})]
        self.book.cuts = [Cut(ANSWER, 10.0, 1, "You asked: one")]
        self.book.stopped = {ANSWER: 20.0}
        for moment, attempt, words in ((7.0, 1, 3), (9.9, 1, 4), (12.0, 2, 5)):
            self.book.sights[ANSWER].append(Sight(moment, attempt, tuple(WHOLE.split()[:words])))
        self.question = Row(QUESTION, None, OWNER, KEY, TEXT, "done", 1, "")
        self.answer = Row(ANSWER, QUESTION, OWNER, None, WHOLE, "done", 2, "")
        self.more: list[Row] = []
        self.calls = [_call(), _call(goes_on_from="You asked: one")]
        self.usage = {ANSWER: 1}

    def judge(self) -> list[str]:
        return self.book.judge([self.question, self.answer, *self.more], self.calls, self.usage, age=2.0)


def _call(goes_on_from: str = "") -> Asked:
    messages = [{"role": "user", "content": TEXT}]
    if not goes_on_from:
        return Asked({}, b"", {"messages": messages})
    messages.append({"role": "assistant", "content": goes_on_from})
    return Asked({}, b"", {"messages": messages, "continue_final_message": True, "add_generation_prompt": False})


def _lose(case: Case) -> None:
    case.question, case.answer = (replace(row, owner_id=UUID(int=9)) for row in (case.question, case.answer))


def _double(case: Case) -> None:
    case.more = [replace(case.question, id=UUID(int=8))]


def _run_for_ever(case: Case) -> None:
    case.answer = replace(case.answer, status="streaming")


def _repeat(case: Case) -> None:
    case.answer = replace(case.answer, text=f"{WHOLE} three")


def _shorten(case: Case) -> None:
    case.answer = replace(case.answer, text="You asked: one two")


def _forget_the_prefix(case: Case) -> None:
    case.answer = replace(case.answer, status="interrupted", text="You asked:")


def _lose_what_was_shown(case: Case) -> None:
    case.book.cuts = [Cut(ANSWER, 10.0, 1, "You asked:")]


def _show_twice(case: Case) -> None:
    case.book.sights[ANSWER].append(Sight(13.0, 2, ("You", "asked:", "one", "one")))


def _skip(case: Case) -> None:
    case.book.sights[ANSWER].append(Sight(13.0, 2, ("You", "asked:", "two")))


def _call_too_often(case: Case) -> None:
    case.calls.append(_call())


def _go_on_from_elsewhere(case: Case) -> None:
    case.calls[1] = _call(goes_on_from="You asked: two")


def _stop_too_short(case: Case) -> None:
    case.book.cuts = []
    case.answer = replace(case.answer, status="stopped", text="You asked: one")


def _do_not_count(case: Case) -> None:
    case.usage = {}


def test_where_all_is_well_nothing_is_found() -> None:
    assert Case().judge() == []


@pytest.mark.parametrize(
    "spoil",
    [
        _lose,
        _double,
        _run_for_ever,
        _repeat,
        _shorten,
        _forget_the_prefix,
        _lose_what_was_shown,
        _show_twice,
        _skip,
        _call_too_often,
        _go_on_from_elsewhere,
        _stop_too_short,
        _do_not_count,
    ],
)
def test_what_goes_wrong_is_found(spoil: Callable[[Case], None]) -> None:
    case = Case()

    spoil(case)

    assert case.judge()

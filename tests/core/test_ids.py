"""Ids are UUIDv7 and only ever grow."""

import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from uuid import RFC_4122, UUID

import pytest

from backend.core import ids
from backend.core.ids import new_id


def test_an_id_is_a_uuid_of_version_7_that_holds_the_time() -> None:
    before = time.time_ns() // 1_000_000

    made = new_id()

    assert (made.version, made.variant) == (7, RFC_4122)
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000 + 1


def test_every_id_is_greater_than_the_one_before() -> None:
    """More of them than one millisecond has room for: the counter runs over into the next."""
    made = [new_id() for _ in range(10_000)]

    assert all(earlier < later for earlier, later in pairwise(made))
    assert [str(one) for one in made] == sorted(str(one) for one in made)
    assert {one.version for one in made} == {7}


@pytest.fixture
def restless_threads() -> Iterator[None]:
    """They take turns after each step, not after thousands of them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless_threads")
def test_ids_grow_across_threads() -> None:
    """Each thread sees its own ids grow, and no two threads get the same."""
    lists: list[list[UUID]] = [[] for _ in range(8)]
    start = threading.Barrier(len(lists))

    def make(into: list[UUID]) -> None:
        start.wait()
        into.extend(new_id() for _ in range(4_000))

    threads = [threading.Thread(target=make, args=(each,)) for each in lists]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(earlier < later for each in lists for earlier, later in pairwise(each))
    # Without their random end, which would hide that two threads were given the same moment.
    assert len({one.int >> 62 for each in lists for one in each}) == 32_000


def test_ids_grow_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a correction by NTP."""
    monkeypatch.setattr(ids, "_clock", ids._Clock())
    moments: Iterator[int] = iter([5_000_000_000_000, 4_000_000_000_000, 4_000_001_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(moments))

    made = [new_id() for _ in range(3)]

    assert made == sorted(made)
    assert {one.int >> 80 for one in made} == {5_000_000}

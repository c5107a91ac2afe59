"""Work for one process at a time."""

import asyncio

import psycopg
import pytest

from backend.core.db import Sessions
from backend.core.locks import hold, key_of, only_one, only_one_for_long
from tests.conftest import plain


async def test_one_works_and_the_others_are_told_at_once(db: Sessions) -> None:
    async with only_one(db, "cleaning") as first, only_one(db, "cleaning") as second, only_one(db, "other") as third:
        assert [each is not None for each in (first, second, third)] == [True, False, True]

    async with only_one(db, "cleaning") as later:
        assert later is not None


async def test_who_fails_at_it_leaves_it_to_others(db: Sessions) -> None:
    async def fail() -> None:
        async with only_one(db, "cleaning"):
            await asyncio.sleep(0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()

    async with only_one(db, "cleaning") as mine:
        assert mine is not None


async def test_a_long_one_is_held_by_a_connection_and_no_transaction(db: Sessions, database: str) -> None:
    async with only_one_for_long(db, "bench") as first, only_one_for_long(db, "bench") as second:
        assert (first, second) == (True, False)
        assert [state for state, _pid in holders(database)] == ["idle"]

    async with asyncio.timeout(5):  # the server needs a moment to see that its client has gone
        while holders(database):
            await asyncio.sleep(0.005)
    async with only_one_for_long(db, "bench") as later:
        assert later


async def test_a_long_one_ends_with_its_connection(db: Sessions, database: str) -> None:
    async with only_one_for_long(db, "bench") as first:
        ((_state, pid),) = holders(database)
        with psycopg.connect(plain(database), autocommit=True) as administrator:
            administrator.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

        async with only_one_for_long(db, "bench") as second:
            assert (first, second) == (True, True)


async def test_whoever_waits_comes_next(db: Sessions) -> None:
    order: list[str] = []

    async def second() -> None:
        async with db.begin() as session:
            await hold(session, "engines")
            order.append("second")

    async with db.begin() as session:
        await hold(session, "engines")
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0.05)
        order.append("first")
    await waiting

    assert order == ["first", "second"]


def holders(database: str) -> list[tuple[str, int]]:
    """State and number of whoever holds the lock of a measurement."""
    with psycopg.connect(plain(database)) as connection:
        return connection.execute(
            "SELECT a.state, a.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE locktype = 'advisory' "
            "AND granted AND ((classid::bigint << 32) | objid::bigint) = %s",
            [key_of("bench")],
        ).fetchall()

"""The short way to the database, when the database goes away and comes back."""

import asyncio
import time
from uuid import uuid4

import psycopg
import pytest

from backend.core.db import DatabaseGone
from backend.core.direct import Direct, Statement
from backend.embedded.postgres import EmbeddedPostgres


async def test_who_waits_for_a_connection_has_it_as_soon_as_the_database_is_back(
    postgres: EmbeddedPostgres, database: str
) -> None:
    """DB-03: not only whoever asks next."""
    async with Direct(database, connections=2) as direct:
        await direct.as_worker("SELECT 1", {})
        await asyncio.to_thread(postgres.stop)
        for _each_connection in range(2):
            with pytest.raises(DatabaseGone):
                await direct.as_worker("SELECT 1", {})
        waiting = asyncio.create_task(direct.as_worker("SELECT 2", {}))
        await asyncio.sleep(0.6)

        postgres.begin()
        await asyncio.to_thread(postgres.wait_until_ready)
        back = time.monotonic()
        rows = await waiting

    assert rows[0][0] == 2
    assert time.monotonic() - back < 1.5


async def test_a_statement_that_is_refused_leaves_the_connection_fit_for_the_next(database: str) -> None:
    """Of several in one message the later ones are skipped, although they were to be prepared with it."""
    nobody = uuid4()
    twice = ("INSERT INTO settings (name, value, updated_at) VALUES (%(name)s, '1', now())", {"name": "twice"})
    after = ("SELECT %(name)s::text AS name", {"name": "after"})
    async with Direct(database, connections=1) as direct:
        await direct.as_person(nobody, twice, after)
        for _number in range(6):
            with pytest.raises(psycopg.errors.UniqueViolation):
                await direct.as_person(nobody, twice, after)
            ((row,),) = await direct.as_person(nobody, after)
            assert row.name == "after"


async def test_who_leaves_in_the_middle_spoils_nothing_for_the_next(database: str) -> None:
    def two(seconds: float) -> tuple[Statement, Statement]:
        return ("SELECT pg_sleep(%s)", [seconds]), ("SELECT %s::int AS number", [7])

    async with Direct(database, connections=1) as direct:
        await direct.as_person(uuid4(), *two(0))
        leaving = asyncio.create_task(direct.as_person(uuid4(), *two(5)))
        await asyncio.sleep(0.2)
        leaving.cancel()
        await asyncio.wait([leaving])

        again = [await direct.as_person(uuid4(), *two(0)) for _round in range(3)]

    assert leaving.cancelled()
    assert [numbers[0].number for _slept, numbers in again] == [7] * 3


async def test_in_a_crowd_one_waits_for_a_connection_a_long_time_and_not_for_ever(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Direct(database, connections=1) as direct:
        slow = asyncio.create_task(direct.as_worker("SELECT pg_sleep(0.5)", {}))
        await asyncio.sleep(0.1)
        ((waited,),) = await direct.as_worker("SELECT 1", {})

        monkeypatch.setattr("backend.core.direct.LONGEST_WAIT", 0.1)
        slower = asyncio.create_task(direct.as_worker("SELECT pg_sleep(1)", {}))
        await asyncio.sleep(0.1)
        with pytest.raises(DatabaseGone):
            await direct.as_worker("SELECT 1", {})
        await asyncio.gather(slow, slower)

    assert waited == 1

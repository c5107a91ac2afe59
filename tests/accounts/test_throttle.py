"""Guessing is slow, and slows down nobody but who guesses (ACC-05)."""

import asyncio
from datetime import datetime, timedelta

import pytest
from sqlalchemy import select, update

from backend.accounts import throttle
from backend.accounts.models import SignInThrottle
from backend.accounts.throttle import LONGEST_WAIT, PER_DAY, PER_HOUR, PER_MINUTE, network_of
from backend.core.clock import now
from backend.core.db import Sessions

HERE, ELSEWHERE = "192.0.2.1", "198.51.100.7"


async def test_five_tries_a_minute_are_free_and_the_next_has_to_wait(db: Sessions) -> None:
    admitted = [await _try(db) for _ in range(PER_MINUTE + 2)]
    await _pass(db, timedelta(minutes=1))

    assert admitted == [True] * PER_MINUTE + [False] * 2
    assert await _try(db)


async def test_a_hundred_tries_at_the_same_moment_are_counted_as_a_hundred(db: Sessions) -> None:
    admitted = await asyncio.gather(*[_try(db) for _ in range(100)])

    assert sum(admitted) == PER_MINUTE


async def test_twenty_tries_an_hour_and_then_a_quarter_of_an_hour_between_two(db: Sessions) -> None:
    for _ in range(PER_HOUR):
        assert await _try(db)
        await _pass(db, timedelta(seconds=20))

    assert not await _try(db)
    await _pass(db, LONGEST_WAIT)
    assert await _try(db), "nobody is ever locked out for longer"
    assert not await _try(db)


async def test_who_guesses_elsewhere_slows_down_nobody_here(db: Sessions) -> None:
    for _ in range(PER_HOUR):
        await _try(db, address=ELSEWHERE)

    assert not await _try(db, address=ELSEWHERE)
    assert await _try(db, address=HERE)


async def test_guessing_from_many_networks_slows_down_all_where_the_person_never_was(db: Sessions) -> None:
    async with db.begin() as session:
        await throttle.forgive(session, "alice@corp.example", HERE)  # has signed in here
    for number in range(PER_DAY):
        assert await _try(db, address=f"203.0.113.{number}")

    waits = []
    for number in range(11):
        assert not await _try(db, address=f"10.9.0.{number}")
        waits.append((await _due(db) - now()).total_seconds())
        await _pass(db, timedelta(seconds=waits[-1] + 1))
        assert await _try(db, address=f"10.9.0.{number}")

    assert [round(wait, -1 if wait > 500 else 0) for wait in waits] == pytest.approx(
        [2, 4, 8, 16, 32, 64, 128, 256, 510, 900, 900], abs=3
    )
    assert await _try(db, address=HERE), "where the person signs in nobody notices"


async def test_a_right_password_forgets_the_tries_from_there_and_only_those(db: Sessions) -> None:
    for address in (HERE, ELSEWHERE):
        for _ in range(PER_MINUTE):
            await _try(db, address=address)

    async with db.begin() as session:
        await throttle.forgive(session, " ALICE@corp.example", HERE)

    assert await _try(db, address=HERE)
    assert not await _try(db, address=ELSEWHERE)


@pytest.mark.parametrize("spelling", ["ALICE@corp.example", " alice@corp.example ", "alice\0@corp.example"])
async def test_another_spelling_of_the_address_is_no_way_round(db: Sessions, spelling: str) -> None:
    for _ in range(PER_MINUTE):
        await _try(db)

    assert not await _try(db, spelling)


async def test_other_accounts_are_not_slowed_down(db: Sessions) -> None:
    for _ in range(PER_MINUTE):
        await _try(db)

    assert await _try(db, "bob@corp.example")


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::2", "2001:db8:1:2::/64"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_a_network_is_an_address_or_what_a_household_is_given(address: str, network: str) -> None:
    assert network_of(address) == network


async def test_the_table_holds_no_address_and_keeps_only_known_places(db: Sessions) -> None:
    await _try(db, "old@corp.example")
    async with db.begin() as session:
        await throttle.forgive(session, "kept@corp.example", HERE)
    await _pass(db, timedelta(hours=25))
    await _try(db)

    async with db.begin() as session:
        await throttle.delete_old(session)
        left = list(await session.scalars(select(SignInThrottle)))

    assert len(left) == 3  # two of today, and where somebody signs in
    assert not [row for row in left for value in (row.account, row.network) if b"corp" in value or b"192" in value]


async def _try(db: Sessions, email: str = "alice@corp.example", address: str = HERE) -> bool:
    async with db.begin() as session:
        return await throttle.admit(session, email, address)


async def _due(db: Sessions) -> datetime:
    async with db.begin() as session:
        row = (await session.scalars(select(SignInThrottle).where(SignInThrottle.network == b""))).one()
    return throttle._wait_everywhere(row, now())


async def _pass(db: Sessions, time: timedelta) -> None:
    """What was tried was tried longer ago."""
    async with db.begin() as session:
        for row in await session.scalars(select(SignInThrottle)):
            row.recent = [each - time for each in row.recent]
        await session.flush()
        await session.execute(update(SignInThrottle).values(last_try_at=SignInThrottle.last_try_at - time))

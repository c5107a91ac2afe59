import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from backend.accounts import throttle
from backend.accounts.models import SignInThrottle
from backend.accounts.throttle import FREE_TRIES
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.security import digest


async def test_the_first_tries_are_free_and_the_next_has_to_wait(db: Sessions) -> None:
    admitted = [await _try(db) for _ in range(FREE_TRIES + 2)]

    assert admitted == [True] * FREE_TRIES + [False] * 2


async def test_a_hundred_tries_at_the_same_moment_are_counted_as_a_hundred(db: Sessions) -> None:
    admitted = await asyncio.gather(*[_try(db) for _ in range(100)])

    assert sum(admitted) == FREE_TRIES


async def test_each_further_try_waits_twice_as_long_and_never_longer_than_a_quarter_of_an_hour(db: Sessions) -> None:
    for _ in range(FREE_TRIES):
        await _try(db)

    waits = []
    for _ in range(12):
        waits.append(await _wait(db))
        await _let_the_wait_pass(db)
        assert await _try(db)

    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900]


async def test_somebody_who_goes_on_for_months_still_waits_a_quarter_of_an_hour(db: Sessions) -> None:
    await _try(db)
    async with db.begin() as session:
        await session.execute(update(SignInThrottle).values(failures=1_000_000))

    admitted = await _try(db)

    assert admitted
    assert await _wait(db) == 900


async def test_a_refused_try_does_not_make_the_wait_longer(db: Sessions) -> None:
    for _ in range(FREE_TRIES):
        await _try(db)
    before = await _row(db)

    await _try(db)

    assert (await _row(db)).blocked_until == before.blocked_until


async def test_a_day_without_a_try_is_a_fresh_start(db: Sessions) -> None:
    for _ in range(FREE_TRIES):
        await _try(db)
    async with db.begin() as session:
        long_ago = now() - timedelta(hours=25)
        await session.execute(update(SignInThrottle).values(last_failure_at=long_ago, blocked_until=long_ago))

    await _try(db)

    assert (await _row(db)).failures == 1


async def test_forgiving_ends_the_wait(db: Sessions) -> None:
    for _ in range(FREE_TRIES):
        await _try(db)

    async with db.begin() as session:
        await throttle.forgive(session, " ALICE@corp.example")

    assert await _try(db)


@pytest.mark.parametrize("spelling", ["ALICE@corp.example", " alice@corp.example ", "alice\0@corp.example"])
async def test_another_spelling_of_the_address_is_no_way_round(db: Sessions, spelling: str) -> None:
    for _ in range(FREE_TRIES):
        await _try(db)

    assert not await _try(db, spelling)


async def test_other_accounts_are_not_slowed_down(db: Sessions) -> None:
    for _ in range(FREE_TRIES):
        await _try(db)

    assert await _try(db, "bob@corp.example")


async def test_the_table_holds_no_address_and_forgets_what_is_old(db: Sessions) -> None:
    await _try(db, "old@corp.example")
    async with db.begin() as session:
        await session.execute(update(SignInThrottle).values(last_failure_at=now() - timedelta(hours=25)))
    await _try(db)

    async with db.begin() as session:
        await throttle.delete_old(session)
        left = list(await session.scalars(select(SignInThrottle.account)))

    assert left == [digest("alice@corp.example")]


async def _try(db: Sessions, email: str = "alice@corp.example") -> bool:
    async with db.begin() as session:
        return await throttle.admit(session, email)


async def _row(db: Sessions) -> SignInThrottle:
    async with db.begin() as session:
        return (await session.scalars(select(SignInThrottle))).one()


async def _wait(db: Sessions) -> int:
    row = await _row(db)
    assert row.blocked_until is not None
    return round((row.blocked_until - row.last_failure_at).total_seconds())


async def _let_the_wait_pass(db: Sessions) -> None:
    async with db.begin() as session:
        await session.execute(update(SignInThrottle).values(blocked_until=func.now() - timedelta(seconds=1)))

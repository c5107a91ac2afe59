"""However many act at the same moment: one first administrator, and always one that is left (ACC-01, ACC-03)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from sqlalchemy import delete, func, select, update

from backend.accounts import queries, service
from backend.accounts.models import OneTimeLink, Role, User
from backend.core.db import Sessions, connect
from backend.core.errors import Conflict
from backend.ops import people
from tests.accounts.conftest import reread
from tests.conftest import AddPerson

pytestmark = pytest.mark.long

ROUNDS = 50


@pytest.fixture
async def crowd(database: str) -> AsyncIterator[Sessions]:
    """Enough connections for all of them to be in a transaction at once."""
    engine = connect(database, connections=10)
    yield Sessions(engine)
    await engine.dispose()


async def test_of_ten_who_set_up_at_once_one_becomes_the_administrator(crowd: Sessions) -> None:
    for _round in range(ROUNDS):
        barrier = asyncio.Barrier(10)

        outcomes = await asyncio.gather(*[_set_up(crowd, barrier, number) for number in range(10)])

        assert sum(outcomes) == 1
        async with crowd.begin() as session:
            assert await session.scalar(select(func.count()).where(User.role == Role.ADMIN)) == 1
            await session.execute(delete(User))


Change = Callable[[Sessions, str, User], Awaitable[object]]


async def _demote(db: Sessions, _url: str, person: User) -> None:
    async with db.begin() as session:
        await service.change_role(session, await service.find_person(session, person.id), Role.MEMBER)


async def _disable(db: Sessions, _url: str, person: User) -> None:
    async with db.begin() as session:
        await service.disable(session, await service.find_person(session, person.id))


async def _demote_on_the_host(_db: Sessions, url: str, person: User) -> None:
    await people.change_role(url, person.email, Role.MEMBER)


async def _disable_on_the_host(_db: Sessions, url: str, person: User) -> None:
    await people.disable(url, person.email)


@pytest.mark.parametrize(
    ("one", "other", "rounds"),
    [
        (_demote, _demote, ROUNDS),
        (_demote, _disable, ROUNDS),
        (_disable, _disable, ROUNDS),
        (_demote_on_the_host, _disable, 10),
        (_disable_on_the_host, _demote_on_the_host, 10),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_two_administrators_who_take_each_others_rights_leave_one(
    crowd: Sessions, database: str, add_person: AddPerson, one: Change, other: Change, rounds: int
) -> None:
    pair = [await add_person(name, Role.ADMIN) for name in ("Carol Admin", "Dora Admin")]
    for _round in range(rounds):
        barrier = asyncio.Barrier(2)

        async def act(change: Change, person: User, barrier: asyncio.Barrier = barrier) -> bool:
            await barrier.wait()
            try:
                await change(crowd, database, person)
            except Conflict:
                return False
            return True

        done = await asyncio.gather(act(one, pair[1]), act(other, pair[0]))

        assert sorted(done) == [False, True]
        async with crowd.begin() as session:
            assert len(list(await session.scalars(queries.active_admins()))) == 1
            await session.execute(update(User).values(role=Role.ADMIN, disabled_at=None))
            await session.execute(delete(OneTimeLink))
    assert (await reread(crowd, pair[0])).is_admin


async def _set_up(db: Sessions, barrier: asyncio.Barrier, number: int) -> bool:
    await barrier.wait()
    try:
        async with db.begin() as session:
            await service.make_first_admin(session, name="Admin", email=f"a{number}@corp.example", password_hash="hash")
    except Conflict:
        return False
    return True

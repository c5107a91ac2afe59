"""API keys: made once, found by their digest, limited in number, revoked for good."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import update

from backend.accounts import service as accounts
from backend.accounts.models import User
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.errors import BadInput, Conflict, NotFound
from backend.core.security import digest
from backend.keys import queries, service
from backend.keys.models import ApiKey
from backend.keys.service import MOST, PREFIX, Made


async def make(db: Sessions, person: User, name: str = "Notebook", lifetime: timedelta | None = None) -> Made:
    async with db.as_person(person.id) as session:
        return await service.make(session, person.id, name, lifetime)


async def find(db: Sessions, secret: str) -> ApiKey | None:
    async with db.as_worker() as session:
        return await service.find(session, secret)


async def test_a_key_is_found_by_its_secret_of_which_only_a_digest_is_kept(db: Sessions, alice: User) -> None:
    made = await make(db, alice, "  My \n notebook ")

    found = await find(db, made.secret)

    assert found is not None
    assert (found.owner_id, found.name, found.digest) == (alice.id, "My notebook", digest(made.secret))
    assert made.secret.startswith(PREFIX)
    assert service.is_well_formed(made.secret)
    assert made.secret.endswith(found.hint)
    assert made.secret not in str(vars(found))
    assert await find(db, made.secret[:-1] + "!") is None


async def test_its_use_is_noted_about_once_a_minute(db: Sessions, alice: User) -> None:
    made = await make(db, alice)

    seen = []
    for ago in (None, timedelta(seconds=50), timedelta(seconds=61)):
        if ago:
            async with db.as_worker() as session:
                await session.execute(update(ApiKey).values(last_used_at=now() - ago))
        await find(db, made.secret)
        async with db.as_person(alice.id) as session:
            key = (await session.scalars(queries.kept_by(alice.id))).one()
            assert key.last_used_at is not None
            seen.append(now() - key.last_used_at < timedelta(seconds=30))

    assert seen == [True, False, True]


@pytest.mark.parametrize("end", ["revoked", "expired", "disabled"])
async def test_what_has_ended_is_not_found(db: Sessions, alice: User, end: str) -> None:
    made = await make(db, alice, lifetime=timedelta(seconds=-1) if end == "expired" else timedelta(days=30))
    async with db.as_person(alice.id) as session:
        if end == "revoked":
            await service.revoke(session, alice.id, made.key.id)
        if end == "disabled":
            await accounts.disable(session, await accounts.find_person(session, alice.id))

    assert await find(db, made.secret) is None
    async with db.as_worker() as session:
        assert await service.still_working(session, [made.key.id]) == set()


async def test_a_stranger_neither_sees_nor_revokes_it(db: Sessions, alice: User, bob: User) -> None:
    made = await make(db, alice)

    async with db.as_person(bob.id) as session:
        assert (await session.scalars(queries.kept_by(bob.id))).all() == []
        assert (await session.scalars(queries.kept_by(alice.id))).all() == []  # row-level security
        with pytest.raises(NotFound):
            await service.revoke(session, bob.id, made.key.id)

    assert await find(db, made.secret) is not None


async def test_a_person_has_so_many_and_no_more_also_at_the_same_moment(db: Sessions, alice: User) -> None:
    for _ in range(MOST - 1):
        await make(db, alice)

    results = await asyncio.gather(*(make(db, alice) for _ in range(3)), return_exceptions=True)

    assert sorted(type(result).__name__ for result in results) == ["Conflict", "Conflict", "Made"]
    async with db.as_person(alice.id) as session:
        keys = (await session.scalars(queries.kept_by(alice.id))).all()
        await service.revoke(session, alice.id, keys[0].id)
    assert len(keys) == MOST
    await make(db, alice)
    with pytest.raises(Conflict):
        await make(db, alice)


async def test_a_key_needs_a_name(db: Sessions, alice: User) -> None:
    with pytest.raises(BadInput) as refused:
        await make(db, alice, " \0 ")

    assert refused.value.fields.keys() == {"name"}


@pytest.mark.parametrize("secret", ["", PREFIX, PREFIX + "x" * 42, PREFIX + "x" * 44, "sk-" + "x" * 43, "\ud800"])
def test_what_cannot_be_a_key_is_known_without_a_question(secret: str) -> None:
    assert not service.is_well_formed(secret)

from datetime import timedelta

import pytest
from sqlalchemy import select, update

from backend.accounts import service, sessions
from backend.accounts.models import LoginSession, User
from backend.accounts.sessions import Browser
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.security import digest
from tests.accounts.conftest import LIFETIME, reread, sessions_of
from tests.conftest import sign_in


async def test_a_session_is_found_by_its_token_with_its_person(db: Sessions, alice: User) -> None:
    token = await sign_in(db, alice)

    found = await _find(db, token)

    assert found is not None
    assert found.user.email == alice.email


async def test_the_table_holds_only_a_digest_of_the_token(db: Sessions, alice: User) -> None:
    token = await sign_in(db, alice)

    async with db.begin() as session:
        row = (await session.scalars(select(LoginSession))).one()

    assert row.token_digest == digest(token)
    assert len(token) >= 43


@pytest.mark.parametrize("token", ["", "nonsense", "\ud800", "x\0", "x" * 100_000])
async def test_any_other_token_is_nobody(db: Sessions, alice: User, token: str) -> None:
    await sign_in(db, alice)

    assert await _find(db, token) is None


async def test_a_browser_that_idles_too_long_is_signed_out(db: Sessions, alice: User) -> None:
    token = await sign_in(db, alice)
    await _set_back(db, last_seen_at=now() - LIFETIME.idle)

    assert await _find(db, token) is None


async def test_one_that_is_used_now_and_then_stays_signed_in(db: Sessions, alice: User) -> None:
    token = await sign_in(db, alice)
    await _set_back(db, last_seen_at=now() - LIFETIME.idle + timedelta(minutes=1))

    first = await _find(db, token)
    async with db.begin() as session:
        row = (await session.scalars(select(LoginSession))).one()

    assert first is not None
    assert now() - row.last_seen_at < timedelta(minutes=1)
    assert now() - ((await reread(db, alice)).last_seen_at or row.created_at) < timedelta(minutes=1)


async def test_a_page_a_second_does_not_write_a_row_a_second(db: Sessions, alice: User) -> None:
    token = await sign_in(db, alice)
    a_moment_ago = now() - timedelta(seconds=30)
    await _set_back(db, last_seen_at=a_moment_ago)

    await _find(db, token)

    async with db.begin() as session:
        assert (await session.scalars(select(LoginSession.last_seen_at))).one() == a_moment_ago


async def test_every_session_ends_after_some_days_however_busy(db: Sessions, alice: User) -> None:
    token = await sign_in(db, alice)
    await _set_back(db, expires_at=now())

    assert await _find(db, token) is None


async def test_a_session_of_a_disabled_person_is_nobody_even_if_its_row_was_left(db: Sessions, alice: User) -> None:
    token = await sign_in(db, alice)
    async with db.begin() as session:
        await session.execute(update(User).values(disabled_at=now()))

    assert await _find(db, token) is None


async def test_closing_a_session_leaves_the_others(db: Sessions, alice: User) -> None:
    one, other = await sign_in(db, alice), await sign_in(db, alice)

    async with db.begin() as session:
        await sessions.close(session, one)

    assert await _find(db, one) is None
    assert await _find(db, other) is not None


async def test_closing_all_of_one_person_leaves_other_people(db: Sessions, alice: User, bob: User) -> None:
    for _ in range(2):
        await sign_in(db, alice)
    await sign_in(db, bob)

    async with db.begin() as session:
        await sessions.close_all_of(session, alice.id)

    assert (await sessions_of(db, alice), await sessions_of(db, bob)) == (0, 1)


async def test_a_new_session_takes_the_place_of_the_old_one(db: Sessions, alice: User, bob: User) -> None:
    old = await sign_in(db, bob)

    async with db.begin() as session:
        new = await sessions.open_instead(session, alice, Browser("", "", None), LIFETIME, old)

    assert await _find(db, old) is None
    assert await _find(db, new) is not None


async def test_long_descriptions_of_a_browser_are_cut(db: Sessions, alice: User) -> None:
    async with db.begin() as session:
        sessions.open_for(session, alice, Browser("a" * 500, "b" * 5000, None), LIFETIME)

    async with db.begin() as session:
        row = (await session.scalars(select(LoginSession))).one()

    assert (len(row.address), len(row.user_agent)) == (64, 300)


async def test_what_ended_is_cleared_away_and_what_lives_is_kept(db: Sessions, alice: User) -> None:
    await sign_in(db, alice)
    await _set_back(db, expires_at=now() - timedelta(days=2))
    kept = await sign_in(db, alice)

    async with db.begin() as session:
        await sessions.delete_ended(session, now() - timedelta(days=1))

    assert await sessions_of(db, alice) == 1
    assert await _find(db, kept) is not None


async def test_signing_in_is_being_seen(db: Sessions, alice: User) -> None:
    async with db.begin() as session:
        person = await service.find_person(session, alice.id)
        sessions.open_for(session, person, Browser("", "", None), LIFETIME)

    assert (await reread(db, alice)).last_seen_at is not None


async def _find(db: Sessions, token: str) -> LoginSession | None:
    async with db.begin() as session:
        return await sessions.find(session, token, LIFETIME)


async def _set_back(db: Sessions, **columns: object) -> None:
    async with db.begin() as session:
        await session.execute(update(LoginSession).values(**columns))

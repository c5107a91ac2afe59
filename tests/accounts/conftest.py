"""A browser at the door, without the web."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import func, select

from backend.accounts.entrance import Arrival
from backend.accounts.models import LoginSession, Purpose, User
from backend.accounts.passwords import Passwords
from backend.accounts.service import make_link
from backend.accounts.sessions import Browser, Lifetime
from backend.core.db import Sessions
from backend.core.security import Sealer
from tests.site import CHEAP_PASSWORDS

SEALER = Sealer(["0123456789abcdef0123456789abcdef"], "second factors")
LIFETIME = Lifetime(idle=timedelta(hours=12), absolute=timedelta(days=7))

Arrive = Callable[..., Arrival]


@pytest.fixture
def arrive(db: Sessions) -> Arrive:
    """`arrive()`: a browser nobody knows; `arrive(token)`: one with a session."""
    hasher = Passwords(**CHEAP_PASSWORDS)

    def one(old_token: str | None = None, *, passwords: Passwords = hasher) -> Arrival:
        return Arrival(db, passwords, LIFETIME, Browser("10.0.0.7", "test", "Europe/Berlin"), old_token, SEALER)

    return one


async def link_for(db: Sessions, purpose: Purpose, person: User | None = None) -> str:
    async with db.begin() as session:
        return await make_link(session, purpose, person)


async def sessions_of(db: Sessions, person: User) -> int:
    async with db.begin() as session:
        count = await session.scalar(select(func.count()).where(LoginSession.user_id == person.id))
    return count or 0


async def reread(db: Sessions, person: User) -> User:
    async with db.begin() as session:
        return await session.get_one(User, person.id)

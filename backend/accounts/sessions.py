"""Signed-in browsers: an opaque token in the cookie, its digest in the table."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts import queries
from backend.accounts.models import LoginSession, User
from backend.core.clock import now
from backend.core.security import digest, new_token

_TOUCH_EVERY = timedelta(minutes=1)  # last_seen_at is written at most this often


@dataclass(frozen=True)
class Lifetime:
    """How long a browser stays signed in without a click, and in all."""

    idle: timedelta
    absolute: timedelta


@dataclass(frozen=True)
class Browser:
    """What a sign-in tells us about where it came from."""

    address: str
    user_agent: str
    time_zone: str | None


def open_for(session: AsyncSession, user: User, browser: Browser, lifetime: Lifetime) -> str:
    """Sign a browser in; the returned token is the only copy."""
    token = new_token()
    moment = now()
    user.last_seen_at = moment
    session.add(
        LoginSession(
            user_id=user.id,
            token_digest=digest(token),
            last_seen_at=moment,
            expires_at=moment + lifetime.absolute,
            time_zone=browser.time_zone,
            address=browser.address[:64],
            user_agent=browser.user_agent[:300],
        )
    )
    return token


async def open_instead(
    session: AsyncSession, user: User, browser: Browser, lifetime: Lifetime, old_token: str | None
) -> str:
    """A new session in place of the browser's old one: an id that was known before a sign-in is worth nothing after."""
    if old_token:
        await close(session, old_token)
    return open_for(session, user, browser, lifetime)


async def find(session: AsyncSession, token: str, lifetime: Lifetime) -> LoginSession | None:
    """The session of this token, with its person; None when it ended, idled out or never was."""
    moment = now()
    found = await session.scalar(queries.live_session(digest(token), moment))
    if found is None or found.last_seen_at <= moment - lifetime.idle:
        return None
    if found.last_seen_at <= moment - _TOUCH_EVERY:
        found.last_seen_at = moment
        found.user.last_seen_at = moment
    return found


async def close(session: AsyncSession, token: str) -> None:
    await session.execute(delete(LoginSession).where(LoginSession.token_digest == digest(token)))


async def close_all_of(session: AsyncSession, user_id: UUID) -> None:
    await session.execute(delete(LoginSession).where(LoginSession.user_id == user_id))


async def delete_ended(session: AsyncSession, before: datetime) -> None:
    await session.execute(delete(LoginSession).where(LoginSession.expires_at < before))

"""Signed-in browsers: an opaque token in the cookie, its digest in the table.

Every process remembers for some seconds whom it has looked up (`web/logins.py`). So whatever ends a session or changes
what is remembered says so on the bus, in the same transaction: here, and nowhere else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts import queries
from backend.accounts.models import LoginSession, User
from backend.core.bus import notify
from backend.core.clock import now
from backend.core.security import digest, new_token

TOPIC = "sessions"  # {"user_id": …, "ended": whether they were signed out somewhere}

FRESH_FOR = timedelta(minutes=15)  # after a sign-in dangerous pages do not ask for another one

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
            authenticated_at=moment,
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


async def close(session: AsyncSession, token: str) -> UUID | None:
    """Whose it was, if there was one."""
    closed = delete(LoginSession).where(LoginSession.token_digest == digest(token)).returning(LoginSession.user_id)
    user_id = await session.scalar(closed)
    if user_id is not None:
        await _announce(session, user_id, ended=True)
    return user_id


async def close_all_of(session: AsyncSession, user_id: UUID, *, but: UUID | None = None) -> int:
    """How many there were; `but` is one that stays."""
    ended = delete(LoginSession).where(LoginSession.user_id == user_id).returning(LoginSession.id)
    count = len(list(await session.scalars(ended.where(LoginSession.id != but) if but else ended)))
    await _announce(session, user_id, ended=True)
    return count


async def close_one_of(session: AsyncSession, user_id: UUID, session_id: UUID) -> bool:
    """False where there is none of theirs with this id."""
    one = delete(LoginSession).where(LoginSession.user_id == user_id, LoginSession.id == session_id)
    ended = await session.scalar(one.returning(LoginSession.id))
    if ended is not None:
        await _announce(session, user_id, ended=True)
    return ended is not None


async def open_of(session: AsyncSession, user_id: UUID, lifetime: Lifetime) -> list[LoginSession]:
    """The browsers in which they are signed in, the one used last first."""
    moment = now()
    live = select(LoginSession).where(
        LoginSession.user_id == user_id,
        LoginSession.expires_at > moment,
        LoginSession.last_seen_at > moment - lifetime.idle,
    )
    return list(await session.scalars(live.order_by(LoginSession.last_seen_at.desc(), LoginSession.id)))


async def close_some(session: AsyncSession, session_ids: Sequence[UUID]) -> set[UUID]:
    """Whose they were."""
    closed = delete(LoginSession).where(LoginSession.id.in_(session_ids)).returning(LoginSession.user_id)
    people = set(await session.scalars(closed))
    for user_id in people:
        await _announce(session, user_id, ended=True)
    return people


async def changed(session: AsyncSession, user_id: UUID) -> None:
    """They stay signed in; only what is remembered of them (name, theme, time zone) is to be read again."""
    await _announce(session, user_id, ended=False)


async def delete_ended(session: AsyncSession, before: datetime) -> None:
    await session.execute(delete(LoginSession).where(LoginSession.expires_at < before))


async def _announce(session: AsyncSession, user_id: UUID, *, ended: bool) -> None:
    await notify(session, TOPIC, {"user_id": str(user_id), "ended": ended})

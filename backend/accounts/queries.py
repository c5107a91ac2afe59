"""Selects over people and their sessions."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import contains_eager

from backend.accounts.models import LoginSession, OneTimeLink, Role, User, normal_email


def by_email(email: str) -> Select[User]:
    return select(User).where(User.email == normal_email(email))


def everybody() -> Select[User]:
    return select(User).order_by(func.lower(User.name), User.id)


def active_admins() -> Select[User]:
    """Those who could administer everything right now: an invited one may never come."""
    return select(User).where(
        User.role == Role.ADMIN,
        User.password_hash.is_not(None),
        User.disabled_at.is_(None),
    )


def live_session(token_digest: bytes, now: datetime) -> Select[LoginSession]:
    """The signed-in browser with this token and its person, unless either has ended."""
    return (
        select(LoginSession)
        .join(LoginSession.user)
        .options(contains_eager(LoginSession.user))
        .where(
            LoginSession.token_digest == token_digest,
            LoginSession.expires_at > now,
            User.disabled_at.is_(None),
        )
    )


def live_sessions_of(person_id: UUID, now: datetime, idle_since: datetime) -> Select[LoginSession]:
    """The browsers in which somebody is signed in, the one that was used last first."""
    live = (LoginSession.expires_at > now, LoginSession.last_seen_at > idle_since)
    mine = select(LoginSession).where(LoginSession.user_id == person_id, *live)
    return mine.order_by(LoginSession.last_seen_at.desc(), LoginSession.id)


def usable_link(token_digest: bytes, now: datetime) -> Select[OneTimeLink]:
    """The link with its person (the set-up's has none), unless it was used, has expired, or they are disabled."""
    return (
        select(OneTimeLink)
        .outerjoin(OneTimeLink.user)
        .options(contains_eager(OneTimeLink.user))
        .where(
            OneTimeLink.token_digest == token_digest,
            OneTimeLink.used_at.is_(None),
            OneTimeLink.expires_at > now,
            or_(OneTimeLink.user_id.is_(None), User.disabled_at.is_(None)),
        )
    )


def person(person_id: UUID) -> Select[User]:
    return select(User).where(User.id == person_id)


def held(person_id: UUID) -> Select[User]:
    """The row as it is now, also where it was read before, and nobody else changes it until the transaction ends."""
    return person(person_id).with_for_update(key_share=True).execution_options(populate_existing=True)

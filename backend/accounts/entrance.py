"""The ways in: signing in, the first administrator, a one-time link, a new password.

Each of them hashes a password, which takes a tenth of a second, and in a crowd some seconds. No transaction stays open
meanwhile; what was read before is read again afterwards, and held, before anything is written. So a password that was
changed, a person who was disabled, or a link that was used while the hash was made lets nobody in.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts import queries, service, sessions, throttle
from backend.accounts.models import OneTimeLink, Purpose, User, normal_email
from backend.accounts.passwords import Passwords
from backend.accounts.service import LinkEnded
from backend.accounts.sessions import Browser, Lifetime
from backend.audit import chain, service as audit
from backend.audit.acting import Actor, Via, act_as, actor_of
from backend.audit.service import Action, Target
from backend.core import stored
from backend.core.db import Sessions
from backend.core.i18n import _

JOINING = (Purpose.INVITATION, Purpose.RESET)


@dataclass(frozen=True)
class Arrival:
    """A browser at the door, and what it takes to let it in."""

    db: Sessions
    hasher: Passwords
    lifetime: Lifetime
    browser: Browser
    old_token: str | None  # of the session it had until now

    @asynccontextmanager
    async def begin(self, person_id: UUID | None = None) -> AsyncIterator[AsyncSession]:
        """A transaction in which this browser acts, for a person who has shown who they are, or for nobody yet."""
        async with self.db.begin() as session:
            act_as(session, Actor(Via.BROWSER, person_id, self.browser.address))
            yield session

    async def let_in(self, session: AsyncSession, person: User) -> str:
        act_as(session, Actor(Via.BROWSER, person.id, self.browser.address))
        await audit.record(session, Action.SIGNED_IN, audit.person(person.id))
        return await sessions.open_instead(session, person, self.browser, self.lifetime, self.old_token)


async def sign_in(arrival: Arrival, email: str, password: str) -> str | None:
    """The token of a new session, or None: unknown, wrong, disabled or slowed down look alike.

    A try is counted before the password is looked at, and stays counted whatever happens then.
    """
    person = await _verified(arrival, email, password)
    if person is None:
        return None
    password_hash = person.password_hash
    assert password_hash is not None
    if arrival.hasher.needs_new_hash(password_hash):
        password_hash = await arrival.hasher.hash(password)
    async with arrival.begin(person.id) as session:
        held = await _held_unchanged(session, person)
        if held is None:
            await _refused(session, email, person.id, "changed meanwhile")
            return None
        held.password_hash = password_hash
        await throttle.forgive(session, email)
        return await arrival.let_in(session, held)


async def change_password(arrival: Arrival, person: User, old: str, new: str) -> str | None:
    """Ends all sessions of the person; the token of a new one, or None when `old` is wrong or slowed down."""
    known = await _verified(arrival, person.email, old)
    if known is None:
        return None
    new_hash = await arrival.hasher.hash(new)
    async with arrival.begin(known.id) as session:
        held = await _held_unchanged(session, known)
        if held is None:
            return None
        await service.set_password(session, held, new_hash)
        return await arrival.let_in(session, held)


async def find_link(session: AsyncSession, secret: str | None, *purposes: Purpose) -> OneTimeLink:
    """The link with its person; raises LinkEnded."""
    link = await service.find_link(session, secret, *purposes) if secret else None
    if link is None:
        raise _ended()
    return link


async def join(arrival: Arrival, secret: str | None, password: str) -> str:
    """Set the password a link asks for and sign its person in. Raises LinkEnded."""
    password_hash = await arrival.hasher.hash(password)
    async with arrival.begin() as session:
        link = await find_link(session, secret, *JOINING)
        assert link.user_id is not None
        # The person before the link: everybody takes the two in this order, or they would wait for each other.
        person = await session.scalar(queries.held(link.user_id).where(User.disabled_at.is_(None)))
        if person is None:
            raise _ended()
        await service.use_link(session, link)
        act_as(session, replace(actor_of(session), person_id=person.id))
        await service.set_password(session, person, password_hash)
        return await arrival.let_in(session, person)


async def set_up(arrival: Arrival, secret: str | None, *, name: str, email: str, company: str, password: str) -> str:
    """Make the first administrator and sign them in. Raises LinkEnded, Conflict when there is one already."""
    password_hash = await arrival.hasher.hash(password)
    async with arrival.begin() as session:
        link = await find_link(session, secret, Purpose.SETUP)
        person = await service.make_first_admin(session, name=name, email=email, password_hash=password_hash)
        await service.use_link(session, link)
        await stored.write(session, "company", company)
        await audit.record(session, Action.COMPANY_NAMED, after={"company": company})
        return await arrival.let_in(session, person)


async def _verified(arrival: Arrival, email: str, password: str) -> User | None:
    """The person as they were when the password was compared."""
    async with arrival.begin() as session:
        admitted = await throttle.admit(session, email)
        person = await session.scalar(queries.by_email(email)) if admitted else None
        if not admitted:
            await _refused(session, email, None, "slowed down")
    if not admitted:
        return None
    matches = await arrival.hasher.verify(person.password_hash if person else None, password)
    if matches and person and person.is_active:
        return person
    async with arrival.begin() as session:
        why = "disabled" if person and person.disabled_at else "wrong password" if person else "nobody"
        await _refused(session, email, person.id if person else None, why)
    return None


async def sign_out(session: AsyncSession, token: str) -> None:
    person_id = await sessions.close(session, token)
    if person_id is not None:
        act_as(session, replace(actor_of(session), person_id=person_id))
        await audit.record(session, Action.SIGNED_OUT, audit.person(person_id))


async def _refused(session: AsyncSession, email: str, person_id: UUID | None, why: str) -> None:
    """What was typed is perhaps a password in the wrong field: it is noted under a pseudonym."""
    account = {} if person_id else {"account": chain.keys().pseudonym(normal_email(email))}
    target = audit.person(person_id) if person_id else Target("account")
    await audit.record(session, Action.SIGN_IN_FAILED, target, after={"why": why, **account})


async def _held_unchanged(session: AsyncSession, person: User) -> User | None:
    same = (User.password_hash == person.password_hash, User.disabled_at.is_(None))
    return await session.scalar(queries.held(person.id).where(*same))


def _ended() -> LinkEnded:
    return LinkEnded(_("This link has been used already, or it has expired."))

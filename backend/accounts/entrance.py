"""The ways in: signing in, the first administrator, a one-time link, a new password, a second factor, a passkey.

Each of them hashes a password, which takes a tenth of a second, and in a crowd some seconds. No transaction stays open
meanwhile; what was read before is read again afterwards, and held, before anything is written. So a password that was
changed, a person who was disabled, or a link that was used while the hash was made lets nobody in.

Where a person has a second factor, or has to have one, a right password (or a link) leads only half the way: to a
secret, good for ten minutes and kept in a cookie, with which the second factor is asked for (`HalfWay`).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts import passkeys, queries, rules, second_factor, service, sessions, throttle
from backend.accounts.models import OneTimeLink, Passkey, Purpose, User, normal_email
from backend.accounts.passkeys import RelyingParty
from backend.accounts.passwords import Passwords
from backend.accounts.rules import Demand
from backend.accounts.service import LinkEnded
from backend.accounts.sessions import Browser, Lifetime
from backend.audit import chain, service as audit
from backend.audit.acting import Actor, Via, act_as, actor_of
from backend.audit.service import Action, Target
from backend.core import stored
from backend.core.db import Sessions
from backend.core.i18n import _
from backend.core.security import Sealer

JOINING = (Purpose.INVITATION, Purpose.RESET)


@dataclass(frozen=True)
class HalfWay:
    """The first factor was right. `secret` is the only copy."""

    secret: str


Entry = str | HalfWay  # the token of a new session, or not yet


@dataclass(frozen=True)
class Arrival:
    """A browser at the door, and what it takes to let it in."""

    db: Sessions
    hasher: Passwords
    lifetime: Lifetime
    browser: Browser
    old_token: str | None  # of the session it had until now
    sealer: Sealer  # of second factors
    demand: Demand | None = None  # what the deployment says of second factors

    @asynccontextmanager
    async def begin(self, person_id: UUID | None = None) -> AsyncIterator[AsyncSession]:
        """A transaction in which this browser acts, for a person who has shown who they are, or for nobody yet."""
        async with self.db.begin() as session:
            act_as(session, Actor(Via.BROWSER, person_id, self.browser.address))
            yield session

    async def let_in(self, session: AsyncSession, person: User, *, by: str) -> str:
        """`by` is how they showed that it is them."""
        act_as(session, Actor(Via.BROWSER, person.id, self.browser.address))
        await audit.record(session, Action.SIGNED_IN, audit.person(person.id), after={"by": by})
        return await sessions.open_instead(session, person, self.browser, self.lifetime, self.old_token)

    async def let_in_or_ask(self, session: AsyncSession, person: User, *, by: str) -> Entry:
        """For ways in that show one factor only."""
        if await self.needs_second_factor(session, person):
            return HalfWay(await service.make_link(session, Purpose.SECOND_STEP, person))
        return await self.let_in(session, person, by=by)

    async def needs_second_factor(self, session: AsyncSession, person: User) -> bool:
        ruled = (await rules.read(session)).overridden(self.demand)
        return ruled.demand_second_factor_of(person) or await second_factor.is_set(session, person.id)


async def sign_in(arrival: Arrival, email: str, password: str) -> Entry | None:
    """None: unknown, wrong, disabled or slowed down look alike.

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
        entry = await arrival.let_in_or_ask(session, held, by="password")
        # With half of it right the tries stay counted, or each right password would buy new tries at the other half.
        if not isinstance(entry, HalfWay):
            await throttle.forgive(session, email, arrival.browser.address)
        return entry


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
        return await arrival.let_in(session, held, by="password")


async def find_link(session: AsyncSession, secret: str | None, *purposes: Purpose) -> OneTimeLink:
    """The link with its person; raises LinkEnded."""
    link = await service.find_link(session, secret, *purposes) if secret else None
    if link is None:
        raise _ended()
    return link


async def join(arrival: Arrival, secret: str | None, password: str) -> Entry:
    """Set the password a link asks for and sign its person in. Raises LinkEnded."""
    password_hash = await arrival.hasher.hash(password)
    async with arrival.begin() as session:
        person, link = await _held_with_link(session, secret, *JOINING)
        await service.use_link(session, link)
        act_as(session, replace(actor_of(session), person_id=person.id))
        await service.set_password(session, person, password_hash)
        return await arrival.let_in_or_ask(session, person, by=f"{link.purpose} link")


async def set_up(arrival: Arrival, secret: str | None, *, name: str, email: str, company: str, password: str) -> Entry:
    """Make the first administrator and sign them in. Raises LinkEnded, Conflict when there is one already."""
    password_hash = await arrival.hasher.hash(password)
    async with arrival.begin() as session:
        link = await find_link(session, secret, Purpose.SETUP)
        person = await service.make_first_admin(session, name=name, email=email, password_hash=password_hash)
        await service.use_link(session, link)
        await stored.write(session, "company", company)
        await audit.record(session, Action.COMPANY_NAMED, after={"company": company})
        return await arrival.let_in_or_ask(session, person, by="setup link")


async def sign_in_with_passkey(arrival: Arrival, party: RelyingParty, reply: str) -> str | None:
    """The token of a new session: a passkey is two factors. None for whatever it was instead."""
    async with arrival.begin() as session:
        person = await passkeys.recognise(session, party, reply)
        if person is None:
            await audit.record(session, Action.SIGN_IN_FAILED, Target("account"), after={"why": "passkey"})
            return None
        await throttle.forgive(session, person.email, arrival.browser.address)
        return await arrival.let_in(session, person, by="passkey")


# The second half of the way


@dataclass(frozen=True)
class Asked:
    """What the second page asks for: a code of the app they have, or a first one of an app that they set up now."""

    person: User
    new_secret: str | None = None
    takes_code: bool = True  # not where they have passkeys only: whoever has a stolen password would set up an app
    has_passkey: bool = False


@dataclass(frozen=True)
class Passed:
    token: str
    recovery_codes: list[str] = field(default_factory=list)  # of a second factor that was set up on the way


async def second_step(arrival: Arrival, secret: str | None) -> Asked:
    """Raises LinkEnded."""
    async with arrival.begin() as session:
        person, _link = await _held_with_link(session, secret, Purpose.SECOND_STEP)
        has_passkey = await session.scalar(select(Passkey.id).where(Passkey.user_id == person.id).limit(1)) is not None
        if await second_factor.is_set(session, person.id):
            return Asked(person, has_passkey=has_passkey)
        if has_passkey:
            return Asked(person, takes_code=False, has_passkey=True)
        return Asked(person, await second_factor.begin(session, arrival.sealer, person.id))


async def take_second_step(arrival: Arrival, secret: str | None, code: str) -> Passed | None:
    """None: wrong, or slowed down. Raises LinkEnded."""
    address = arrival.browser.address
    asked = await second_step(arrival, secret)
    if not asked.takes_code:
        return None
    async with arrival.begin() as session:
        admitted = await throttle.admit(session, _codes_of(asked.person), address)
    if not admitted:
        return None
    async with arrival.begin() as session:
        person, link = await _held_with_link(session, secret, Purpose.SECOND_STEP)
        act_as(session, replace(actor_of(session), person_id=person.id))
        codes: list[str] | None = []
        if asked.new_secret:
            codes = await second_factor.confirm(session, arrival.sealer, person, code)
        elif not await second_factor.check(session, arrival.sealer, person, code):
            codes = None
        if codes is None:
            why = {"why": "second factor"}
            await audit.record(session, Action.SIGN_IN_FAILED, audit.person(person.id), after=why)
            return None
        await service.use_link(session, link)
        await throttle.forgive(session, person.email, address)
        await throttle.forgive(session, _codes_of(person), address)
        return Passed(await arrival.let_in(session, person, by="second factor"), codes)


async def _held_with_link(session: AsyncSession, secret: str | None, *purposes: Purpose) -> tuple[User, OneTimeLink]:
    """The person before the link: everybody takes the two in this order, or they would wait for each other."""
    link = await find_link(session, secret, *purposes)
    assert link.user_id is not None
    person = await session.scalar(queries.held(link.user_id).where(User.disabled_at.is_(None)))
    if person is None:
        raise _ended()
    return person, link


def _codes_of(person: User) -> str:
    """Under which name tries at their codes are counted."""
    return f"codes of {person.id}"


async def _verified(arrival: Arrival, email: str, password: str) -> User | None:
    """The person as they were when the password was compared."""
    async with arrival.begin() as session:
        admitted = await throttle.admit(session, email, arrival.browser.address)
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

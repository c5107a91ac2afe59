"""Changes to people. Every function runs in the caller's transaction; how people come in is told in `entrance.py`."""

import re
from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts import passkeys, queries, second_factor, sessions, strength, throttle
from backend.accounts.models import Area, OneTimeLink, Purpose, Role, Theme, User, normal_email
from backend.accounts.passwords import Passwords
from backend.audit import service as audit
from backend.audit.acting import Actor, Via, act_as
from backend.audit.service import Action, person as the_person
from backend.core import locks
from backend.core.bus import notify
from backend.core.clock import now
from backend.core.db import Sessions, broken
from backend.core.errors import BadInput, Conflict, Forbidden, NotFound, NotSignedIn
from backend.core.i18n import _
from backend.core.security import digest, new_token
from backend.core.text import one_line

LIFETIMES = {
    Purpose.SETUP: timedelta(hours=1),
    Purpose.INVITATION: timedelta(days=7),
    Purpose.RESET: timedelta(days=1),
    Purpose.SECOND_STEP: timedelta(minutes=10),
}

# Deliberately loose: something, an at sign, a domain. Only a mail can prove an address.
_EMAIL = re.compile(r"[^@\s,;<>\"]+@[^@\s,;<>\"]+")


class LinkEnded(NotFound):
    """A one-time link that was used, has expired, or never was."""

    status = 410


class EmailTaken(Conflict):
    """There is an account for this address."""


async def has_admin(session: AsyncSession) -> bool:
    """Whether anybody was ever made an administrator: from then on only an administrator makes another."""
    return await session.scalar(select(User.id).where(User.role == Role.ADMIN).limit(1)) is not None


def clean_name(name: str) -> str:
    return one_line(name, 100)


def wrong_fields(name: str, email: str) -> dict[str, str]:
    """A sentence for each of the two that cannot be taken."""
    wrong = {}
    if not clean_name(name):
        wrong["name"] = _("Please enter a name.")
    email = normal_email(email)
    if not _EMAIL.fullmatch(email) or len(email) > 254:
        wrong["email"] = _("This does not look like an email address.")
    return wrong


async def add_person(
    session: AsyncSession,
    *,
    name: str,
    email: str,
    role: Role,
    areas: Collection[Area] = (),
    password_hash: str | None = None,
) -> User:
    """Raises BadInput with a sentence per field, EmailTaken."""
    if wrong := wrong_fields(name, email):
        raise BadInput(_("Please check the fields below."), fields=wrong)
    name, email = clean_name(name), normal_email(email)
    user = User(
        name=name,
        email=email,
        role=role,
        areas=_kept(role, areas),
        password_hash=password_hash,
    )
    session.add(user)
    with broken(uq_users_email=EmailTaken(_("There is already an account for {email}.").format(email=email))):
        await session.flush()
    await audit.record(session, Action.PERSON_ADDED, the_person(user.id), after={"role": role})
    return user


async def make_first_admin(session: AsyncSession, *, name: str, email: str, password_hash: str) -> User:
    """Raises Conflict once there is an administrator, however many try at the same moment."""
    await _alone_with_admins(session)
    if await has_admin(session):
        raise Conflict(_("There is an administrator already. Sign in, or ask them for an invitation."))
    return await add_person(session, name=name, email=email, role=Role.ADMIN, password_hash=password_hash)


async def require_authority(session: AsyncSession, actor_id: UUID, person: User | None = None) -> None:
    """Raise Forbidden unless they may change `person`, as both are at this moment; without one, give administration.

    Only who administers everything may: else whoever looks after people could make themselves, or send themselves the
    password of, somebody who may more. What the request was let in by is some moments old, so it is looked up again.
    """
    await _alone_with_admins(session)
    actor = await session.scalar(queries.person(actor_id).execution_options(populate_existing=True))
    if actor is None or not actor.is_active:
        raise NotSignedIn(_("You were signed out meanwhile, so nothing was done. Please sign in."))
    if person is not None:
        await session.scalar(queries.held(person.id))
    if actor.is_admin or (person is not None and Area.PEOPLE in actor.administers and not person.administers):
        return
    if person is None:
        raise Forbidden(_("Only an administrator with all areas may make others administrators."))
    raise Forbidden(_("Only an administrator with all areas may change somebody who administers."))


async def change_role(session: AsyncSession, person: User, role: Role, areas: Collection[Area] = ()) -> None:
    """Also signs the person out: an open page must not keep the old rights."""
    await _hold(session, person)
    if (person.role, person.areas) == (role, kept := _kept(role, areas)):
        return
    if person.is_admin and role is not Role.ADMIN:
        await _keep_an_admin(session, person)
    told = audit.changes({"role": person.role, "areas": person.areas}, {"role": role, "areas": kept})
    await audit.record(session, Action.ROLE_CHANGED, the_person(person.id), **told)
    person.role, person.areas = role, kept
    await sessions.close_all_of(session, person.id)


async def disable(session: AsyncSession, person: User) -> None:
    """Sign the person out everywhere, stop what is being written for them, let nobody in again; their data stays."""
    await _hold(session, person)
    if person.is_admin:
        await _keep_an_admin(session, person)
    if person.disabled_at is None:
        await audit.record(session, Action.PERSON_DISABLED, the_person(person.id))
    person.disabled_at = person.disabled_at or now()
    await sessions.close_all_of(session, person.id)
    await notify(session, "stop", {"owner": person.id.hex})
    await _forget_links(session, person.id)


async def enable(session: AsyncSession, person: User) -> None:
    if person.disabled_at is not None:
        await audit.record(session, Action.PERSON_ENABLED, the_person(person.id))
    person.disabled_at = None


async def change_profile(session: AsyncSession, person: User, *, name: str, time_zone: str | None) -> None:
    if person.name != clean_name(name):  # names stand in no record, only that there was another one
        await audit.record(session, Action.PERSON_CHANGED, the_person(person.id), after={"name": "changed"})
    person.name = clean_name(name)
    person.time_zone = time_zone
    await sessions.changed(session, person.id)


async def choose_theme(session: AsyncSession, person: User, theme: Theme) -> None:
    person.theme = theme
    await sessions.changed(session, person.id)


async def set_password(session: AsyncSession, person: User, password_hash: str) -> None:
    """Ends every session and every open link of the person."""
    await audit.record(session, Action.PASSWORD_SET, the_person(person.id))
    person.password_hash = password_hash
    await sessions.close_all_of(session, person.id)
    await _forget_links(session, person.id)
    await throttle.forget(session, person.email)


async def reset_second_factor(session: AsyncSession, person: User) -> None:
    """For somebody who lost their telephone: app, recovery codes and passkeys go, and every session with them."""
    await session.scalar(queries.held(person.id))
    await second_factor.remove(session, person)
    await passkeys.remove_all(session, person)
    await sessions.close_all_of(session, person.id)


def password_weakness(password: str, person: User, company: str) -> str | None:
    """A sentence that says why this person cannot take this password, or None."""
    return strength.weakness(password, is_admin=bool(person.administers), about=(person.name, person.email, company))


async def make_link(session: AsyncSession, purpose: Purpose, person: User | None = None) -> str:
    """A new one-time secret; earlier ones of the same person (or for the set-up) stop working.

    Raises Conflict for a disabled person, for whom it would not work.
    """
    if person and person.disabled_at is not None:
        raise Conflict(_("{name} is disabled. Enable the account first.").format(name=person.name))
    if purpose is not Purpose.SECOND_STEP:  # which whoever has the password makes, and must not take links away
        await _forget_links(session, person.id if person else None)
        target = the_person(person.id) if person else None
        await audit.record(session, Action.LINK_MADE, target, after={"purpose": purpose})
    secret = new_token()
    session.add(
        OneTimeLink(
            purpose=purpose,
            user_id=person.id if person else None,
            token_digest=digest(secret),
            expires_at=now() + LIFETIMES[purpose],
        )
    )
    return secret


async def find_link(session: AsyncSession, secret: str, *purposes: Purpose) -> OneTimeLink | None:
    """The link with its person, if it can still be used for one of `purposes`; looking does not use it."""
    link = await session.scalar(queries.usable_link(digest(secret), now()))
    return link if link is not None and link.purpose in purposes else None


async def use_link(session: AsyncSession, link: OneTimeLink) -> None:
    """Raises LinkEnded for all but one of those who use it at the same moment."""
    used = await session.scalar(
        update(OneTimeLink)
        .where(OneTimeLink.id == link.id, OneTimeLink.used_at.is_(None))
        .values(used_at=now())
        .returning(OneTimeLink.id)
    )
    if used is None:
        raise LinkEnded(_("This link has been used already, or it has expired."))


async def delete_ended_links(session: AsyncSession) -> None:
    """Of the half-way ones only: of the others the page still says what became of them."""
    ended = delete(OneTimeLink).where(OneTimeLink.purpose == Purpose.SECOND_STEP, OneTimeLink.expires_at < now())
    await session.execute(ended)


async def find_person(session: AsyncSession, person_id: UUID) -> User:
    person = await session.scalar(queries.person(person_id))
    if person is None:
        raise NotFound(_("There is nobody here."))
    return person


async def seed_admin(db: Sessions, hasher: Passwords, email: str, password: str) -> bool:
    """Make the administrator the deployment names, while there is none. True when one was made."""
    async with db.begin() as session:
        if await has_admin(session):
            return False
    wrong = strength.weakness(password, is_admin=True, about=(email,))
    if wrong:
        raise BadInput(_("PARLEY_ADMIN_PASSWORD cannot be used. {why}").format(why=wrong))
    password_hash = await hasher.hash(password)
    async with db.begin() as session:
        act_as(session, Actor(Via.HOST))
        try:
            await make_first_admin(session, name=email.partition("@")[0], email=email, password_hash=password_hash)
        except Conflict:
            return False  # another process was faster
    return True


def _kept(role: Role, areas: Collection[Area]) -> list[str]:
    """In one order, so that two lists can be compared; who administers everything needs none."""
    return [] if role is Role.ADMIN else [area.value for area in Area if area in areas]


async def _alone_with_admins(session: AsyncSession) -> None:
    """Whoever makes, changes or removes an administrator: two cannot do it at once."""
    await locks.hold(session, "administrators")


async def _hold(session: AsyncSession, person: User) -> None:
    """Wait for whoever changes administrators right now, then see the person as they left them."""
    await _alone_with_admins(session)
    await session.scalar(queries.held(person.id))


async def _keep_an_admin(session: AsyncSession, person: User) -> None:
    """Raise Conflict when `person` is the last active administrator, about to stop being one."""
    others = queries.active_admins().where(User.id != person.id).limit(1)
    if person.is_active and await session.scalar(others) is None:
        raise Conflict(
            _("{name} is the only active administrator. Make somebody else one first.").format(name=person.name)
        )


async def _forget_links(session: AsyncSession, person_id: UUID | None) -> None:
    whose = OneTimeLink.user_id.is_(None) if person_id is None else OneTimeLink.user_id == person_id
    await session.execute(delete(OneTimeLink).where(whose, OneTimeLink.used_at.is_(None)))

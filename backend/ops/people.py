"""What somebody with a shell on the host may do to accounts: the way back in for an administrator who is locked out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts import queries, service
from backend.accounts.models import Purpose, Role, User
from backend.audit.acting import Actor, Via, act_as
from backend.core import db
from backend.core.errors import NotFound


@asynccontextmanager
async def _transaction(database_url: str) -> AsyncIterator[AsyncSession]:
    engine = db.connect(database_url, connections=2)
    try:
        async with db.Sessions(engine).begin() as session:
            act_as(session, Actor(Via.HOST))
            yield session
    finally:
        await engine.dispose()


async def setup_link(database_url: str, origin: str) -> str | None:
    """A new link that makes the first administrator; None once there is one. Earlier links stop working."""
    async with _transaction(database_url) as session:
        if await service.has_admin(session):
            return None
        return f"{origin}/setup?secret={await service.make_link(session, Purpose.SETUP)}"


async def listing(database_url: str) -> list[str]:
    async with _transaction(database_url) as session:
        return [_line(person) for person in await session.scalars(queries.everybody())]


async def add(database_url: str, origin: str, *, email: str, name: str, role: Role) -> str:
    """The link on which the new person sets a password."""
    async with _transaction(database_url) as session:
        person = await service.add_person(session, name=name or email.partition("@")[0], email=email, role=role)
        return await _link(session, origin, Purpose.INVITATION, person)


async def reset_password(database_url: str, origin: str, email: str) -> str:
    """The link on which the person sets a new password; the old one works until then."""
    async with _transaction(database_url) as session:
        return await _link(session, origin, Purpose.RESET, await _person(session, email))


async def change_role(database_url: str, email: str, role: Role) -> str:
    async with _transaction(database_url) as session:
        person = await _person(session, email)
        await service.change_role(session, person, role)
        return _line(person)


async def disable(database_url: str, email: str) -> str:
    async with _transaction(database_url) as session:
        person = await _person(session, email)
        await service.disable(session, person)
        return _line(person)


async def enable(database_url: str, email: str) -> str:
    async with _transaction(database_url) as session:
        person = await _person(session, email)
        await service.enable(session, person)
        return _line(person)


async def reset_second_factor(database_url: str, email: str) -> str:
    async with _transaction(database_url) as session:
        person = await _person(session, email)
        await service.reset_second_factor(session, person)
        return _line(person)


async def _person(session: AsyncSession, email: str) -> User:
    person = await session.scalar(queries.by_email(email))
    if person is None:
        raise NotFound(f"There is no account for {email}. `parley user list` shows all.")
    return person


async def _link(session: AsyncSession, origin: str, purpose: Purpose, person: User) -> str:
    return f"{origin}/join?secret={await service.make_link(session, purpose, person)}"


def _line(person: User) -> str:
    state = "no password yet" if person.password_hash is None else "active"
    state = "disabled" if person.disabled_at else state
    return f"{person.email:40} {person.role:8} {state:16} {person.name}"

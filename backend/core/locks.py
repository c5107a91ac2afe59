"""Work that is for one process at a time, however many there are and on whatever host: the database is the referee."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from backend.core.db import Sessions
from backend.core.security import digest


async def hold(session: AsyncSession, name: str) -> None:
    """Wait until nobody else holds this name, and hold it until the transaction ends."""
    await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key_of(name)})


@asynccontextmanager
async def only_one(sessions: Sessions, name: str) -> AsyncIterator[AsyncSession | None]:
    """A transaction that nobody else has under this name until it ends; None where somebody else has it right now.

    It ends with its connection, too, so a process that was killed holds up nobody.
    """
    async with sessions.begin() as session:
        mine = await session.scalar(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": key_of(name)})
        yield session if mine else None


@asynccontextmanager
async def only_one_for_long(sessions: Sessions, name: str) -> AsyncIterator[bool]:
    """The same for what takes longer than a transaction may; held by a connection outside the pool."""
    async with sessions.outside() as connection:
        reply = await connection.execute("SELECT pg_try_advisory_lock(%s)", [key_of(name)])
        yield await reply.fetchone() == (True,)


def key_of(name: str) -> int:
    """The number by which Postgres knows a lock."""
    return int.from_bytes(digest(name)[:8], signed=True)

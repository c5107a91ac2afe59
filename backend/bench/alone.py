"""One measurement at a time, whoever starts it and on whatever host: two would measure each other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from backend.core.db import DatabaseGone, Sessions
from backend.core.errors import Conflict
from backend.core.i18n import _
from backend.core.locks import only_one

_LOCK = "bench"
_SAY_SOMETHING_EVERY = 5.0  # seconds; the database ends a transaction that is silent for fifteen


@asynccontextmanager
async def alone(sessions: Sessions) -> AsyncIterator[None]:
    """Raises Conflict where somebody else measures. It ends with its connection: who was killed holds up nobody."""
    async with only_one(sessions, _LOCK) as session:
        if session is None:
            raise Conflict(_("Another measurement is running. Two at once would measure each other."))
        over = asyncio.Event()
        keeping = asyncio.create_task(_keep(session, over), name="keeping the lock of a measurement")
        try:
            yield
        finally:
            over.set()
            await asyncio.gather(keeping, return_exceptions=True)


async def _keep(session: AsyncSession, over: asyncio.Event) -> None:
    """Ended by `over` and not by cancelling, which could break the connection in the middle of a statement."""
    while not over.is_set():
        try:
            async with asyncio.timeout(_SAY_SOMETHING_EVERY):
                await over.wait()
        except TimeoutError:
            try:
                await session.execute(text("SELECT 1"))
            except DatabaseGone:
                return  # the lock is gone with it, and the measurement goes on

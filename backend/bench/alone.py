"""One measurement at a time, whoever starts it and on whatever host: two would measure each other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from backend.core.db import Sessions
from backend.core.errors import Conflict
from backend.core.i18n import _
from backend.core.locks import only_one_for_long


@asynccontextmanager
async def alone(sessions: Sessions) -> AsyncIterator[None]:
    """Raises Conflict where somebody else measures. It ends with its connection: who was killed holds up nobody."""
    async with only_one_for_long(sessions, "bench") as mine:
        if not mine:
            raise Conflict(_("Another measurement is running. Two at once would measure each other."))
        yield

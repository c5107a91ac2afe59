"""Counting calls without holding anybody up: what was used is noted in memory and written a moment later.

Several that end together are written with one transaction. While the database is away they wait, a bounded number.
"""

import asyncio
import logging
from collections import deque
from types import TracebackType
from typing import Any, Self

from sqlalchemy import bindparam, insert, select

from backend.accounts.models import User
from backend.core.db import DatabaseGone, Sessions
from backend.engines.events import Usage
from backend.engines.models import Engine, Model
from backend.usage.models import UsageRecord
from backend.usage.service import Call, facts

log = logging.getLogger(__name__)

MOST_WAITING = 10_000
_LOOK_AGAIN = 1.0
_LAST_TRY_SECONDS = 3.0
_GATHER_SECONDS = 0.02  # what ends within them is written together

# Person, model or engine may have been deleted while the engine wrote; what was used counts all the same.
_INSERT = insert(UsageRecord).values(
    user_id=select(User.id).where(User.id == bindparam("the_user")).scalar_subquery(),
    model_id=select(Model.id).where(Model.id == bindparam("the_model")).scalar_subquery(),
    engine_id=select(Engine.id).where(Engine.id == bindparam("the_engine")).scalar_subquery(),
)


class Ledger:
    """`async with` it for as long as calls may end; leaving it writes what is left."""

    def __init__(self, sessions: Sessions, *, look_again: float = _LOOK_AGAIN) -> None:
        self._sessions = sessions
        self._look_again = look_again
        self._waiting: deque[dict[str, Any]] = deque()
        self._noted = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._write_until_closed())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._closing = True
        self._noted.set()
        await asyncio.wait({self._task}, timeout=_LAST_TRY_SECONDS)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._waiting:
            log.error("the database is away: %d calls were not counted", len(self._waiting))

    def __len__(self) -> int:
        """How many are noted and not yet written."""
        return len(self._waiting)

    def note(self, call: Call, usage: Usage | None, *, prompt_characters: int, written: int) -> None:
        if len(self._waiting) >= MOST_WAITING:
            log.error("the database has been away for long: a call was not counted")
            return
        row = facts(call, usage, prompt_characters=prompt_characters, written=written)
        for name in ("user", "model", "engine"):
            row[f"the_{name}"] = row.pop(f"{name}_id")
        self._waiting.append(row)
        self._noted.set()

    async def _write_until_closed(self) -> None:
        while self._waiting or not self._closing:
            await self._noted.wait()
            if not self._closing:
                await asyncio.sleep(_GATHER_SECONDS)
            try:
                await self._write()
            except DatabaseGone:
                self._noted.set()
                await asyncio.sleep(self._look_again)

    async def _write(self) -> None:
        """Together; where they cannot be, one by one, so that one which cannot be stored takes no other with it."""
        self._noted.clear()
        rows = list(self._waiting)
        if not rows or await self._stored(rows):
            return
        for row in rows:
            if not await self._stored([row]):
                log.error("a call was not counted")
                self._waiting.popleft()

    async def _stored(self, rows: list[dict[str, Any]]) -> bool:
        """The first that wait. Raises what `DatabaseGone` names."""
        try:
            async with self._sessions.begin() as session:
                await session.execute(_INSERT, rows)
        except DatabaseGone:
            raise
        except Exception:  # the outermost of its task: whatever it is must not end the counting
            log.warning("%d calls cannot be stored", len(rows), exc_info=True)
            return False
        for _row in rows:
            self._waiting.popleft()
        return True

"""The requests of programs that this process is answering: how many one person may have, and when one has to end.

A call ends early when its key is revoked or its person disabled: whatever may have changed that makes it doubtful, and
a doubtful call is looked up once more, by a task of ours. A drain lets calls end by themselves and begins none.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self
from uuid import UUID

from backend.core.db import DatabaseGone, Sessions
from backend.core.errors import TooMany, Unavailable
from backend.core.i18n import _
from backend.core.lifecycle import Lifecycle
from backend.keys import service as keys
from web.api.callers import Caller, Callers

log = logging.getLogger(__name__)

MOST_OF_ONE = 256
"""Open at once for one person in one process, those that wait in line among them."""

MOST_BYTES_OF_ONE = 64 << 20
"""Of the bodies of these: each is kept while its call waits."""

_LOOK_AGAIN = 1.0


class Call:
    """One request, from the moment its key was known until its reply is sent."""

    def __init__(self, caller: Caller, size: int) -> None:
        self.caller = caller
        self.size = size
        self.must_end = asyncio.Event()


class Calls:
    """`async with` it for as long as requests come."""

    def __init__(
        self, db: Sessions, callers: Callers, lifecycle: Lifecycle, *, look_again: float = _LOOK_AGAIN
    ) -> None:
        self._db = db
        self._lifecycle = lifecycle
        self._look_again = look_again
        self._open: dict[UUID, set[Call]] = {}  # by person
        self._doubted: set[UUID] = set()  # people
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        callers.on_doubt(self._doubt)
        lifecycle.busy_while(lambda: bool(self._open))

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._look_for_ever())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    @contextmanager
    def opened(self, caller: Caller, size: int) -> Iterator[Call]:
        """Until the reply is sent; `size` bytes of body may come. Raises Unavailable in a drain, and TooMany."""
        if self._lifecycle.stopping:
            raise Unavailable(_("Parley is restarting. Ask again in a moment."), retry_after=5)
        mine = self._open.get(caller.person_id, set())
        if len(mine) >= MOST_OF_ONE or sum(call.size for call in mine) + size > MOST_BYTES_OF_ONE:
            sentence = _("You have {count} requests open, which is as much as is kept for one person.")
            raise TooMany(sentence.format(count=len(mine)), retry_after=2)
        call = Call(caller, size)
        self._open.setdefault(caller.person_id, mine).add(call)
        if caller.doubtful:
            self._doubt(caller.person_id)
        try:
            yield call
        finally:
            mine.discard(call)
            if not mine:
                self._open.pop(caller.person_id, None)

    def _doubt(self, person_id: UUID | None) -> None:
        """Whether their calls may go on; without a person everybody's."""
        if people := self._open.keys() if person_id is None else self._open.keys() & {person_id}:
            self._doubted |= people
            self._woken.set()

    async def _look_for_ever(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            people, self._doubted = self._doubted, set()
            try:
                await self._end_those_that_must(people)
            except DatabaseGone:
                self._doubted |= people
                self._woken.set()
                await asyncio.sleep(self._look_again)

    async def _end_those_that_must(self, people: set[UUID]) -> None:
        calls = [call for person_id in people for call in self._open.get(person_id, ())]
        if not calls:
            return
        async with self._db.as_worker() as session:
            working = await keys.still_working(session, {call.caller.key_id for call in calls})
        for call in calls:
            if call.caller.key_id not in working:
                call.must_end.set()

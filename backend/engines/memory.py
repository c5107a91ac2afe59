"""Which models an engine holds in its memory, and the loading and unloading that an admin asked for.

Pages read what the last look found. To load a model can take minutes, so nobody waits for it: it goes on here, one
thing at a time for each engine, and the page tells what became of it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from backend.core.clock import now
from backend.core.errors import Conflict
from backend.core.i18n import _
from backend.engines.client import EngineClient
from backend.engines.dialects import LoadedModel, ModelState
from backend.engines.events import EngineFailed

log = logging.getLogger(__name__)


class Change(StrEnum):
    LOAD = "load"
    KEEP = "keep"  # load, and do not unload by itself
    UNLOAD = "unload"


@dataclass(frozen=True, slots=True)
class Work:
    change: Change
    model: str
    since: datetime
    problem: str = ""  # a sentence, if it came to nothing
    detail: str = ""  # in the engine's own words


class Spawn(Protocol):
    def __call__(self, work: Coroutine[object, object, None], *, name: str) -> "asyncio.Task[None] | None": ...


class Memory:
    """Of one engine, for as long as it is watched."""

    def __init__(self, client: EngineClient, spawn: Spawn, publish: Callable[[], None]) -> None:
        self.models: tuple[LoadedModel, ...] | None = None
        """As last read; None where the engine cannot be told to load anything."""
        self.work: Work | None = None
        self.failed: Work | None = None
        """What came to nothing, until something else is asked for."""
        self._client = client
        self._spawn = spawn
        self._publish = publish
        self._tells = True
        self._task: asyncio.Task[None] | None = None
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def asleep(self) -> frozenset[str]:
        """Models that answer nobody before an admin wakes them; also those that are being put to sleep."""
        lifecycle = self._client.dialect.lifecycle
        if lifecycle is None or lifecycle.wakes_by_itself:
            return frozenset()
        falls_asleep = self.work is not None and self.work.change is Change.UNLOAD
        return frozenset(
            model.name for model in self.models or () if falls_asleep or model.state is ModelState.SLEEPING
        )

    def ask_again(self) -> None:
        """It may have been started anew, with more allowed than before."""
        self._tells = True

    async def read(self) -> None:
        """What it holds now. What cannot be read stays as it was."""
        if self._client.dialect.lifecycle is not None and not self._tells:
            return
        before = self.asleep
        try:
            found = await self._client.loaded()
        except EngineFailed as failure:
            log.debug("What is loaded could not be read: %s (%s)", failure.kind, failure.detail)
            return
        self._tells = found is not None
        self.models = None if found is None else tuple(found)
        if self.asleep != before:
            self._publish()

    def begin(self, change: Change, model: str) -> None:
        """Raises Conflict while something else goes on."""
        self.require_idle()
        self.work, self.failed = Work(change, model, now()), None
        self._quiet.clear()
        self._publish()
        self._task = self._spawn(self._do(self.work), name=f"{change} {model}")

    def require_idle(self) -> None:
        if self.work is not None:
            raise Conflict(_("This engine is loading or unloading a model already. Wait until that has ended."))

    async def until_quiet(self, seconds: float) -> bool:
        """Whether what was begun has ended within this time."""
        try:
            async with asyncio.timeout(seconds):
                await self._quiet.wait()
        except TimeoutError:
            return False
        return True

    def end(self) -> None:
        if self._task:
            self._task.cancel()
        self._quiet.set()

    async def _do(self, work: Work) -> None:
        try:
            if work.change is Change.UNLOAD:
                await self._client.unload(work.model)
            else:
                await self._client.load(work.model, keep=work.change is Change.KEEP)
            await self.read()
        except EngineFailed as failure:
            log.warning("To %s %s failed: %s (%s)", work.change, work.model, failure.kind, failure.detail)
            self.failed = replace(work, problem=str(failure), detail=failure.detail)
        except Exception:  # the outermost of its task: a surprise of one engine must not end the looking at all
            log.exception("To %s %s failed", work.change, work.model)
            self.failed = replace(work, problem=_("Something went wrong on our side. The log says what."))
        finally:
            self.work = None
            self._quiet.set()
        self._publish()

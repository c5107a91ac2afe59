"""The looking at one engine: how it is, what it serves, what its models can do, and how busy it is.

Nobody waits for any of it. What was found goes to the database or stays here; the registry reads it from there.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from uuid import UUID

from backend.core.clock import now
from backend.core.db import DatabaseGone, Sessions
from backend.core.errors import BadInput
from backend.core.i18n import _
from backend.core.settings import Settings
from backend.engines import abilities, configured, connecting, findings, metrics, probing
from backend.engines.abilities import Abilities
from backend.engines.addresses import AllowList
from backend.engines.breaker import Breakers
from backend.engines.client import EngineClient
from backend.engines.events import EngineFailed, Failure
from backend.engines.findings import Findings
from backend.engines.memory import Memory, Spawn
from backend.engines.metrics import Readings
from backend.engines.models import Deployment, Engine, Source
from backend.engines.probing import Health
from backend.engines.traffic import Traffic

log = logging.getLogger(__name__)

# A thorough look asks an engine what it is, with several requests; in between only its list is read.
_THOROUGH_EVERY = 30


@dataclass(frozen=True)
class Around:
    """What a watch needs of the registry that owns it."""

    settings: Settings
    db: Sessions
    allowed: AllowList
    breakers: Breakers
    traffic: Traffic
    reload: Callable[[], Coroutine[object, object, None]]  # the rows have changed
    publish: Callable[[], None]  # what is known in memory has
    spawn: Spawn


class Watch:
    """One enabled engine, for as long as its address and key stay the same."""

    def __init__(
        self, engine: Engine, client: EngineClient, api_key: str | None, key_is_lost: bool, around: Around
    ) -> None:
        self.engine = engine  # with deployments and models, as last read
        self.client = client
        self.url = engine.url
        self.api_key = api_key
        self.key_is_lost = key_is_lost
        self.health = Health()
        self.failures = 0  # in a row
        self.readings = Readings()
        self.memory = Memory(client, around.spawn, around.publish)
        self.looked = asyncio.Event()  # at least once
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._around = around
        self._looks = 0
        self._tells_numbers = True  # until it was asked; again with each thorough look
        self._tried: set[str] = set()  # models whose abilities were tried since the last thorough look
        self._trying: asyncio.Task[None] | None = None
        self._has_ended = False
        if key_is_lost:
            self.health = Health(_("The API key has to be entered again."), now(), kind=Failure.AUTH)

    @property
    def deployment_ids(self) -> list[UUID]:
        return [deployment.id for deployment in self.engine.deployments]

    def end(self) -> None:
        self._has_ended = True
        self.memory.end()
        for task in (self.task, self._trying):
            if task:
                task.cancel()

    async def look(self) -> None:
        try:
            if not self.key_is_lost:
                await self._look()
        finally:
            self.looked.set()

    async def _look(self) -> None:
        thorough = self.failures > 0 or self._looks % _THOROUGH_EVERY == 0
        try:
            await self._check_address()
            found = await probing.look(self.client, self._around.settings.probe_seconds, thorough=thorough)
        except EngineFailed as failure:
            self.failures += 1
            self._note_failure(failure)
            return
        self.failures = 0
        self._looks += 1
        try:
            await self._remember(found)
        finally:  # after it: whoever sees a healthy engine sees its models too
            self._note_health()
        if thorough:
            self._tried.clear()
            self._tells_numbers = True
            self.memory.ask_again()
        self._try_abilities()
        self.looked.set()  # nobody waits for what follows
        await self.memory.read()
        await self._read_numbers()

    async def _check_address(self) -> None:
        """What an admin entered is checked each time: names move, and the deployment may have narrowed its list."""
        try:
            await connecting.check_address(self.engine, self._around.allowed)
        except BadInput as refused:
            raise EngineFailed(Failure.UNREACHABLE, str(refused), detail="the address is not allowed") from refused

    def _note_failure(self, failure: EngineFailed) -> None:
        engine, before = self.engine, self.health
        known = bool(engine.kind or engine.deployments) or engine.source is not Source.DATABASE
        self.health = before.failed(failure, now(), answered_before=known)
        if before.kind is not failure.kind:
            log.warning("The engine %s cannot be used: %s (%s)", engine.name, failure.kind, failure.detail)
        if before.problem != self.health.problem:
            self._around.publish()

    def _note_health(self) -> None:
        before = self.health
        self.health = Health(checked_at=now())
        self._around.breakers.looked_at(self.deployment_ids)
        if before.problem:
            log.info("The engine %s can be used again", self.engine.name)
            self._around.publish()

    async def _remember(self, found: Findings) -> None:
        engine = self.engine
        if not findings.is_news(engine, found):
            return
        publish = await configured.is_for_everybody(engine, self._around.settings)
        async with self._around.db.begin() as session:
            await findings.store(session, engine.id, found, publish=publish)
        await self._around.reload()

    # What it can do

    def _try_abilities(self) -> None:
        """Beside the looking, one request at a time: an engine may have to load a model for it."""
        if self._has_ended or not self._untried() or (self._trying and not self._trying.done()):
            return
        self._trying = self._around.spawn(self._prove(), name=f"trying what {self.engine.name} can do")

    async def _prove(self) -> None:
        try:
            while deployment := self._untried():
                await asyncio.sleep(probing.delay(self._around.settings.probe_seconds))
                engine, name = self.engine, deployment.upstream_name
                self._tried.add(name)
                known = Abilities(deployment.continues, deployment.sees)
                found = await abilities.find_out(self.client, name, known)
                if found != known:
                    async with self._around.db.begin() as session:
                        await abilities.store(session, engine, name, found)
                    await self._around.reload()
        except DatabaseGone:
            log.info("What %s can do could not be kept and is tried again", self.engine.name)
        except Exception:  # the outermost of its task: what an engine can do must not end the looking
            log.exception("Trying what %s can do failed and is tried again", self.engine.name)

    def _untried(self) -> Deployment | None:
        found = abilities.untried(self.engine)
        return next((deployment for deployment in found if deployment.upstream_name not in self._tried), None)

    # How busy it is

    async def _read_numbers(self) -> None:
        """An engine that tells none is not asked again before the next thorough look."""
        if not self._tells_numbers:
            return
        ours = self._around.traffic.running_on(self.engine.id)
        try:
            read = await metrics.read(self.client.numbers, self.client.dialect.metrics)
        except EngineFailed as failure:
            self._tells_numbers = failure.kind.passes or failure.kind is Failure.TIMEOUT
            return
        if read is None:
            self._tells_numbers = False
            return
        self.readings.add(*read, ours=ours)

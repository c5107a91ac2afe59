"""The engines of this process: their clients, how they are, and what people can choose.

Every engine has a task of its own that looks at it from time to time, so a dead one delays nobody. Pages read a
snapshot, which is replaced as a whole. What was once found stays until something better is known: neither an engine nor
the database has to be there for a page to be drawn.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self
from uuid import UUID

from backend.core.clock import now
from backend.core.db import DatabaseGone, Sessions
from backend.core.errors import BadInput
from backend.core.i18n import _
from backend.core.security import Sealer, Unreadable
from backend.core.settings import Settings
from backend.engines import abilities, addresses, configured, findings, keys, local, probing, queries, snapshot
from backend.engines.abilities import Abilities
from backend.engines.addresses import AllowList
from backend.engines.client import EngineClient
from backend.engines.events import EngineFailed, Failure
from backend.engines.findings import Findings
from backend.engines.local import LocalServer
from backend.engines.models import Deployment, Engine, Source
from backend.engines.probing import Health
from backend.engines.snapshot import Endpoint, EngineStatus, NoEngineAvailable, Offer, Snapshot

__all__ = ["Endpoint", "EngineStatus", "Health", "NoEngineAvailable", "Offer", "Registry"]

log = logging.getLogger(__name__)

# A thorough look asks an engine what it is, with several requests; in between only its list is read.
_THOROUGH_EVERY = 30


@dataclass(slots=True, eq=False)
class _Connection:
    """One enabled engine, for as long as its address and key stay the same."""

    engine: Engine  # with deployments and models, as last read
    client: EngineClient
    url: str
    api_key: str | None
    key_is_lost: bool
    health: Health = field(default_factory=Health)
    looks: int = 0
    failures: int = 0  # in a row
    looked: asyncio.Event = field(default_factory=asyncio.Event)  # at least once
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    tried: set[str] = field(default_factory=set)  # models whose abilities were tried since the last thorough look
    trying: asyncio.Task[None] | None = None


class Registry:
    """`async with` it once the database is migrated: on entry the rows are read, from then on engines are looked at."""

    def __init__(
        self, settings: Settings, db: Sessions, sealer: Sealer, *, known_local: Sequence[LocalServer] = local.KNOWN
    ) -> None:
        """Raises BadInput for a `PARLEY_ENGINE_ALLOWED` that cannot be read."""
        self.allowed: AllowList = addresses.allow_list(settings)
        self.sealer = sealer
        self._db = db
        self._settings = settings
        self.known_local = known_local
        self._forced_kinds = {engine.name for engine in settings.engines if engine.kind}
        self._engines: Sequence[Engine] = ()
        self._connections: dict[UUID, _Connection] = {}
        self._retired: list[EngineClient] = []
        self._listening: tuple[LocalServer, ...] = ()
        self._snapshot = Snapshot()
        self._reloading = asyncio.Lock()
        self._changed = asyncio.Event()
        self._database_is_away = False
        self._tasks: asyncio.TaskGroup | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def offers(self) -> tuple[Offer, ...]:
        """Published models that an enabled engine has or had, in the order people see them."""
        return self._snapshot.offers

    @property
    def engines(self) -> tuple[EngineStatus, ...]:
        return self._snapshot.engines

    @property
    def local(self) -> tuple[LocalServer, ...]:
        """Servers on this machine that an admin could add."""
        return self._snapshot.local

    def offer(self, model_id: UUID | None) -> Offer | None:
        """None when the model is gone: unpublished, or no enabled engine has it."""
        return self._snapshot.by_id.get(model_id) if model_id else None

    def choose(self, offer: Offer, conversation_id: UUID | None = None) -> Endpoint:
        """See `snapshot.choose`."""
        return snapshot.choose(offer, conversation_id)

    def health(self, engine_id: UUID) -> Health:
        connection = self._connections.get(engine_id)
        return connection.health if connection else Health()

    def look_now(self, engine_id: UUID) -> None:
        """Do not wait for the next turn: an answer just failed, or an admin asks."""
        if connection := self._connections.get(engine_id):
            connection.wake.set()

    def wake(self) -> None:
        """Read the rows again, soon. To be called after the commit of a change."""
        self._changed.set()

    async def __aenter__(self) -> Self:
        async with self._db.begin() as session:
            await configured.take_over(session, self._settings, self.sealer)
        await self.reload()
        self._running = asyncio.create_task(self.run(), name="engines")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running:
            self._running.cancel()
            await asyncio.wait([self._running])
        for client in (*self._retired, *(connection.client for connection in self._connections.values())):
            await client.aclose()

    async def run(self) -> None:
        """Look after the engines until cancelled. Entering the registry starts this."""
        async with asyncio.TaskGroup() as self._tasks:
            for connection in self._connections.values():
                self._watch(connection)
            around = self._repeat("looking around this machine", self._look_around, asyncio.Event(), lambda: 0)
            self._tasks.create_task(around, name="looking around this machine")
            # Again and again, because another process or the command line may change the rows.
            await self._repeat("reading the engines", self.reload, self._changed, lambda: 0)

    async def reload(self) -> None:
        """Read the rows and publish what they say. Raises what the database raises."""
        async with self._reloading:
            async with self._db.begin() as session:
                engines = (await session.scalars(queries.everything())).all()
            # Nothing is awaited from here on: whoever publishes meanwhile finds rows and connections that agree.
            self._engines = engines
            if self._database_is_away:
                log.info("The database is back")
                self._database_is_away = False
            self._connect()
            self._publish()

    async def first_look(self) -> None:
        """Return once every engine has been looked at, with whatever result."""
        await asyncio.gather(*(connection.looked.wait() for connection in self._connections.values()))

    def _connect(self) -> None:
        """Have one connection for every enabled engine, and a new one where address or key changed."""
        enabled = {engine.id: engine for engine in self._engines if engine.enabled}
        for gone in self._connections.keys() - enabled.keys():
            self._retire(gone)
        for engine in enabled.values():
            api_key, key_is_lost = self._key_of(engine)
            current = self._connections.get(engine.id)
            if current and (current.url, current.api_key, current.key_is_lost) == (engine.url, api_key, key_is_lost):
                current.engine = engine
                continue
            if current:
                self._retire(engine.id)
            client = EngineClient(
                engine.url,
                api_key,
                first_token_seconds=self._settings.first_token_seconds,
                idle_seconds=self._settings.idle_seconds,
            )
            self._connections[engine.id] = connection = _Connection(engine, client, engine.url, api_key, key_is_lost)
            if key_is_lost:
                connection.health = Health(_("The API key has to be entered again."), now(), kind=Failure.AUTH)
            self._watch(connection)

    def _retire(self, engine_id: UUID) -> None:
        """Nothing new goes there. The client stays open: answers that run may end as they would have."""
        connection = self._connections.pop(engine_id)
        self._retired.append(connection.client)
        for task in (connection.task, connection.trying):
            if task:
                task.cancel()

    def _key_of(self, engine: Engine) -> tuple[str | None, bool]:
        try:
            return keys.unseal(self.sealer, engine), False
        except Unreadable:
            return None, True

    def _publish(self) -> None:
        self._snapshot = snapshot.build(
            self._engines,
            lambda engine_id: self._connections[engine_id].client,
            self.health,
            local.free(self._listening, self._taken()),
        )

    def _watch(self, connection: _Connection) -> None:
        """Once `run` has begun, each connection has its own task."""
        if self._tasks is None:
            return
        name = f"looking at the engine {connection.engine.name}"
        look = self._repeat(name, lambda: self._look_at(connection), connection.wake, lambda: connection.failures)
        connection.task = self._tasks.create_task(look, name=name)

    async def _repeat(
        self, what: str, work: Callable[[], Awaitable[None]], wake: asyncio.Event, failures: Callable[[], int]
    ) -> None:
        while True:
            wake.clear()
            try:
                await work()
            except DatabaseGone as error:
                if not self._database_is_away:
                    log.warning("The database is away (%s). Engines are used as last known.", type(error).__name__)
                self._database_is_away = True
            except Exception:  # the outermost of its task: a surprise about one engine must not end the looking
                log.exception("%s failed and is tried again", what)
            with suppress(TimeoutError):
                async with asyncio.timeout(probing.pause(self._settings.probe_seconds, failures())):
                    await wake.wait()

    async def _look_at(self, connection: _Connection) -> None:
        try:
            if not connection.key_is_lost:
                await self._look(connection)
        finally:
            connection.looked.set()

    async def _look(self, connection: _Connection) -> None:
        thorough = connection.failures > 0 or connection.looks % _THOROUGH_EVERY == 0
        try:
            await self._check_address(connection.engine)
            found = await probing.look(connection.client, self._settings.probe_seconds, thorough=thorough)
        except EngineFailed as failure:
            connection.failures += 1
            self._note_failure(connection, failure)
            return
        connection.failures = 0
        connection.looks += 1
        try:
            await self._remember(connection.engine, found)
        finally:  # after it: whoever sees a healthy engine sees its models too
            self._note_health(connection)
        if thorough:
            connection.tried.clear()
        self._try_abilities(connection)

    def _try_abilities(self, connection: _Connection) -> None:
        """Beside the looking, one request at a time: an engine may have to load a model for it."""
        is_ours = self._connections.get(connection.engine.id) is connection  # it may just have been retired
        if self._tasks is None or not is_ours or not _untried(connection):
            return
        if connection.trying and not connection.trying.done():
            return
        name = f"trying what {connection.engine.name} can do"
        connection.trying = self._tasks.create_task(self._prove(connection), name=name)

    async def _prove(self, connection: _Connection) -> None:
        try:
            while deployment := _untried(connection):
                await asyncio.sleep(probing.delay(self._settings.probe_seconds))
                engine, name = connection.engine, deployment.upstream_name
                connection.tried.add(name)
                known = Abilities(deployment.continues, deployment.sees)
                found = await abilities.find_out(connection.client, engine.kind, name, known)
                if found != known:
                    async with self._db.begin() as session:
                        await abilities.store(session, engine, name, found)
                    await self.reload()
        except DatabaseGone:
            log.info("What %s can do could not be kept and is tried again", connection.engine.name)
        except Exception:  # the outermost of its task: what an engine can do must not end the looking
            log.exception("Trying what %s can do failed and is tried again", connection.engine.name)

    async def _check_address(self, engine: Engine) -> None:
        """What an admin entered is checked each time: names move, and the deployment may have narrowed its list."""
        if engine.source is not Source.DATABASE:
            return
        try:
            await addresses.check(addresses.parse(engine.url), self.allowed)
        except BadInput as refused:
            raise EngineFailed(Failure.UNREACHABLE, str(refused), detail="the address is not allowed") from refused

    def _note_failure(self, connection: _Connection, failure: EngineFailed) -> None:
        engine, before = connection.engine, connection.health
        known = bool(engine.kind or engine.deployments) or engine.source is not Source.DATABASE
        connection.health = before.failed(failure, now(), answered_before=known)
        if before.kind is not failure.kind:
            log.warning("The engine %s cannot be used: %s (%s)", engine.name, failure.kind, failure.detail)
        if before.problem != connection.health.problem:
            self._publish()

    def _note_health(self, connection: _Connection) -> None:
        before = connection.health
        connection.health = Health(checked_at=now())
        if before.problem:
            log.info("The engine %s can be used again", connection.engine.name)
            self._publish()

    async def _remember(self, engine: Engine, found: Findings) -> None:
        if engine.name in self._forced_kinds:
            found = replace(found, kind=None)
        if not findings.is_news(engine, found):
            return
        publish = await configured.is_for_everybody(engine, self._settings)
        async with self._db.begin() as session:
            await findings.store(session, engine.id, found, publish=publish)
        await self.reload()

    async def _look_around(self) -> None:
        listening = await local.find(await self._allowed_local())
        if listening != self._listening:
            self._listening = listening
            self._publish()

    async def _allowed_local(self) -> list[LocalServer]:
        """Without those that could not be added anyway, or are there already."""
        allowed = []
        for server in local.free(self.known_local, self._taken()):
            with suppress(BadInput):
                await addresses.check(addresses.parse(server.url), self.allowed)
                allowed.append(server)
        return allowed

    def _taken(self) -> list[str]:
        return [engine.url for engine in self._engines]


def _untried(connection: _Connection) -> Deployment | None:
    found = abilities.untried(connection.engine)
    return next((deployment for deployment in found if deployment.upstream_name not in connection.tried), None)

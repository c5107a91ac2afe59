"""The engines of this process: their clients, how they are, and what people can choose.

Every engine has a task of its own that looks at it from time to time, so a dead one delays nobody. Pages read a
snapshot, which is replaced as a whole. What was once found stays until something better is known: neither an engine nor
the database has to be there for a page to be drawn.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self
from uuid import UUID

from backend.core.bus import Bus, Payload
from backend.core.db import DatabaseGone, Sessions
from backend.core.errors import BadInput
from backend.core.security import Sealer, Unreadable
from backend.core.settings import Settings
from backend.engines import addresses, configured, connecting, keys, local, probing, queries, sharing, snapshot
from backend.engines.addresses import AllowList
from backend.engines.choosing import NoEngineAvailable
from backend.engines.client import EngineClient
from backend.engines.known import Known
from backend.engines.local import LocalServer
from backend.engines.models import Engine
from backend.engines.probing import Health
from backend.engines.service import CHANGED
from backend.engines.snapshot import Endpoint, EngineStatus, Offer, State
from backend.engines.watching import Around, Watch
from backend.groups import rights
from backend.groups.service import CHANGED as GROUPS_CHANGED

__all__ = ["Endpoint", "EngineStatus", "Health", "NoEngineAvailable", "Offer", "Registry", "State"]

log = logging.getLogger(__name__)

_STALE = 4  # looks; after that many without new numbers, what an engine told of its work means nothing any more


class Registry(Known):
    """`async with` it once the database is migrated: on entry the rows are read, from then on engines are looked at."""

    def __init__(
        self,
        settings: Settings,
        db: Sessions,
        sealer: Sealer,
        bus: Bus | None = None,
        *,
        known_local: Sequence[LocalServer] = local.KNOWN,
    ) -> None:
        """Raises BadInput for a `PARLEY_ENGINE_ALLOWED` or a right that cannot be read. Without a `bus` what other
        processes change is seen with the next look only."""
        super().__init__(stale_after=_STALE * settings.probe_seconds)
        rights.fixed(settings)
        self.allowed: AllowList = addresses.allow_list(settings)
        self.sealer = sealer
        self._db = db
        self._bus = bus
        self._settings = settings
        self.known_local = known_local
        self._engines: Sequence[Engine] = ()
        self._retired: list[EngineClient] = []
        self._listening: tuple[LocalServer, ...] = ()
        self._reloading = asyncio.Lock()
        self._changed = asyncio.Event()
        self._database_is_away = False
        self._tasks: asyncio.TaskGroup | None = None
        self._running: asyncio.Task[None] | None = None

    def look_now(self, engine_id: UUID) -> None:
        """Do not wait for the next turn: an answer just failed, or an admin asks."""
        if watch := self._watches.get(engine_id):
            watch.wake.set()

    def wake(self) -> None:
        """Read the rows again, soon. To be called after the commit of a change."""
        self._changed.set()

    async def __aenter__(self) -> Self:
        async with self._db.begin() as session:
            await configured.take_over(session, self._settings, self.sealer)
        await self.reload()
        if self._bus:
            for topic in (CHANGED, GROUPS_CHANGED):
                self._bus.on(topic, self._told)
            self._bus.on_reconnect(self.wake)
        self._running = asyncio.create_task(self.run(), name="engines")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running:
            self._running.cancel()
            await asyncio.wait([self._running])
        for client in (*self._retired, *(watch.client for watch in self._watches.values())):
            await client.aclose()

    def _told(self, _payload: Payload) -> None:
        self.wake()

    async def run(self) -> None:
        """Look after the engines until cancelled. Entering the registry starts this."""
        async with asyncio.TaskGroup() as self._tasks:
            for watch in self._watches.values():
                self._begin(watch)
            around = self._repeat("looking around this machine", self._look_around, asyncio.Event(), lambda: 0)
            self._tasks.create_task(around, name="looking around this machine")
            # Again and again, because another process or the command line may change the rows.
            await self._rest(self._changed, 0)  # they were read a moment ago
            await self._repeat("reading the engines", self.reload, self._changed, lambda: 0)

    async def reload(self) -> None:
        """Read the rows and publish what they say. Raises what the database raises."""
        async with self._reloading:
            async with self._db.begin() as session:
                engines = (await session.scalars(queries.everything())).all()
                shared = await sharing.read(session)
                allowed = await rights.read(session, self._settings)
            # Nothing is awaited from here on: whoever publishes meanwhile finds rows and connections that agree.
            self._engines, self._sharing, self._rights = engines, shared, allowed
            self._colors = {model.id: model.color for model in shared.models}
            if self._database_is_away:
                log.info("The database is back")
                self._database_is_away = False
            self._connect()
            self._publish()

    async def first_look(self) -> None:
        """Return once every engine has been looked at, with whatever result."""
        await asyncio.gather(*(watch.looked.wait() for watch in self._watches.values()))

    def _connect(self) -> None:
        """Watch every enabled engine, and anew where address or key changed."""
        enabled = {engine.id: engine for engine in self._engines if engine.enabled}
        for gone in self._watches.keys() - enabled.keys():
            self._retire(gone)
        for engine in enabled.values():
            api_key, key_is_lost = self._key_of(engine)
            current = self._watches.get(engine.id)
            if current and (current.url, current.api_key, current.key_is_lost) == (engine.url, api_key, key_is_lost):
                current.engine = engine
                connecting.speak(current.client, engine)
                continue
            if current:
                self._retire(engine.id)
            client = connecting.client_of(engine, api_key, self._settings, self.allowed)
            self._watches[engine.id] = watch = Watch(engine, client, api_key, key_is_lost, self._around)
            self._begin(watch)

    def _retire(self, engine_id: UUID) -> None:
        """Nothing new goes there. The client stays open: answers that run may end as they would have."""
        watch = self._watches.pop(engine_id)
        self._retired.append(watch.client)
        self.breakers.forget(watch.deployment_ids)
        watch.end()

    def _key_of(self, engine: Engine) -> tuple[str | None, bool]:
        try:
            return keys.unseal(self.sealer, engine), False
        except Unreadable:
            return None, True

    def _publish(self) -> None:
        self._snapshot = snapshot.build(
            self._engines,
            lambda engine_id: self._watches[engine_id].client,
            self.health,
            local.free(self._listening, self._taken()),
            self._sharing,
            lambda engine_id: self._watches[engine_id].memory.asleep,
        )

    @property
    def _around(self) -> Around:
        return Around(
            settings=self._settings,
            db=self._db,
            allowed=self.allowed,
            breakers=self.breakers,
            traffic=self.traffic,
            reload=self.reload,
            publish=self._publish,
            spawn=self._spawn,
        )

    def _begin(self, watch: Watch) -> None:
        name = f"looking at the engine {watch.engine.name}"
        watch.task = self._spawn(self._repeat(name, watch.look, watch.wake, lambda: watch.failures), name=name)

    def _spawn(self, work: Coroutine[object, object, None], *, name: str) -> "asyncio.Task[None] | None":
        """Once `run` has begun, each watch has its own tasks."""
        if self._tasks is None:
            work.close()
            return None
        return self._tasks.create_task(work, name=name)

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
            await self._rest(wake, failures())

    async def _rest(self, wake: asyncio.Event, failures: int) -> None:
        """Until it is time to look again, or somebody asks."""
        with suppress(TimeoutError):
            async with asyncio.timeout(probing.pause(self._settings.probe_seconds, failures)):
                await wake.wait()

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

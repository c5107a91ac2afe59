"""Measurements that administrators start from a page: one at a time, whatever the number of processes and hosts.

    runs = Runs(sessions, registry, ledger)
    run_id = await runs.start(deployment_id, plan, person_id)    # a task of this process measures
    await runs.cancel(session, run_id)                           # from any process

The row is the only thing other processes know: about every second the one that measures writes into it how far it is,
which is also its heartbeat, and reads whether it should stop. The lock is held by a connection and ends with it, so a
process that was killed leaves nothing behind but a row without a heartbeat.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from backend.audit import service as audit
from backend.audit.acting import Actor, Via, act_as
from backend.audit.service import Action
from backend.bench import meaning, queries, results
from backend.bench.alone import alone
from backend.bench.measuring import Measuring, Progress, Target
from backend.bench.models import BenchRun
from backend.bench.plan import Plan
from backend.bench.results import Ended, Measurement, Sample
from backend.core.clock import now
from backend.core.db import DatabaseGone, Sessions
from backend.core.errors import Conflict, NotFound
from backend.core.i18n import _
from backend.core.ids import new_id
from backend.engines.client import EngineClient
from backend.engines.events import Usage
from backend.engines.models import Deployment
from backend.usage.models import Cause
from backend.usage.service import Call

log = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
_LAST_WORDS_SECONDS = 5.0
_SILENT_AFTER = timedelta(seconds=15)


class Clients(Protocol):
    """Where the connection to an engine is found; the registry, to us."""

    def client(self, engine_id: UUID, /) -> EngineClient | None: ...


class Ledger(Protocol):
    """Where calls are counted."""

    def note(self, call: Call, usage: Usage | None, /, *, prompt_characters: int, written: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Run:
    """A row, as a page shows it."""

    id: UUID
    engine_id: UUID | None
    measurement: Measurement
    progress: Progress
    stops: bool = False  # somebody has asked it to

    @property
    def is_running(self) -> bool:
        return self.measurement.ended is None


@dataclass(frozen=True, slots=True)
class _Job:
    run_id: UUID
    actor: Actor
    person_id: UUID
    engine_id: UUID
    model_id: UUID | None
    target: Target
    plan: Plan
    client: EngineClient


class Runs:
    """Lives as long as the process; `close` ends what it still measures."""

    def __init__(
        self,
        sessions: Sessions,
        clients: Clients,
        ledger: Ledger,
        *,
        are_waiting: Callable[[UUID], bool] = lambda _model_id: False,
        beat: float = BEAT_SECONDS,
    ) -> None:
        """`are_waiting`: whether people stand in line for a model. They go first, so that ends a measurement of it."""
        self._sessions = sessions
        self._clients = clients
        self._ledger = ledger
        self._are_waiting = are_waiting
        self._beat = beat
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._closing = False

    async def start(self, deployment_id: UUID, plan: Plan, person_id: UUID, actor: Actor | None = None) -> UUID:
        """Returns once it runs; `actor` says from where the person asked.

        Raises Conflict while another one does, here or elsewhere, and NotFound.
        """
        if self._closing:
            raise Conflict(_("Parley is restarting. Try again in a moment."))
        job = await self._job(deployment_id, plan, person_id, actor or Actor(Via.BROWSER, person_id))
        begun = asyncio.Event()
        task = asyncio.create_task(self._run(job, begun), name="measuring an engine")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        waiting = asyncio.create_task(begun.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not begun.is_set():
            await task  # raises what kept it from beginning
        return job.run_id

    async def cancel(self, session: AsyncSession, run_id: UUID) -> None:
        """It ends within a moment, and what was measured until then is kept."""
        row = await self.find(session, run_id, for_update=True)
        row.result = row.result | {"stop": True}
        await session.flush()
        await audit.record(session, Action.BENCH_CANCELLED, _target(row))

    def hurry(self) -> None:
        """Look at once whether the run of this process should stop; to be called after the commit of `cancel`."""
        self._wake.set()

    async def delete(self, session: AsyncSession, run_id: UUID) -> None:
        row = await self.find(session, run_id, for_update=True)
        if of(row).is_running:
            raise Conflict(_("It is still running. End it first."))
        await session.delete(row)
        await audit.record(session, Action.BENCH_DELETED, _target(row))

    async def find(self, session: AsyncSession, run_id: UUID, *, for_update: bool = False) -> BenchRun:
        query = queries.one(run_id)
        row = await session.scalar(query.with_for_update() if for_update else query)
        if row is None:
            raise NotFound(_("There is no such measurement."))
        return row

    def stop(self) -> None:
        """The process is on its way out: nothing new begins, and what runs ends."""
        self._closing = True
        self._wake.set()

    async def close(self) -> None:
        self.stop()
        if tasks := set(self._tasks):
            _done, pending = await asyncio.wait(tasks, timeout=_LAST_WORDS_SECONDS)
            for task in pending:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _job(self, deployment_id: UUID, plan: Plan, person_id: UUID, actor: Actor) -> _Job:
        async with self._sessions.begin() as session:
            deployment = await session.scalar(queries.measurable().where(Deployment.id == deployment_id))
        if deployment is None:
            raise NotFound(_("There is no such model."))
        engine = deployment.engine
        client = self._clients.client(engine.id)
        if client is None:
            raise Conflict(_("The engine “{name}” is not in service.").format(name=engine.name))
        target = Target(engine.name, deployment.upstream_name, engine.spoken_kind, engine.version)
        return _Job(new_id(), actor, person_id, engine.id, deployment.model_id, target, plan, client)

    async def _run(self, job: _Job, begun: asyncio.Event) -> None:
        try:
            async with alone(self._sessions):
                measuring = Measuring(job.client, job.target, job.plan)
                await self._insert(job, measuring)
                self._wake.clear()
                begun.set()
                await self._attend(job, measuring)
        except DatabaseGone:
            if not begun.is_set():
                raise
            log.warning("the database is away: a measurement of %s broke off", job.target.engine)
        except Exception:
            if not begun.is_set():
                raise
            log.exception("a measurement of %s broke off", job.target.engine)  # the outermost of its task

    async def _attend(self, job: _Job, measuring: Measuring) -> None:
        """Keep the row, and with it everybody who watches, up to date until the work is over or has to end."""
        work = asyncio.create_task(measuring.run(), name="asking an engine")
        try:
            while not work.done():
                await self._pause(work)
                if because := await self._reason_to_end(job, measuring):
                    measuring.end(because)
                    work.cancel()
                    await asyncio.wait({work})
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            measuring.end(Ended.LOST)
            self._count(job, measuring)
        await self._store(job.run_id, measuring)
        if not work.cancelled() and (mistake := work.exception()):
            raise mistake

    async def _pause(self, work: "asyncio.Task[None]") -> None:
        woken = asyncio.create_task(self._wake.wait())
        try:
            await asyncio.wait({work, woken}, timeout=self._beat, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
        if not self._closing:
            self._wake.clear()

    async def _reason_to_end(self, job: _Job, measuring: Measuring) -> Ended | None:
        if await self._store(job.run_id, measuring):
            return Ended.CANCELLED
        if self._closing:
            return Ended.LOST
        if job.model_id is not None and self._are_waiting(job.model_id):
            return Ended.PEOPLE
        return None

    async def _insert(self, job: _Job, measuring: Measuring) -> None:
        async with self._sessions.begin() as session:
            session.add(
                BenchRun(
                    id=job.run_id,
                    engine_id=job.engine_id,
                    engine_name=job.target.engine,
                    upstream_name=job.target.model,
                    result=record_of(measuring),
                )
            )
            act_as(session, job.actor)
            target = audit.Target("measurement", job.run_id, job.target.model)
            await audit.record(session, Action.BENCH_STARTED, target, after={"engine": job.target.engine})

    async def _store(self, run_id: UUID, measuring: Measuring) -> bool:
        """Whether it was asked to stop; a row that is gone asks for it, too."""
        async with self._sessions.begin() as session:
            row = await session.scalar(queries.one(run_id).with_for_update())
            if row is None:
                return True
            stop = bool(row.result.get("stop"))
            row.result = record_of(measuring, stop=stop)
        return stop

    def _count(self, job: _Job, measuring: Measuring) -> None:
        call = Call(job.person_id, job.model_id, job.engine_id, None, Cause.BENCH)
        for sample in measuring.calls:
            note(self._ledger, call, sample)


def _target(row: BenchRun) -> audit.Target:
    return audit.Target("measurement", row.id, row.upstream_name)


def note(ledger: Ledger, call: Call, sample: Sample) -> None:
    """A request that brought nothing was not served, so it is not counted."""
    if sample.usage or sample.characters:
        ledger.note(call, sample.usage, prompt_characters=sample.prompt_characters, written=sample.characters)


def of(row: BenchRun, moment: datetime | None = None) -> Run:
    """A run whose process said nothing for a while is over, whatever the row says."""
    measurement = results.from_json(row.result)
    beat = datetime.fromisoformat(row.result["beat"])
    if measurement.ended is None and (moment or now()) - beat > _SILENT_AFTER:
        measurement = replace(measurement, ended=Ended.LOST)
        measurement = replace(measurement, meaning=meaning.of(measurement))
    return Run(
        row.id, row.engine_id, measurement, Progress(**row.result["progress"]), stops=bool(row.result.get("stop"))
    )


def record_of(measuring: Measuring, *, stop: bool = False) -> dict[str, Any]:
    """What is kept in the row: the record itself, and where it is."""
    progress = measuring.progress
    return measuring.measurement.as_json() | {
        "progress": {"people": progress.people, "answers": progress.answers, "of": progress.of},
        "beat": now().isoformat(),
        "stop": stop,
    }

"""Measurements in the database: one at a time in all processes, ended from any of them, and nothing left behind."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import select, update

from backend.accounts.models import User
from backend.bench import runs
from backend.bench.models import BenchRun
from backend.bench.plan import Plan
from backend.bench.results import Ended
from backend.bench.runs import Runs
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.errors import Conflict, NotFound
from backend.core.ids import new_id
from backend.engines.client import EngineClient
from backend.engines.events import Usage
from backend.engines.models import Deployment, Engine, Model, Source
from backend.usage.models import Cause
from backend.usage.service import Call
from tests.fakes.engine import FakeEngine

SMALL = Plan((1, 2), turns=1)


@dataclass
class Counted:
    """Where calls are counted, and the one client there is."""

    connection: EngineClient
    calls: list[tuple[Call, Usage | None]] = field(default_factory=list)

    def note(self, call: Call, usage: Usage | None, /, *, prompt_characters: int, written: int) -> None:
        self.calls.append((call, usage))

    def client(self, engine_id: UUID, /) -> EngineClient | None:
        return self.connection


@pytest.fixture
async def deployment(db: Sessions, engine: FakeEngine) -> Deployment:
    engine.script = ("Well, ", "yes.")
    row = Engine(id=new_id(), name="fake", url=engine.url, kind="vllm", source=Source.DATABASE)
    found = Deployment(id=new_id(), engine_id=row.id, upstream_name="fake-8b")
    async with db.begin() as session:
        session.add_all([row, found])
    return found


@pytest.fixture
async def counted(engine: FakeEngine) -> AsyncIterator[Counted]:
    async with EngineClient(engine.url) as client:
        yield Counted(client)


@pytest.fixture
async def make(db: Sessions, counted: Counted) -> AsyncIterator[Callable[..., Runs]]:
    """Processes that measure; what they still do at the end is ended."""
    made: list[Runs] = []

    def one_more(**options: object) -> Runs:
        made.append(Runs(db, counted, counted, beat=0.05, **options))  # type: ignore[arg-type]
        return made[-1]

    yield one_more
    for each in made:
        await each.close()


async def until_over(db: Sessions, run_id: UUID) -> runs.Run:
    async with asyncio.timeout(10):
        while True:
            async with db.begin() as session:
                run = runs.of((await session.scalars(select(BenchRun).where(BenchRun.id == run_id))).one())
            if not run.is_running:
                return run
            await asyncio.sleep(0.02)


async def start_when_free(process: Runs, deployment: Deployment, person: User) -> UUID:
    """The lock goes a moment after the row says that a measurement is over."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return await process.start(deployment.id, SMALL, person.id)
        except Conflict:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)


async def test_it_is_said_to_be_of_the_kind_that_the_engine_is_treated_as(
    db: Sessions, make: Callable[..., Runs], deployment: Deployment, carol: User
) -> None:
    async with db.begin() as session:
        await session.execute(update(Engine).values(forced_kind="vllm_router"))

    run = await until_over(db, await make().start(deployment.id, SMALL, carol.id))

    assert run.measurement.kind == "vllm_router"


async def test_a_measurement_is_kept_and_its_use_is_counted(
    db: Sessions, make: Callable[..., Runs], deployment: Deployment, counted: Counted, carol: User
) -> None:
    run_id = await make().start(deployment.id, SMALL, carol.id)
    run = await until_over(db, run_id)

    assert run.measurement.ended is Ended.DONE
    assert [level.answered for level in run.measurement.levels] == [1, 2]
    assert (run.measurement.engine, run.measurement.model, run.measurement.kind) == ("fake", "fake-8b", "vllm")
    async with asyncio.timeout(5):
        while len(counted.calls) < 4:
            await asyncio.sleep(0.01)
    assert {(call.user_id, call.cause, call.model_id) for call, _usage in counted.calls} == {
        (carol.id, Cause.BENCH, None)
    }
    assert all(usage for _call, usage in counted.calls)


async def test_only_one_runs_at_a_time_whoever_starts_it_and_anybody_can_end_it(
    db: Sessions, make: Callable[..., Runs], deployment: Deployment, engine: FakeEngine, carol: User
) -> None:
    engine.hold()
    here, elsewhere = make(), make()
    run_id = await here.start(deployment.id, SMALL, carol.id)
    await engine.until(lambda engine: engine.running == 1)

    for process in (here, elsewhere):
        with pytest.raises(Conflict, match="Another measurement is running"):
            await process.start(deployment.id, SMALL, carol.id)
    with pytest.raises(Conflict, match="End it first"):
        async with db.begin() as session:
            await elsewhere.delete(session, run_id)
    async with db.begin() as session:
        await elsewhere.cancel(session, run_id)
    run = await until_over(db, run_id)
    await engine.until(lambda engine: engine.running == 0)

    assert run.measurement.ended is Ended.CANCELLED
    async with db.begin() as session:
        await elsewhere.delete(session, run_id)
    engine.release()
    again = await start_when_free(elsewhere, deployment, carol)
    assert (await until_over(db, again)).measurement.ended is Ended.DONE


async def test_it_gives_way_when_people_wait_for_the_model(
    db: Sessions, make: Callable[..., Runs], deployment: Deployment, engine: FakeEngine, carol: User
) -> None:
    model = Model(id=new_id(), name="Linden", published=True)
    async with db.begin() as session:
        session.add(model)
        await session.flush()
        (await session.merge(deployment)).model_id = model.id
    waiting: set[UUID] = set()
    engine.hold()
    run_id = await make(are_waiting=waiting.__contains__).start(deployment.id, SMALL, carol.id)
    await engine.until(lambda engine: engine.running == 1)

    waiting.add(model.id)
    run = await until_over(db, run_id)
    await engine.until(lambda engine: engine.running == 0)

    assert run.measurement.ended is Ended.PEOPLE


async def test_a_process_on_its_way_out_ends_it_and_says_so(
    db: Sessions, make: Callable[..., Runs], deployment: Deployment, engine: FakeEngine, carol: User
) -> None:
    engine.hold()
    process = make()
    run_id = await process.start(deployment.id, SMALL, carol.id)
    await engine.until(lambda engine: engine.running == 1)

    await process.close()

    assert (await until_over(db, run_id)).measurement.ended is Ended.LOST
    await engine.until(lambda engine: engine.running == 0)
    with pytest.raises(Conflict, match="restarting"):
        await process.start(deployment.id, SMALL, carol.id)


async def test_one_whose_process_fell_silent_is_over(
    db: Sessions, make: Callable[..., Runs], deployment: Deployment, carol: User
) -> None:
    process = make()
    run_id = await process.start(deployment.id, SMALL, carol.id)
    await until_over(db, run_id)
    async with db.begin() as session:
        row = (await session.scalars(select(BenchRun))).one()
        row.result = row.result | {"ended": None, "beat": (now() - timedelta(minutes=1)).isoformat()}

    async with db.begin() as session:
        run = runs.of((await session.scalars(select(BenchRun))).one())
        assert (run.is_running, run.measurement.ended) == (False, Ended.LOST)
        assert "the process that measured ended" in run.measurement.meaning
        await process.delete(session, run_id)


async def test_what_is_not_offered_cannot_be_measured(
    make: Callable[..., Runs], deployment: Deployment, db: Sessions, carol: User
) -> None:
    with pytest.raises(NotFound):
        await make().start(new_id(), SMALL, carol.id)
    async with db.begin() as session:
        (await session.merge(deployment)).missing_since = now()
    with pytest.raises(NotFound):
        await make().start(deployment.id, SMALL, carol.id)

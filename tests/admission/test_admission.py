"""Admission with the real bus: in one process, and between several that share a database."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from backend.admission.dispatcher import Dispatcher
from backend.admission.follower import Follower
from backend.admission.messages import SHARED, topic_of
from backend.admission.service import Admission, Pace, Place, Urgency
from backend.core.bus import Bus
from tests.core.test_bus import end_connections

MODEL, OTHER = uuid4(), uuid4()
ALICE, BOB, CAROL = (uuid4() for _ in range(3))
PACE = Pace(beat=0.05, silence=1.0)


class Process:
    """What one process has of it."""

    def __init__(self, admission: Admission, bus: Bus) -> None:
        self.admission = admission
        self.bus = bus
        self.running = 0
        self.most = 0

    async def ask(
        self,
        person: UUID = ALICE,
        until: asyncio.Event | None = None,
        places: list[Place] | None = None,
        *,
        model: UUID = MODEL,
        urgency: Urgency = Urgency.CHAT,
    ) -> None:
        """An answer that takes as long as the test says."""
        told = places if places is not None else []
        async with self.admission.enter(model, person, urgency, cost=100, on_place=told.append) as ticket:
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await (until.wait() if until else asyncio.sleep(0.01))
                ticket.accepted()
                ticket.spent(120)
            finally:
                self.running -= 1

    @property
    def leads(self) -> bool:
        desk = self.admission._desk
        return isinstance(desk, Dispatcher) and desk.moment is not None

    @property
    def follows(self) -> bool:
        desk = self.admission._desk
        return isinstance(desk, Follower) and desk.leader is not None


class Company:
    """Processes on one database, which can begin and end."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._stacks: dict[Process, AsyncExitStack] = {}
        self.limits: dict[UUID, int | None] = {MODEL: 1, OTHER: 1}

    async def process(self, pace: Pace = PACE) -> Process:
        stack = AsyncExitStack()
        bus = await stack.enter_async_context(Bus(self._database, patience=1))
        admission = Admission(
            bus, limit_of=lambda model: self.limits[model], weight_of=lambda _person: 1, per_person=3, pace=pace
        )
        process = Process(await stack.enter_async_context(admission), bus)
        self._stacks[process] = stack
        return process

    async def processes(self, number: int) -> list[Process]:
        """The first one leads, and knows the others."""
        first, *others = [await self.process() for _ in range(number)]
        await until(lambda: first.leads and all(each.follows for each in others))
        await until(lambda: {each.bus.process_id for each in others} == first.admission._others())
        return [first, *others]

    async def end(self, process: Process) -> None:
        await self._stacks.pop(process).aclose()

    async def kill(self, process: Process) -> None:
        """As kill -9 does it: no last word, and its connections are gone."""
        beating = process.admission._beating
        assert beating is not None
        beating.cancel()
        for task in process.bus._tasks:
            task.cancel()
        await asyncio.gather(beating, *process.bus._tasks, return_exceptions=True)

    async def close(self) -> None:
        for process in list(self._stacks):
            await self.end(process)


@pytest.fixture
async def company(database: str) -> AsyncIterator[Company]:
    running = Company(database)
    yield running
    await running.close()


@asynccontextmanager
async def running(*asks: Coroutine[Any, Any, None]) -> AsyncIterator[list["asyncio.Task[None]"]]:
    tasks = [asyncio.create_task(ask) for ask in asks]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(what: Callable[[], object], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not what():
            await asyncio.sleep(0.005)


async def test_in_one_process_it_is_a_function_call(company: Company) -> None:
    """Entered without giving others a turn: nobody could have been asked."""
    one = await company.process()
    others_had_a_turn: list[bool] = []
    asyncio.get_running_loop().call_soon(lambda: others_had_a_turn.append(True))

    async with one.admission.enter(MODEL, ALICE, Urgency.CHAT, cost=1, on_place=lambda place: None):
        assert others_had_a_turn == []
        assert one.admission.running(MODEL) == 1

    assert one.leads
    assert one.admission.running(MODEL) == 0


async def test_whoever_waits_hears_where_and_stops_waiting_whenever_they_like(company: Company) -> None:
    one = await company.process()
    done, places, later = asyncio.Event(), list[Place](), list[Place]()

    async with running(
        one.ask(BOB, done), one.ask(BOB, done), one.ask(ALICE, done, places), one.ask(CAROL, done, later)
    ) as tasks:
        await until(lambda: places and later)
        assert (places[0].ahead, later[-1].ahead) == (0, 1)
        tasks[2].cancel()
        await until(lambda: later[-1].ahead == 0)
        assert one.admission.waiting(MODEL) == 2

        done.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    assert one.most == 1
    assert one.admission._tickets == {}
    assert (one.admission.waiting(MODEL), one.admission.running(MODEL)) == (0, 0)


async def test_one_limit_holds_for_all_processes_and_the_other_hears_its_place(company: Company) -> None:
    one, other = await company.processes(2)
    first, second, places = asyncio.Event(), asyncio.Event(), list[Place]()

    async with running(one.ask(BOB, first), other.ask(ALICE, second, places)):
        await until(lambda: places)
        assert (one.running, other.running) == (1, 0)
        assert not places[0].own

        first.set()
        await until(lambda: other.running == 1)
        await until(lambda: other.admission.running(MODEL) == 1)
        assert one.running == 0
        second.set()
        await until(lambda: one.admission.running(MODEL) == 0)


async def test_a_persons_limit_counts_over_models_and_processes(company: Company) -> None:
    company.limits = {MODEL: None, OTHER: None}
    one, other = await company.processes(2)
    done, places = asyncio.Event(), list[Place]()

    async with running(one.ask(ALICE, done), one.ask(ALICE, done, model=OTHER), other.ask(ALICE, done)) as tasks:
        await until(lambda: one.running + other.running == 3)
        async with running(other.ask(ALICE, None, places, model=OTHER), other.ask(BOB, done)):
            await until(lambda: places and other.running == 2)
            assert places == [Place(0, None, True)]
            done.set()
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("who", ["leader", "follower"])
async def test_what_a_killed_process_had_is_free_again_and_nobody_is_stuck(company: Company, who: str) -> None:
    one, other, third = await company.processes(3)
    killed = one if who == "leader" else other

    async with running(killed.ask(BOB, asyncio.Event())):
        await until(lambda: killed.running == 1)
        places: list[Place] = []
        async with running(third.ask(ALICE, None, places)) as waiting:
            await until(lambda: places)
            await company.kill(killed)
            await asyncio.wait_for(waiting[0], 15)


async def test_a_new_leader_lets_nobody_in_beyond_what_runs_elsewhere(company: Company) -> None:
    company.limits[MODEL] = 2
    one, other, third = await company.processes(3)
    done = asyncio.Event()

    async with running(other.ask(BOB, done), third.ask(CAROL, done)) as tasks:
        await until(lambda: other.running + third.running == 2)
        await company.end(one)
        async with running(other.ask(ALICE), third.ask(ALICE)) as more:
            await until(lambda: other.leads or third.leads)
            new = other if other.leads else third
            await until(lambda: new.admission.running(MODEL) == 2 and new.admission.waiting(MODEL) == 2)
            assert other.running + third.running == 2
            done.set()
            await asyncio.wait_for(asyncio.gather(*tasks, *more), 15)

    assert not any(process.admission._tickets for process in (other, third))


async def test_a_word_that_was_lost_is_said_again(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grants and requests alike, as when the database is away for a moment."""
    one, other = await company.processes(2)

    send = one.bus.post

    def lose_grants(topic: str, payload: dict[str, Any]) -> None:
        if topic != topic_of(other.bus.process_id) or "grants" not in payload:
            send(topic, payload)

    monkeypatch.setattr(one.bus, "post", lose_grants)
    async with running(other.ask(ALICE)) as tasks:
        await until(lambda: one.admission.running(MODEL) == 1)
        monkeypatch.undo()
        await asyncio.wait_for(tasks[0], 15)

    monkeypatch.setattr(other.bus, "post", lambda topic, payload: None)
    async with running(other.ask(ALICE)) as tasks:
        await asyncio.sleep(0)
        monkeypatch.undo()
        await asyncio.wait_for(tasks[0], 15)
    await until(lambda: len(one.admission._desk._fair) == 0)  # type: ignore[union-attr]


async def nowhere(_bus: Bus, _what_for: str) -> None:
    raise OSError("the database is away")


async def test_while_nothing_is_heard_each_process_takes_its_share(
    company: Company, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    company.limits[MODEL] = 4
    one, other = await company.processes(2)
    done = asyncio.Event()

    monkeypatch.setattr(Bus, "_connect", nowhere)
    end_connections(database, "listens")
    await until(lambda: not one.bus.connected and not other.bus.connected)
    async with running(*(process.ask(uuid4(), done) for process in (one, other) for _ in range(3))) as tasks:
        await until(lambda: one.running == other.running == 2)
        monkeypatch.undo()  # and now all of it is counted again, wherever it was let in
        await until(lambda: sorted((one.leads, other.leads)) == [False, True] and (one.follows or other.follows))
        await until(lambda: one.admission.running(MODEL) == other.admission.running(MODEL) == 4)
        done.set()
        await asyncio.gather(*tasks)


async def test_a_leader_that_says_nothing_holds_nobody_up(company: Company) -> None:
    """As one that the system has stopped: it has the lock, and is heard again later."""
    one, other = await company.processes(2)
    beating = one.admission._beating
    assert beating is not None

    one.bus.off(topic_of(one.bus.process_id), one.admission._told)
    one.bus.off(SHARED, one.admission._announced)
    beating.cancel()
    await asyncio.wait_for(other.ask(ALICE), 15)
    assert not other.follows

    one.bus.on(topic_of(one.bus.process_id), one.admission._told)
    one.bus.on(SHARED, one.admission._announced)
    await until(lambda: other.follows)
    await asyncio.wait_for(other.ask(ALICE), 15)


async def test_many_who_come_and_go_at_once_break_no_limit_and_leave_nothing_behind(company: Company) -> None:
    company.limits[MODEL] = 3
    one, other = await company.processes(2)
    random = Random(3)
    people = [uuid4() for _ in range(6)]

    async def somebody(process: Process) -> None:
        for _ in range(6):
            task = asyncio.create_task(process.ask(random.choice(people), urgency=random.choice(list(Urgency))))
            if random.random() < 0.4:
                await asyncio.sleep(random.choice([0, 0, 0.001, 0.01, 0.05]))
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert one.running + other.running <= 3

    await asyncio.wait_for(asyncio.gather(*(somebody(process) for process in (one, other) for _ in range(20))), 60)

    assert one.admission._tickets == other.admission._tickets == {}
    await until(lambda: len(one.admission._desk._fair) == 0)  # type: ignore[union-attr]
    assert (one.admission.waiting(MODEL), one.admission.running(MODEL)) == (0, 0)

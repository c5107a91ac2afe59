"""One model on several engines: who answers, and what happens when they do not."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import update

from backend.admission.service import Admission
from backend.core.bus import Bus
from backend.core.ids import new_id
from backend.engines.client import ChatRequest
from backend.engines.events import Delta, EngineFailed, Failure
from backend.engines.metrics import Slots
from backend.engines.models import Model
from backend.engines.pool import Ask, Pool, Urgency
from backend.engines.registry import Endpoint, NoEngineAvailable, Offer, Registry
from backend.engines.service import find_engine
from tests.engines import strangers
from tests.engines.conftest import Ground, until
from tests.fakes.admission import Always
from tests.fakes.engine import HANG, HANG_UP, FakeEngine, Script, Status, refusal


@dataclass
class Told:
    """What came of one question."""

    text: str = ""
    asked: list[str] = field(default_factory=list)  # names of engines
    failures: list[Failure] = field(default_factory=list)


class House:
    """Engines with one model, and the pool in front of them. Each answers with its own name."""

    def __init__(self, ground: Ground, registry: Registry, engines: list[FakeEngine]) -> None:
        self.ground = ground
        self.registry = registry
        self.engines = engines
        self.admission = Always()
        self.pool = Pool(registry, self.admission)
        self.on_request: Callable[[], None] = lambda: None

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return self.registry.offers[0].endpoints

    async def ask(
        self, chat: UUID | None = None, told: Told | None = None, *, text: str = "Hi", offer: Offer | None = None
    ) -> Told:
        told = told or Told()

        async def request(endpoint: Endpoint) -> ChatRequest:
            self.on_request()
            return ChatRequest(endpoint.upstream_name, [{"role": "user", "content": text}])

        ask = Ask(
            offer=offer or self.registry.offers[0],
            person_id=new_id(),
            affinity=chat,
            urgency=Urgency.CHAT,
            cost=10,
            request=request,
            on_place=lambda _place: None,
            on_endpoint=lambda endpoint: told.asked.append(endpoint.engine_name),
            on_failure=lambda _endpoint, failure: told.failures.append(failure.kind),
        )
        async with aclosing(self.pool.answer(ask)) as batches:
            async for events in batches:
                told.text += "".join(event.text for event in events if isinstance(event, Delta))
        return told

    async def chat_of(self, number: int) -> UUID:
        """A conversation whose favourite is this engine."""
        while True:
            chat = new_id()
            if self.registry.choose(self.registry.offers[0], chat).engine_name == f"engine-{number}":
                return chat

    async def drain(self, number: int, *, draining: bool = True) -> None:
        async with self.ground.db.begin() as session:
            engine = await find_engine(session, self.endpoints[number - 1].engine_id)
            engine.draining = draining
        await self.registry.reload()


Build = Callable[..., Awaitable[House]]


@pytest.fixture
def house(ground: Ground) -> Build:
    async def build(count: int = 2, *, probe_seconds: float = 60, **given: Any) -> House:
        engines = [await ground.engine(models=["linden"]) for _ in range(count)]
        for number, engine in enumerate(engines, 1):
            engine.script = (f"engine-{number}",)
        urls = [engine.url for engine in engines]
        registry = await ground.registry(*urls, probe_seconds=probe_seconds, **given)
        await registry.first_look()
        await ground.publish("linden")
        await registry.reload()
        assert len(registry.offers[0].endpoints) == count
        return House(ground, registry, engines)

    return build


def busy(seconds: int) -> Status:
    return Status(429, {"error": {"message": "Model is overloaded"}}, {"Retry-After": str(seconds)})


def plan(engine: FakeEngine, script: Script, times: int = 1) -> None:
    engine.plan(*[script] * times)


async def test_a_conversation_stays_with_its_engine_and_conversations_spread(house: Build) -> None:
    here = await house(2)
    chats = [new_id() for _ in range(12)]

    first = [(await here.ask(chat)).text for chat in chats]
    again = [(await here.ask(chat)).text for chat in chats]

    assert first == again
    assert set(first) == {"engine-1", "engine-2"}
    assert here.admission.accepted_ones == 24
    assert len(here.admission.tokens) == 24
    assert here.admission.inside == 0


async def test_a_full_engine_spills_to_the_other(house: Build) -> None:
    here = await house(2)
    chat = await here.chat_of(1)
    here.registry._watches[here.endpoints[0].engine_id].readings.add({}, Slots(1), ours=0)
    here.engines[0].hold()
    held = asyncio.create_task(here.ask(chat))
    await here.engines[0].until(lambda engine: engine.running == 1)

    other = await here.ask(chat)
    here.engines[0].release()

    assert other.text == "engine-2"
    assert (await held).text == "engine-1"
    assert (await here.ask(chat)).text == "engine-1"


# Another one answers


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (refusal(503, "The server is busy."), Failure.OVERLOADED),
        (refusal(500, "EngineCore encountered an issue."), Failure.DEAD),
        (refusal(401, "Unauthorized"), Failure.AUTH),
        (refusal(404, "The model `linden` does not exist."), Failure.UNKNOWN_MODEL),
        ((HANG_UP,), Failure.CUT),
    ],
)
async def test_before_the_first_word_another_engine_takes_over(house: Build, script: Script, kind: Failure) -> None:
    here = await house(2)
    plan(here.engines[0], script)

    told = await here.ask(await here.chat_of(1))

    assert (told.text, told.asked, told.failures) == ("engine-2", ["engine-1", "engine-2"], [kind])
    assert len(here.engines[0].requests) == 1


async def test_an_engine_that_is_gone_is_passed_over_and_looked_at(house: Build) -> None:
    here = await house(2)
    chat = await here.chat_of(1)
    await asyncio.to_thread(here.engines[0].stop)

    told = await here.ask(chat)

    assert (told.text, told.failures) == ("engine-2", [Failure.UNREACHABLE])
    await until(lambda: here.endpoints[0].problem)  # it would not have been its turn for a minute
    assert (await here.ask(chat)).asked == ["engine-2"]


async def test_an_engine_that_never_begins_is_given_up_for_another(house: Build) -> None:
    here = await house(2, first_token_seconds=0.3)
    plan(here.engines[0], HANG)

    told = await here.ask(await here.chat_of(1))

    assert (told.text, told.failures) == ("engine-2", [Failure.TIMEOUT])


async def test_after_the_first_word_nobody_else_is_asked(house: Build) -> None:
    here = await house(2)
    plan(here.engines[0], ("Well, ", HANG_UP))
    told = Told()

    with pytest.raises(EngineFailed) as caught:
        await here.ask(await here.chat_of(1), told)

    assert caught.value.kind is Failure.CUT
    assert (told.text, told.asked) == ("Well, ", ["engine-1"])
    assert here.engines[1].questions == []


@pytest.mark.parametrize(
    "script",
    [
        refusal(400, "temperature must be non-negative"),
        refusal(400, "This model's maximum context length is 10 tokens."),
        refusal(429, "You exceeded your current quota.", "insufficient_quota"),
        (),
    ],
)
async def test_what_would_fail_anywhere_is_not_sent_around(house: Build, script: Script) -> None:
    here = await house(2)
    plan(here.engines[0], script)
    told = Told()

    with pytest.raises(EngineFailed):
        await here.ask(await here.chat_of(1), told)

    assert told.asked == ["engine-1"]
    assert len(here.engines[0].requests) == 1


async def test_a_question_that_kills_engines_does_not_kill_them_all(house: Build) -> None:
    here = await house(4)
    for engine in here.engines:
        plan(engine, (HANG_UP,))
    told = Told()

    with pytest.raises(EngineFailed):
        await here.ask(new_id(), told)

    assert len(set(told.asked)) == len(told.asked) == 3


async def test_the_only_engine_is_asked_once_more_after_a_moment_to_start(house: Build) -> None:
    here = await house(1)
    plan(here.engines[0], refusal(503, "Loading model"))

    told = await here.ask()

    assert (told.text, told.failures) == ("engine-1", [Failure.LOADING])
    assert here.admission.entered == 1


async def test_the_only_engine_is_not_pestered(house: Build) -> None:
    here = await house(1)
    plan(here.engines[0], refusal(503, "Loading model"), 5)

    with pytest.raises(EngineFailed):
        await here.ask()

    assert len(here.engines[0].requests) == 2
    assert here.admission.inside == 0


@pytest.mark.parametrize("script", [refusal(503, "busy"), busy(1)])
async def test_who_is_refused_by_all_engines_that_are_left_goes_back_into_line(house: Build, script: Script) -> None:
    """And not to the one that failed otherwise."""
    here = await house(2)
    plan(here.engines[0], script, 2)
    plan(here.engines[1], (HANG_UP,), 9)

    told = await here.ask(await here.chat_of(1))

    assert told.text == "engine-1"
    assert told.asked == ["engine-1", "engine-2", "engine-1", "engine-1"]
    assert told.failures == [Failure.OVERLOADED, Failure.CUT, Failure.OVERLOADED]
    assert (here.admission.entered, len(here.admission.refusals), here.admission.inside) == (3, 2, 0)


async def test_one_that_is_full_beside_another_that_takes_it_lowers_nothing(house: Build) -> None:
    here = await house(2)
    plan(here.engines[0], busy(30), 1)

    told = await here.ask(await here.chat_of(1))

    assert told.text == "engine-2"
    assert here.admission.refusals == []


async def test_who_waits_for_a_model_that_is_withdrawn_is_told_so(house: Build) -> None:
    here = await house(1)
    offer = here.registry.offers[0]
    async with here.ground.db.begin() as session:
        await session.execute(update(Model).values(published=False))
    await here.registry.reload()

    with pytest.raises(NoEngineAvailable, match="not offered any more"):
        await here.ask(offer=offer)

    assert here.engines[0].requests == []


async def test_who_was_refused_waits_no_longer_than_for_a_first_word(house: Build) -> None:
    here = await house(1, first_token_seconds=0.3)
    plan(here.engines[0], refusal(503, "busy"), 9)
    here.admission.close_after(1)

    with pytest.raises(EngineFailed) as caught:
        await here.ask()

    assert caught.value.kind is Failure.OVERLOADED
    assert len(here.engines[0].requests) == 1
    assert here.admission.inside == 0


async def test_an_engine_that_asks_for_more_time_than_that_is_not_waited_for(house: Build) -> None:
    here = await house(1, first_token_seconds=5)
    plan(here.engines[0], busy(30), 5)

    with pytest.raises(EngineFailed):
        await here.ask()

    assert len(here.engines[0].requests) == 1


async def test_in_the_real_line_refusals_become_waiting_and_everybody_is_answered(house: Build, database: str) -> None:
    """An engine that takes one answer at a time, and refuses all others meanwhile."""
    here = await house(1)
    engine = here.engines[0]
    engine.seats, engine.queue = 1, 0
    engine.hold()
    async with (
        Bus(database) as bus,
        Admission(bus, limit_of=here.registry.limit_of, weight_of=lambda _person: 1, per_person=9) as admission,
    ):
        here.pool = Pool(here.registry, admission)
        first = asyncio.create_task(here.ask())
        await engine.until(lambda engine: engine.running == 1)
        others = asyncio.gather(*(here.ask() for _ in range(3)))
        await engine.until(lambda engine: engine.counters.rejected >= 1, 30)
        engine.release()
        told = [await first, *await others]

    assert [each.text for each in told] == ["engine-1"] * 4
    assert engine.counters.rejected < 8  # they wait for their turn, and do not just ask again and again


async def test_an_endpoint_is_known_to_be_asked_before_its_request_is_ready(house: Build) -> None:
    here = await house(2)
    chat, engine_id = await here.chat_of(1), here.endpoints[0].engine_id
    seen: list[int] = []
    here.on_request = lambda: seen.append(here.registry.traffic.running_on(engine_id))

    await here.ask(chat)

    assert seen == [1]


# It is left alone for a while


async def test_an_engine_that_keeps_failing_is_left_alone(house: Build) -> None:
    """Although it lists its models as if nothing were the matter."""
    here = await house(2)
    plan(here.engines[0], refusal(500, "EngineCore encountered an issue."), 9)
    chat = await here.chat_of(1)
    for _ in range(3):
        await here.ask(chat)

    assert (await here.ask(chat)).asked == ["engine-2"]
    assert len(here.engines[0].requests) == 3
    assert here.endpoints[0].problem is None


async def test_when_all_are_left_alone_the_reader_is_told_at_once(house: Build) -> None:
    here = await house(1)
    plan(here.engines[0], (HANG_UP,), 9)
    for _ in range(3):
        with pytest.raises(EngineFailed):
            await here.ask()

    with pytest.raises(NoEngineAvailable, match="tried again in a moment"):
        await here.ask()


# Draining


async def test_a_drained_engine_gets_nothing_new_and_ends_what_it_began(house: Build) -> None:
    here = await house(2)
    chat = await here.chat_of(1)
    here.engines[0].hold()
    running = asyncio.create_task(here.ask(chat))
    await here.engines[0].until(lambda engine: engine.running == 1)
    engine_id = here.endpoints[0].engine_id

    await here.drain(1)
    during = here.registry.traffic.running_on(engine_id)
    elsewhere = [await here.ask(chat), await here.ask()]
    here.engines[0].release()

    assert during == 1
    assert [told.asked for told in elsewhere] == [["engine-2"], ["engine-2"]]
    assert (await running).text == "engine-1"
    assert here.registry.traffic.running_on(engine_id) == 0
    status = next(engine for engine in here.registry.engines if engine.id == engine_id)
    assert (status.draining, status.health.problem) == (True, None)


async def test_a_drained_engine_is_still_looked_at_and_can_be_taken_back(house: Build) -> None:
    here = await house(1, probe_seconds=0.1)
    await here.drain(1)
    with pytest.raises(NoEngineAvailable, match="takes no new questions"):
        await here.ask()
    before = here.registry.engines[0].health.checked_at
    await until(lambda: here.registry.health(here.registry.engines[0].id).checked_at != before)

    await here.drain(1, draining=False)

    assert (await here.ask()).text == "engine-1"


# How busy they are


async def test_what_engines_tell_of_their_load_is_kept_for_choosing_and_for_charts(house: Build) -> None:
    here = await house(1, probe_seconds=0.1)
    engine, engine_id = here.engines[0], here.endpoints[0].engine_id
    engine.script = ("one ", "two ", "three")
    await here.ask()
    engine.hold()
    held = asyncio.create_task(here.ask())

    def load_shows(running: int) -> bool:
        load = here.registry.load(engine_id)
        return load is not None and load.running == running

    await until(lambda: load_shows(1))
    engine.release()
    await held
    await until(lambda: load_shows(0))

    loads = here.registry.loads(engine_id)
    assert any(load.tokens_per_second for load in loads)
    assert any(load.ttft is not None for load in loads)
    assert here.registry.limit_of(here.registry.offers[0].id) is None  # vLLM does not tell


async def test_an_engine_without_numbers_is_not_asked_for_them_again_and_again(ground: Ground) -> None:
    server = strangers.WebServer(b'{"data": [{"id": "linden", "owned_by": "vllm"}]}', "application/json")
    with server.running() as url:
        registry = await ground.registry(url, probe_seconds=0.05)
        await until(lambda: server.asked.count("/v1/models") > 6)

    assert server.asked.count("/metrics") <= 1
    assert registry.loads(registry.engines[0].id) == ()


async def test_the_limit_of_a_model_is_the_sum_of_the_slots_of_its_healthy_engines(house: Build) -> None:
    here = await house(2)
    for endpoint, slots in zip(here.endpoints, (4, 8), strict=True):
        here.registry._watches[endpoint.engine_id].readings.add({}, Slots(slots), ours=0)
    model_id = here.registry.offers[0].id
    together = here.registry.limit_of(model_id)

    await here.drain(2)

    assert together == 12
    assert here.registry.limit_of(model_id) == 4
    assert here.registry.limit_of(new_id()) == 1, "who waits for it is told so one after the other"

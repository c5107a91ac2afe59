"""One model on two engines, as a conversation meets them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import select

from backend.conversations import service
from backend.conversations.asking import Turn
from backend.conversations.comparison import compare
from backend.conversations.models import Conversation, Message, Status
from backend.core.clock import now
from backend.core.settings import EngineSetting, Settings
from backend.engines import publishing, trials
from backend.engines.models import Deployment, Engine, Model, Stage
from tests.conversations.conftest import Desk
from tests.fakes.engine import FakeEngine, refusal
from web.chat.provenance import facts


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with FakeEngine() as running:
        yield running


@pytest.fixture
def other() -> Iterator[FakeEngine]:
    with FakeEngine() as running:
        yield running


@pytest.fixture
def settings(settings: Settings, engine: FakeEngine, other: FakeEngine, tmp_path: Path) -> Settings:
    engines = (EngineSetting(name="first", url=engine.url), EngineSetting(name="second", url=other.url))
    return settings.model_copy(update={"engines": engines, "data_dir": tmp_path})


@pytest.fixture
async def both(desk: Desk, engine: FakeEngine, other: FakeEngine) -> dict[str, FakeEngine]:
    """By name, once both serve the model and are known to go on with answers."""
    await desk.registry.first_look()
    async with desk.db.begin() as session:
        for found in (await session.scalars(select(Deployment).where(Deployment.model_id.is_(None)))).all():
            await publishing.publish(session, found)
    await desk.registry.reload()
    for each in desk.registry.engines:
        desk.registry.look_now(each.id)
    async with asyncio.timeout(10):
        while [each.continues for each in desk.registry.offers[0].endpoints] != [True, True]:
            await asyncio.sleep(0.01)
    return {"first": engine, "second": other}


async def begun(desk: Desk, both: dict[str, FakeEngine], text: str = "One, ") -> tuple[Turn, str]:
    """An answer that stands still after its first word, and the name of its engine."""
    for each in both.values():
        each.script = (text, asyncio.Event(), "two.")
    turn = await desk.ask("Count")
    await desk.written(turn, text)
    name = desk.turns._running[turn.answer.id].endpoint
    assert name is not None
    return turn, name.engine_name


async def test_killing_an_engine_interrupts_its_answer_and_another_one_goes_on(
    desk: Desk, both: dict[str, FakeEngine]
) -> None:
    turn, name = await begun(desk, both)
    survivor = next(each for each in both if each != name)
    both[survivor].script = ("One, ", "two.")

    await asyncio.to_thread(both[name].stop)
    answer = await desk.ended(turn)
    went_on = await desk.message(await desk.turns.proceed(answer))
    async with asyncio.timeout(5):
        while (went_on := await desk.message(went_on.id)).status.running:
            await asyncio.sleep(0.01)

    assert (answer.status, answer.text) == (Status.INTERRUPTED, "One, ")
    assert (went_on.id, went_on.status, went_on.text) == (answer.id, Status.DONE, "One, two.")
    assert went_on.provenance["engine"] == survivor
    assert [earlier["engine"] for earlier in went_on.provenance["earlier"]] == [name]


async def test_what_a_killed_engine_began_can_be_asked_again_elsewhere(desk: Desk, both: dict[str, FakeEngine]) -> None:
    turn, name = await begun(desk, both)
    survivor = next(each for each in both if each != name)
    both[survivor].script = ("Quite another answer.",)

    await asyncio.to_thread(both[name].stop)
    answer = await desk.ended(turn)
    again = await desk.turns.regenerate(answer)
    async with asyncio.timeout(5):
        while (again := await desk.message(again.id)).status.running:
            await asyncio.sleep(0.01)

    assert (again.text, again.provenance["engine"]) == ("Quite another answer.", survivor)


async def test_an_answer_keeps_who_was_asked_before_it_began(desk: Desk, both: dict[str, FakeEngine]) -> None:
    for each in both.values():
        each.script = ("Yes.",)
    turn = await desk.ask("One?")
    favourite = (await desk.ended(turn)).provenance["engine"]
    both[favourite].plan(refusal(503, "The server is busy."))

    answer = await desk.ended(await desk.ask("Two?", turn.conversation))

    assert (answer.status, answer.text) == (Status.DONE, "Yes.")
    assert answer.provenance["engine"] != favourite
    assert [(each["engine"], each["failure"]) for each in answer.provenance["tries"]] == [(favourite, "overloaded")]
    assert ("Asked in vain before", favourite) in facts(answer)
    assert "tries" not in (await desk.ended(await desk.ask("Three?", turn.conversation))).provenance


async def test_who_is_refused_by_all_waits_in_line_and_is_answered(desk: Desk, both: dict[str, FakeEngine]) -> None:
    for each in both.values():
        each.script = ("Yes.",)
        each.plan(*[refusal(503, "The server is busy.")] * 2)

    answer = await desk.ended(await desk.ask("One?"))

    assert (answer.status, answer.text) == (Status.DONE, "Yes.")
    assert {each["failure"] for each in answer.provenance["tries"]} == {"overloaded"}
    assert sum(len(each.questions) for each in both.values()) > 2


async def test_a_conversation_goes_on_where_its_beginning_is_cached(desk: Desk, both: dict[str, FakeEngine]) -> None:
    for each in both.values():
        each.script = ("Yes.",)
    turns = [await desk.ask(f"About number {number}: " + f"{number} words. " * 50) for number in range(4)]
    first = [(await desk.ended(turn)).provenance["engine"] for turn in turns]

    second = [(await desk.ended(await desk.ask("Two?", turn.conversation))).provenance for turn in turns]

    assert [each["engine"] for each in second] == first
    assert all(each["cached_tokens"] > 0 for each in second)


async def put_on_trial(desk: Desk, engine: str, share: str) -> None:
    async with desk.db.begin() as session:
        found = await session.scalars(select(Deployment).join(Deployment.engine).where(Engine.name == engine))
        deployment = found.one()
        await trials.begin(session, deployment)
        await trials.assign(session, await session.get_one(Model, deployment.model_id), share=share, group="")
    await desk.registry.reload()


async def answered_by(desk: Desk, conversation: Conversation | None = None) -> tuple[str, Conversation]:
    turn = await desk.ask("Who are you?", conversation)
    return (await desk.ended(turn)).provenance["engine"], turn.conversation


async def test_a_conversation_stays_on_the_revision_it_began_with(desk: Desk, both: dict[str, FakeEngine]) -> None:
    await put_on_trial(desk, "second", "0")
    before = [await answered_by(desk) for _ in range(4)]
    await put_on_trial(desk, "second", "100")

    tried = [await answered_by(desk) for _ in range(4)]
    again = [await answered_by(desk, conversation) for _engine, conversation in before]
    async with desk.db.begin() as session:
        await trials.promote(session, (await session.scalars(select(Model))).one())
    await desk.registry.reload()

    assert {engine for engine, _conversation in before} == {"first"}
    assert {engine for engine, _conversation in tried} == {"second"}
    assert {engine for engine, _conversation in again} == {"first"}
    assert (await answered_by(desk, before[0][1]))[0] == "first", "it stays, also when the other one is promoted"
    assert (await answered_by(desk))[0] == "second"


async def test_a_trial_that_is_rolled_back_is_left_at_once(desk: Desk, both: dict[str, FakeEngine]) -> None:
    await put_on_trial(desk, "second", "100")
    engine, conversation = await answered_by(desk)

    async with desk.db.begin() as session:
        await trials.roll_back(session, (await session.scalars(select(Model))).one())
    await desk.registry.reload()

    assert engine == "second"
    assert (await answered_by(desk, conversation))[0] == "first"


async def test_where_the_trial_cannot_answer_the_other_revision_does(desk: Desk, both: dict[str, FakeEngine]) -> None:
    await put_on_trial(desk, "second", "100")
    both["second"].plan(refusal(503, "The server is busy."))

    engine, conversation = await answered_by(desk)

    assert engine == "first"
    assert (await answered_by(desk, conversation))[0] == "first", "it began there"


async def until_ended(desk: Desk, answer_id: UUID) -> Message:
    async with asyncio.timeout(20):
        while (answer := await desk.message(answer_id)).status.running:
            await asyncio.sleep(0.01)
    return answer


async def test_another_answer_to_the_first_question_comes_from_the_same_revision(
    desk: Desk, both: dict[str, FakeEngine]
) -> None:
    await put_on_trial(desk, "second", "0")
    first = [await desk.ended(await desk.ask("Who are you?")) for _ in range(3)]
    await put_on_trial(desk, "second", "100")

    again = [await desk.turns.regenerate(answer) for answer in first]

    assert [(await until_ended(desk, each.id)).provenance["engine"] for each in again] == ["first"] * 3


async def test_half_an_answer_of_a_trial_that_was_rolled_back_is_not_finished_by_the_other_revision(
    desk: Desk, both: dict[str, FakeEngine]
) -> None:
    await put_on_trial(desk, "second", "100")
    turn, _name = await begun(desk, both)
    await desk.turns.stop(turn.answer)
    left, _name = await begun(desk, both)
    async with desk.db.begin() as session:
        await trials.roll_back(session, (await session.scalars(select(Model))).one())
    await desk.registry.reload()
    lost = await desk.lose(left)

    resumed = await until_ended(desk, left.answer.id)
    stopped = await desk.message(turn.answer.id)
    goes_on = await desk.turns.proceed(stopped)

    assert (resumed.status, resumed.text) == (Status.INTERRUPTED, "One,")
    assert resumed.provenance["earlier"][0]["engine"] == "second", "it was said with the first part"
    assert not desk.turns.can_proceed(stopped)
    assert goes_on != stopped.id, "a turn of its own"
    assert (await desk.message(stopped.id)).text == "One, "
    await lost.hang_up()


async def test_what_a_revision_did_not_begin_counts_as_broken_off(desk: Desk, both: dict[str, FakeEngine]) -> None:
    began = now()
    await put_on_trial(desk, "second", "100")
    both["second"].plan(refusal(500, "Something broke."))

    answer = await desk.ended(await desk.ask("One?"))
    figures = await compare(desk.direct, desk.model_id, began)

    assert answer.provenance["engine"] == "first"
    assert (figures[Stage.TRIAL].answers, figures[Stage.TRIAL].broken) == (1, 1)
    assert (figures[Stage.CURRENT].answers, figures[Stage.CURRENT].broken) == (1, 0)


async def test_revisions_are_compared_by_counts_and_medians(desk: Desk, both: dict[str, FakeEngine]) -> None:
    for each in both.values():
        each.script = ("Yes, ", "and more.")
    began = now()
    await put_on_trial(desk, "second", "0")
    old = await desk.ended(await desk.ask("One?"))
    await put_on_trial(desk, "second", "100")
    new = [await desk.ended(await desk.ask(text)) for text in ("Two?", "Three?")]
    async with desk.db.as_person(desk.owner.id) as session:
        for answer, rating in ((old, -1), (new[0], 1)):
            service.rate(await session.get_one(Message, answer.id), rating)
        await service.fork(session, await session.get_one(Message, new[0].id))

    records = await compare(desk.direct, desk.model_id, began)

    assert {stage: (record.answers, record.good, record.bad) for stage, record in records.items()} == {
        Stage.CURRENT: (1, 0, 1),
        Stage.TRIAL: (2, 1, 0),
    }, "what was forked was not answered again"
    assert all(record.first_token_seconds is not None for record in records.values())
    assert await compare(desk.direct, desk.model_id, now()) == {}

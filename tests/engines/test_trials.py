"""A new revision for some: who gets it, and what becomes of them when it is promoted or rolled back."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID, uuid5

import pytest
from sqlalchemy import select

from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.errors import BadInput, Conflict
from backend.core.ids import new_id
from backend.engines import trials
from backend.engines.models import Deployment, Engine, Model, Source, Stage
from backend.engines.snapshot import Endpoint, Offer
from backend.engines.trials import Begun
from backend.groups import service as groups
from tests.engines.test_choosing import endpoint

SPACE = UUID(int=0)
CHATS = [uuid5(SPACE, f"conversation {number}") for number in range(1000)]
PERSON = uuid5(SPACE, "a person")
NOW = now()


def at(number: int, stage: Stage) -> Endpoint:
    return replace(endpoint(number), stage=stage)


def offer(*endpoints: Endpoint, share: int = 0, people: frozenset[UUID] = frozenset()) -> Offer:
    rules = {"trial_share": share, "trial_people": people, "trial_since": NOW - timedelta(days=1)}
    return Offer(SPACE, "Linden", "", "", True, None, None, endpoints, **rules)  # type: ignore[arg-type]


OLD, NEW = at(1, Stage.CURRENT), at(2, Stage.TRIAL)


def begun(*deployments: UUID | None, at: datetime = NOW) -> list[Begun]:
    return [Begun(each, at) for each in deployments]


def stage_of(of: Offer, chat: UUID | None, person: UUID, began_on: Sequence[UUID | None]) -> Stage:
    (stage,) = {endpoint.stage for endpoint in trials.fitting(of, chat, person, begun(*began_on))}
    return stage


def trying(of: Offer) -> set[UUID]:
    return {chat for chat in CHATS if stage_of(of, chat, PERSON, ()) is Stage.TRIAL}


def test_about_the_given_share_of_new_conversations_tries_the_new_revision() -> None:
    assert trying(offer(OLD, NEW, share=0)) == set()
    assert 200 < len(trying(offer(OLD, NEW, share=25))) < 300
    assert trying(offer(OLD, NEW, share=100)) == set(CHATS)


def test_a_larger_share_takes_nobody_out_of_the_trial() -> None:
    assert trying(offer(OLD, NEW, share=10)) < trying(offer(OLD, NEW, share=20))


def test_all_new_conversations_of_the_group_try_it_and_a_strangers_do_not() -> None:
    some = offer(OLD, NEW, people=frozenset({PERSON}))

    assert trying(some) == set(CHATS)
    assert stage_of(some, CHATS[0], new_id(), ()) is Stage.CURRENT


def test_what_belongs_to_no_conversation_is_not_drawn() -> None:
    assert stage_of(offer(OLD, NEW, share=100), None, PERSON, ()) is Stage.CURRENT


def test_a_conversation_stays_where_it_began_whatever_the_share_becomes() -> None:
    on_new, on_old = (NEW.deployment_id,), (OLD.deployment_id, NEW.deployment_id)

    assert {stage_of(offer(OLD, NEW), chat, PERSON, on_new) for chat in CHATS} == {Stage.TRIAL}
    assert {stage_of(offer(OLD, NEW, share=100), chat, PERSON, on_old) for chat in CHATS} == {Stage.CURRENT}


def test_after_a_promotion_old_conversations_stay_and_new_ones_get_the_new_revision() -> None:
    promoted = offer(at(1, Stage.FORMER), at(2, Stage.CURRENT))

    assert stage_of(promoted, CHATS[0], PERSON, (OLD.deployment_id,)) is Stage.FORMER
    assert stage_of(promoted, CHATS[0], PERSON, ()) is Stage.CURRENT


def test_of_two_revisions_that_were_replaced_a_conversation_keeps_its_own() -> None:
    first, second = replace(at(1, Stage.FORMER), revision="a"), replace(at(2, Stage.FORMER), revision="b")
    twin = replace(at(4, Stage.FORMER), revision="a")
    twice = offer(first, second, at(3, Stage.CURRENT), twin)

    assert trials.fitting(twice, CHATS[0], PERSON, begun(first.deployment_id)) == (first, twin)
    assert trials.fitting(twice, CHATS[0], PERSON, begun(second.deployment_id)) == (second,)


def test_what_was_rolled_back_is_left_by_its_conversations_too() -> None:
    assert stage_of(offer(OLD), CHATS[0], PERSON, (NEW.deployment_id,)) is Stage.CURRENT


def test_what_answered_nobody_knows_where_goes_on_with_the_current_revision() -> None:
    of = offer(OLD, NEW, share=100)

    assert stage_of(of, CHATS[0], PERSON, (None,)) is Stage.CURRENT
    assert stage_of(of, CHATS[0], PERSON, (new_id(),)) is Stage.CURRENT, "its deployment was deleted"


def test_what_an_engine_answered_before_a_trial_came_to_it_was_no_trial() -> None:
    before = begun(NEW.deployment_id, at=NOW - timedelta(days=2))

    assert trials.fitting(offer(OLD, NEW), CHATS[0], PERSON, before) == (OLD,)


def test_half_an_answer_is_finished_by_its_own_revision_only() -> None:
    of = offer(OLD, at(3, Stage.CURRENT), NEW)
    old, twin, new = of.endpoints

    def goes_on(where: Endpoint, **half: str) -> bool:
        return trials.may_go_on(of, where, half)

    assert goes_on(old, deployment=str(old.deployment_id))
    assert goes_on(twin, deployment=str(old.deployment_id)), "replicas of one revision"
    assert not goes_on(new, deployment=str(old.deployment_id))
    assert not goes_on(old, deployment=str(new.deployment_id))
    assert not goes_on(old, deployment=str(new_id())), "it was rolled back"
    assert goes_on(new), "kept before this was known"


# What admins do


@pytest.fixture
async def two(db: Sessions) -> list[UUID]:
    """Two deployments of one model, each on an engine of its own."""
    async with db.begin() as session:
        model = Model(id=new_id(), name="Linden", published=True, adjustable=[])
        session.add(model)
        made = []
        for number in (1, 2):
            engine = Engine(name=f"engine-{number}", url=f"http://10.0.0.{number}", source=Source.DATABASE)
            session.add(engine)
            await session.flush()
            made.append(Deployment(id=new_id(), engine_id=engine.id, model_id=model.id, upstream_name="linden"))
        session.add_all(made)
    return [each.id for each in made]


async def stages(db: Sessions, two: list[UUID]) -> list[Stage]:
    async with db.begin() as session:
        found = {each.id: each.stage for each in await session.scalars(select(Deployment))}
    return [found[each] for each in two]


async def begin(db: Sessions, deployment_id: UUID) -> None:
    async with db.begin() as session:
        await trials.begin(session, await session.get_one(Deployment, deployment_id))


async def model_of(db: Sessions) -> Model:
    async with db.begin() as session:
        return (await session.scalars(select(Model))).one()


async def test_a_trial_begins_with_nobody_and_is_promoted(db: Sessions, two: list[UUID]) -> None:
    await begin(db, two[1])
    begun = await model_of(db)

    async with db.begin() as session:
        await trials.promote(session, (await session.scalars(select(Model))).one())

    assert (begun.trial_share, begun.trial_group_id) == (0, None)
    assert begun.trial_since is not None
    assert await stages(db, two) == [Stage.FORMER, Stage.CURRENT]


async def test_a_trial_is_rolled_back_and_can_be_begun_again(db: Sessions, two: list[UUID]) -> None:
    await begin(db, two[1])
    async with db.begin() as session:
        await trials.roll_back(session, (await session.scalars(select(Model))).one())
    rolled_back = await stages(db, two)

    await begin(db, two[1])

    assert rolled_back == [Stage.CURRENT, Stage.WITHDRAWN]
    assert await stages(db, two) == [Stage.CURRENT, Stage.TRIAL]


async def test_the_only_current_deployment_cannot_be_put_on_trial(db: Sessions, two: list[UUID]) -> None:
    await begin(db, two[1])

    with pytest.raises(Conflict, match="only place"):
        await begin(db, two[0])

    assert await stages(db, two) == [Stage.CURRENT, Stage.TRIAL]


async def test_what_is_on_trial_is_promoted_or_rolled_back_and_nothing_else(db: Sessions, two: list[UUID]) -> None:
    await begin(db, two[1])

    async with db.begin() as session:
        with pytest.raises(Conflict, match="on trial"):
            await trials.restore(session, await session.get_one(Deployment, two[1]))
    async with db.begin() as session:
        model = (await session.scalars(select(Model))).one()
        await trials.roll_back(session, model)
        with pytest.raises(Conflict, match="somebody has ended it"):
            await trials.assign(session, model, share="10", group="")

    assert await stages(db, two) == [Stage.CURRENT, Stage.WITHDRAWN]


async def test_where_nothing_else_is_in_service_there_is_no_trial_and_no_way_back(
    db: Sessions, two: list[UUID]
) -> None:
    async with db.begin() as session:
        old = await session.get_one(Deployment, two[0])
        (await session.get_one(Engine, old.engine_id)).enabled = False
    with pytest.raises(Conflict, match="only place"):
        await begin(db, two[1])
    async with db.begin() as session:
        (await session.get_one(Engine, old.engine_id)).enabled = True
    await begin(db, two[1])
    async with db.begin() as session:
        await session.delete(await session.get_one(Deployment, two[0]))

    async with db.begin() as session:
        with pytest.raises(Conflict, match="not there any more"):
            await trials.roll_back(session, (await session.scalars(select(Model))).one())


async def test_two_admins_change_a_trial_one_after_the_other(db: Sessions, two: list[UUID]) -> None:
    async def act(change: str) -> None:
        async with db.begin() as session:
            deployment = await session.get_one(Deployment, two[1])
            model = (await session.scalars(select(Model))).one()
            if change == "begin":
                await trials.begin(session, deployment)
            else:
                await getattr(trials, change)(session, model)

    for _round in range(20):
        outcomes = await asyncio.gather(
            *(act(change) for change in ("begin", "promote", "roll_back", "begin")), return_exceptions=True
        )
        assert all(outcome is None or isinstance(outcome, Conflict) for outcome in outcomes), outcomes
        async with db.begin() as session:
            for each in await session.scalars(select(Deployment)):
                each.stage = Stage.CURRENT


async def test_what_ended_meanwhile_is_not_ended_again(db: Sessions, two: list[UUID]) -> None:
    await begin(db, two[1])
    async with db.begin() as session:
        await trials.promote(session, (await session.scalars(select(Model))).one())

    async with db.begin() as session:
        model = (await session.scalars(select(Model))).one()
        with pytest.raises(Conflict, match="somebody has ended it"):
            await trials.roll_back(session, model)

    assert await stages(db, two) == [Stage.FORMER, Stage.CURRENT]


async def test_a_former_revision_comes_back_by_hand(db: Sessions, two: list[UUID]) -> None:
    await begin(db, two[1])
    async with db.begin() as session:
        await trials.promote(session, (await session.scalars(select(Model))).one())

    async with db.begin() as session:
        await trials.restore(session, await session.get_one(Deployment, two[0]))

    assert await stages(db, two) == [Stage.CURRENT, Stage.CURRENT]


@pytest.mark.parametrize("share", ["", "-1", "101", "ten", "5.5", "٥"])
async def test_what_is_no_share_is_refused_with_a_sentence(db: Sessions, two: list[UUID], share: str) -> None:
    await begin(db, two[1])
    async with db.begin() as session:
        with pytest.raises(BadInput) as refused:
            await trials.assign(session, (await session.scalars(select(Model))).one(), share=share, group="nonsense")

    assert set(refused.value.fields) == {"share", "group"}


async def test_a_share_and_a_group_are_kept(db: Sessions, two: list[UUID]) -> None:
    await begin(db, two[1])
    async with db.begin() as session:
        lab = await groups.create(session, "Lab")
        await trials.assign(session, (await session.scalars(select(Model))).one(), share="20", group=str(lab.id))

    model = await model_of(db)
    assert (model.trial_share, model.trial_group_id) == (20, lab.id)

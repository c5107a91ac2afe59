"""What admins say of models: rules, order, defaults and pins, and who may use what because of it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from backend.accounts.models import User
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.errors import BadInput, Conflict
from backend.core.ids import new_id
from backend.core.security import Sealer
from backend.core.settings import Settings
from backend.engines import publishing, queries
from backend.engines.models import Deployment, Engine, Model, Source
from backend.engines.publishing import Wishes
from backend.engines.registry import Offer, Registry, State
from backend.groups import service as groups
from backend.groups.models import Group
from tests.fakes.engine import FakeEngine

BERLIN = ZoneInfo("Europe/Berlin")
PLAIN = Wishes(name="Linden")


@pytest.fixture
async def models(db: Sessions, engine: FakeEngine) -> dict[str, Model]:
    """Three published models on one engine, in this order."""
    names = ("Linden", "Rowan", "Hazel")
    east = Engine(id=new_id(), name="east", url=engine.url, source=Source.DATABASE, version="1.0")
    made = [Model(id=new_id(), name=name, published=True, position=number) for number, name in enumerate(names)]
    async with db.begin() as session:
        session.add_all([east, *made])
        await session.flush()
        session.add_all(Deployment(engine_id=east.id, model_id=each.id, upstream_name="fake-8b") for each in made)
    return {model.name: model for model in made}


@pytest.fixture
async def registry(settings: Settings, db: Sessions, models: dict[str, Model]) -> AsyncIterator[Registry]:
    quiet = settings.model_copy(update={"engines": (), "probe_seconds": 60})
    async with Registry(quiet, db, Sealer(settings.secrets(), "engine keys"), known_local=()) as registry:
        yield registry


async def change(db: Sessions, model: Model, **wishes: object) -> Model:
    async with db.begin() as session:
        found = await session.get_one(Model, model.id)
        await publishing.change(session, found, replace(PLAIN, **{"name": model.name} | wishes), BERLIN)  # type: ignore[arg-type]
    return found


async def a_group(db: Sessions, *people: User, name: str = "Lab", weight: int = 1) -> Group:
    async with db.begin() as session:
        group = await groups.create(session, name)
        group.weight = weight
        for person in people:
            await groups.add_member(session, group, person)
    return group


def names(offers: tuple[Offer, ...]) -> list[str]:
    return [offer.name for offer in offers]


async def test_what_an_admin_wants_is_kept(db: Sessions, models: dict[str, Model]) -> None:
    lab = await a_group(db)
    until = (now().astimezone(BERLIN) + timedelta(days=2)).replace(second=0, microsecond=0, tzinfo=None)

    changed = await change(
        db,
        models["Linden"],
        name=" Linden  32B ",
        color="plum",
        temperature="0,7",
        max_tokens="900",
        thinking="low",
        adjustable=frozenset({"json", "temperature", "made-up"}),
        for_everybody=False,
        groups=frozenset({lab.id, new_id()}),
        max_concurrent="8",
        maintenance_until=until.isoformat(timespec="minutes"),
        retired=True,
        fallback=str(models["Hazel"].id),
    )

    assert (changed.name, changed.color, changed.temperature, changed.max_tokens) == ("Linden 32B", "plum", 0.7, 900)
    assert (changed.thinking, changed.adjustable, changed.max_concurrent) == ("low", ["temperature", "json"], 8)
    assert changed.maintenance_until == until.replace(tzinfo=BERLIN)
    assert changed.retired_at is not None
    assert changed.fallback_id == models["Hazel"].id
    async with db.begin() as session:
        assert (await session.scalars(queries.groups_of(changed.id))).all() == [lab.id]
        assert (await session.get_one(Model, changed.id)).retired_at == changed.retired_at


@pytest.mark.parametrize(
    ("field", "wishes"),
    [
        ("name", {"name": " "}),
        ("name", {"name": "Rowan"}),
        ("temperature", {"temperature": "3"}),
        ("max_tokens", {"max_tokens": "-1"}),
        ("thinking", {"thinking": "hard"}),
        ("groups", {"for_everybody": False}),
        ("groups", {"for_everybody": False, "groups": frozenset({UUID(int=1)})}),
        ("max_concurrent", {"max_concurrent": "0"}),
        ("maintenance_until", {"maintenance_until": "tomorrow"}),
        ("maintenance_until", {"maintenance_until": "2001-01-01T00:00"}),
        ("maintenance_until", {"maintenance_until": "9999-12-31T23:59"}),  # west of Greenwich the year 10000
        ("maintenance_until", {"maintenance_until": "0001-01-01T00:00"}),
        ("system_prompt", {"system_prompt": "x" * 20_001}),
    ],
)
async def test_what_cannot_be_taken_gets_a_sentence_and_changes_nothing(
    db: Sessions, models: dict[str, Model], field: str, wishes: dict[str, object]
) -> None:
    with pytest.raises(BadInput) as caught:
        await change(db, models["Linden"], **{"description": "New"} | wishes)

    assert caught.value.fields.keys() == {field}
    async with db.begin() as session:
        assert (await session.get_one(Model, models["Linden"].id)).description == ""


async def test_a_model_cannot_stand_in_for_itself(db: Sessions, models: dict[str, Model]) -> None:
    changed = await change(db, models["Linden"], fallback=str(models["Linden"].id))

    assert changed.fallback_id is None


async def test_models_move_one_place_and_stop_at_the_ends(db: Sessions, models: dict[str, Model]) -> None:
    async def order(name: str, *, up: bool) -> list[str]:
        async with db.begin() as session:
            await publishing.move(session, await session.get_one(Model, models[name].id), up=up)
        async with db.begin() as session:
            return [model.name for model in await session.scalars(queries.models())]

    assert await order("Hazel", up=True) == ["Linden", "Hazel", "Rowan"]
    assert await order("Linden", up=False) == ["Hazel", "Linden", "Rowan"]
    assert await order("Hazel", up=True) == ["Hazel", "Linden", "Rowan"]
    assert await order("Rowan", up=False) == ["Hazel", "Linden", "Rowan"]


# Who may use what


async def test_a_model_for_a_group_is_there_for_its_members_only(
    db: Sessions, models: dict[str, Model], registry: Registry, alice: User, bob: User
) -> None:
    lab = await a_group(db, alice)
    await change(db, models["Rowan"], for_everybody=False, groups=frozenset({lab.id}))
    await registry.reload()
    before = names(registry.offers_for(bob.id))

    async with db.begin() as session:
        await groups.remove_member(session, lab, alice)
        await groups.add_member(session, lab, bob)
    await registry.reload()

    assert before == ["Linden", "Hazel"]
    assert names(registry.offers_for(bob.id)) == ["Linden", "Rowan", "Hazel"]
    assert names(registry.offers_for(alice.id)) == ["Linden", "Hazel"]
    assert registry.offer_for(alice.id, models["Rowan"].id) is None
    assert registry.offer_for(alice.id, None) is None


async def test_a_model_whose_group_was_deleted_is_for_nobody(
    db: Sessions, models: dict[str, Model], registry: Registry, alice: User
) -> None:
    lab = await a_group(db, alice)
    await change(db, models["Rowan"], for_everybody=False, groups=frozenset({lab.id}))

    async with db.begin() as session:
        await groups.remove(session, lab)
    await registry.reload()

    assert names(registry.offers_for(alice.id)) == ["Linden", "Hazel"]


async def test_a_retired_model_is_gone_and_one_in_maintenance_says_so(
    db: Sessions, models: dict[str, Model], registry: Registry, alice: User
) -> None:
    await change(db, models["Linden"], retired=True)
    await change(db, models["Rowan"], maintenance_until="2100-01-01T00:00")
    await registry.reload()

    assert [(offer.name, offer.state) for offer in registry.offers_for(alice.id)] == [
        ("Rowan", State.MAINTENANCE),
        ("Hazel", State.AVAILABLE),
    ]
    assert registry.has_retired(models["Linden"].id)
    retired = registry.offer(models["Linden"].id)
    assert retired is not None, "answers that still run go on"
    assert retired.state is State.RETIRED
    assert not retired.is_for(alice.id)


async def test_what_somebody_begins_with(
    db: Sessions, models: dict[str, Model], registry: Registry, alice: User, bob: User
) -> None:
    """One's own default before the group's, the weightier group's first, then everybody's, then the first there is."""
    lab, floor = await a_group(db, alice, weight=2), await a_group(db, alice, name="Floor")

    async def begins(person: User = alice) -> str:
        await registry.reload()
        offer = registry.default_for(person.id)
        return offer.name if offer else ""

    async def choose(name: str | None, **whose: UUID) -> None:
        async with db.begin() as session:
            await publishing.choose_default(session, models[name].id if name else None, **whose)

    assert await begins() == "Linden"
    await choose("Hazel")
    assert await begins() == "Hazel"
    await choose("Linden", group_id=floor.id)
    await choose("Rowan", group_id=lab.id)
    assert (await begins(), await begins(bob)) == ("Rowan", "Hazel")
    await choose("Rowan", person_id=alice.id)
    await choose("Linden", person_id=alice.id)
    assert await begins() == "Linden"
    await change(db, models["Linden"], maintenance_until="2100-01-01T00:00")
    assert await begins() == "Rowan"
    await choose(None, group_id=lab.id)
    await choose(None)
    assert (await begins(), await begins(bob)) == ("Rowan", "Rowan")


async def test_a_default_that_is_gone_is_told(db: Sessions, models: dict[str, Model]) -> None:
    with pytest.raises(BadInput, match="not here any more"):
        async with db.begin() as session:
            await publishing.choose_default(session, new_id())


async def test_a_fallback_is_found_along_the_chain_and_never_in_a_circle(
    db: Sessions, models: dict[str, Model], registry: Registry, alice: User
) -> None:
    await change(db, models["Linden"], retired=True, fallback=str(models["Rowan"].id))
    await change(db, models["Rowan"], retired=True, fallback=str(models["Hazel"].id))
    await registry.reload()
    along = registry.instead_of(alice.id, models["Linden"].id)
    lab = await a_group(db)
    await change(
        db, models["Hazel"], for_everybody=False, groups=frozenset({lab.id}), fallback=str(models["Linden"].id)
    )
    await registry.reload()

    assert along is not None
    assert along.name == "Hazel"
    assert registry.instead_of(alice.id, models["Linden"].id) is None
    assert registry.instead_of(alice.id, None) is None


async def test_a_person_has_the_weight_of_their_heaviest_group(
    db: Sessions, registry: Registry, alice: User, bob: User
) -> None:
    await a_group(db, alice, weight=3)
    await a_group(db, alice, name="Floor", weight=2)
    await registry.reload()

    assert (registry.weight_of(alice.id), registry.weight_of(bob.id)) == (3, 1)


# Pins


async def deployment_of(db: Sessions, model: Model, **told: str | None) -> Deployment:
    async with db.begin() as session:
        deployment = (await session.scalars(queries.deployments_with_engines(model.id))).one()
        for name, value in told.items():
            setattr(deployment.engine if name == "version" else deployment, name, value)
    return deployment


async def test_a_pin_holds_until_the_engine_tells_something_else(db: Sessions, models: dict[str, Model]) -> None:
    pinned = await deployment_of(db, models["Linden"], revision="9f2c41a")
    async with db.begin() as session:
        await publishing.pin(session, await session.merge(pinned, load=False))
    same = await deployment_of(db, models["Linden"])
    other = await deployment_of(db, models["Linden"], revision="c07d12e", version="1.1")

    assert publishing.departures(same) == []
    assert publishing.departures(other) == [
        "The revision should be 9f2c41a and is c07d12e.",
        "The version of the engine should be 1.0 and is 1.1.",
    ]
    silent = await deployment_of(db, models["Linden"], revision=None, version="1.0")
    assert publishing.departures(silent) == ["The revision should be 9f2c41a and is not told."]


async def test_an_engine_that_tells_nothing_cannot_be_pinned(db: Sessions, models: dict[str, Model]) -> None:
    silent = await deployment_of(db, models["Linden"], version=None)

    with pytest.raises(Conflict, match="there is no pin"):
        async with db.begin() as session:
            await publishing.pin(session, silent)

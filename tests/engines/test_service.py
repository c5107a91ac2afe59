import asyncio
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select

from backend.core.bus import Bus
from backend.core.db import Sessions
from backend.core.errors import BadInput, Conflict, NotFound
from backend.core.ids import new_id
from backend.core.security import Sealer
from backend.core.settings import Settings
from backend.engines import addresses, findings, keys, publishing, service
from backend.engines.addresses import AllowList
from backend.engines.findings import Findings
from backend.engines.models import Deployment, Engine, Model, Source
from backend.engines.pages import UpstreamModel

SEALER = Sealer(["0123456789abcdef" * 2], "engine keys")


@pytest.fixture
def allowed() -> AllowList:
    return addresses.allow_list(Settings(engine_allowed=("10.0.0.0/8",)))


async def add(db: Sessions, allowed: AllowList, **given: Any) -> Engine:
    async with db.begin() as session:
        return await service.add_engine(
            session, allowed, SEALER, **{"name": "Lab", "url": "http://10.0.0.1:8000", **given}
        )


async def an_engine(db: Sessions, *upstream_names: str, name: str = "east", publish: bool = False) -> UUID:
    async with db.begin() as session:
        engine = Engine(name=name, url=f"http://{name}:8000", source=Source.DATABASE)
        session.add(engine)
        await session.flush()
        models = [UpstreamModel(upstream) for upstream in upstream_names]
        await findings.store(session, engine.id, Findings("vllm", None, models), publish=publish)
    return engine.id


async def publish(db: Sessions, engine_id: UUID, upstream_name: str, name: str = "") -> Model:
    async with db.begin() as session:
        on_engine = select(Deployment).where(Deployment.engine_id == engine_id)
        deployment = await session.scalar(on_engine.where(Deployment.upstream_name == upstream_name))
        assert deployment is not None
        return await publishing.publish(session, deployment, name)


async def models(db: Sessions) -> list[tuple[str, bool]]:
    async with db.begin() as session:
        return [
            (model.name, model.published) for model in await session.scalars(select(Model).order_by(Model.position))
        ]


async def test_an_engine_on_the_internet_is_external_until_an_admin_knows_better(db: Sessions) -> None:
    anywhere = addresses.allow_list(Settings(engine_allowed=("10.0.0.0/8", "93.184.216.0/24")))
    hosted = await add(db, anywhere, name="Hosted", url="https://93.184.216.34")
    inside = await add(db, anywhere)
    async with db.begin() as session:
        ours = await service.find_engine(session, hosted.id)
        await service.change_engine(session, anywhere, SEALER, ours, url=ours.url, external=False)
        moved = await service.find_engine(session, inside.id)
        await service.change_engine(session, anywhere, SEALER, moved, url="https://93.184.216.35", external=False)

    assert (hosted.external, inside.external) == (True, False)
    assert (ours.external, moved.external) == (False, True)


async def test_a_kind_nobody_knows_and_a_header_that_means_something_else_are_refused(
    db: Sessions, allowed: AllowList
) -> None:
    for header in ("Cookie", "Authorization", "X Session", "X-A\r\nB: 1", "x" * 81):
        with pytest.raises(BadInput) as refused:
            await add(db, allowed, session_header=header)
        assert list(refused.value.fields) == ["session_header"], header
    with pytest.raises(BadInput) as unknown:
        await add(db, allowed, kind="oracle")
    assert list(unknown.value.fields) == ["kind"]


async def test_an_admin_adds_an_engine(db: Sessions, allowed: AllowList) -> None:
    engine = await add(db, allowed, name=" Lab  one ", url=" http://10.0.0.1:8000/v1 ", api_key=" sk-1 ")

    async with db.begin() as session:
        stored = await service.find_engine(session, engine.id)
    assert (stored.name, stored.url, stored.source) == ("Lab one", "http://10.0.0.1:8000", Source.DATABASE)
    assert stored.enabled
    assert keys.unseal(SEALER, stored) == "sk-1"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": "  "}, "name"),
        ({"url": "10.0.0.1"}, "url"),
        ({"url": "http://192.168.0.1:8000"}, "url"),
        ({"url": "http://169.254.169.254"}, "url"),
        ({"api_key": "two words"}, "api_key"),
        ({"api_key": "sk\r\nX-Admin: 1"}, "api_key"),
        ({"api_key": "clé"}, "api_key"),
        ({"api_key": "x" * 501}, "api_key"),
    ],
)
async def test_each_wrong_field_is_named(db: Sessions, allowed: AllowList, given: dict[str, str], field: str) -> None:
    with pytest.raises(BadInput) as caught:
        await add(db, allowed, **given)

    assert list(caught.value.fields) == [field]


async def test_all_wrong_fields_are_named_at_once(db: Sessions, allowed: AllowList) -> None:
    with pytest.raises(BadInput) as caught:
        await add(db, allowed, name="", url="", api_key=" a b ")

    assert set(caught.value.fields) == {"name", "url", "api_key"}


async def test_a_name_is_given_once(db: Sessions, allowed: AllowList) -> None:
    await add(db, allowed)

    with pytest.raises(BadInput) as caught:
        await add(db, allowed, url="http://10.0.0.2:8000")

    assert "already" in caught.value.fields["name"]


async def test_an_address_is_used_once(db: Sessions, allowed: AllowList) -> None:
    await add(db, allowed)

    with pytest.raises(BadInput, match="Lab"):
        await add(db, allowed, name="Lab two", url="http://10.0.0.1:8000/v1/")


async def test_an_address_can_be_changed(db: Sessions, allowed: AllowList) -> None:
    engine_id = (await add(db, allowed, api_key="sk-1")).id

    async with db.begin() as session:
        engine = await service.find_engine(session, engine_id)
        await service.change_engine(session, allowed, SEALER, engine, url="http://10.0.0.2:8000", api_key="sk-2")

    async with db.begin() as session:
        engine = await service.find_engine(session, engine_id)
    assert engine.url == "http://10.0.0.2:8000"
    assert keys.unseal(SEALER, engine) == "sk-2"


async def test_the_key_stays_while_the_server_stays(db: Sessions, allowed: AllowList) -> None:
    engine_id = (await add(db, allowed, api_key="sk-1")).id

    async with db.begin() as session:
        engine = await service.find_engine(session, engine_id)
        await service.change_engine(session, allowed, SEALER, engine, url="http://10.0.0.1:8000/team")

    assert keys.unseal(SEALER, engine) == "sk-1"


async def test_a_changed_address_is_checked_too(db: Sessions, allowed: AllowList) -> None:
    engine_id = (await add(db, allowed)).id

    async with db.begin() as session:
        engine = await service.find_engine(session, engine_id)
        with pytest.raises(BadInput):
            await service.change_engine(session, allowed, SEALER, engine, url="http://192.168.0.1:8000")
        with pytest.raises(BadInput):
            await service.change_engine(session, allowed, SEALER, engine, url=engine.url, api_key="a b")


@pytest.mark.parametrize("source", [Source.ENVIRONMENT, Source.EMBEDDED])
async def test_what_the_deployment_set_is_changed_there(db: Sessions, allowed: AllowList, source: Source) -> None:
    engine = Engine(id=new_id(), name="east", url="http://10.0.0.1:8000", source=source, enabled=True)

    async with db.begin() as session:
        for change in (
            service.change_engine(session, allowed, SEALER, engine, url="http://10.0.0.2:8000"),
            service.remove(session, engine),
            service.disable(session, engine),
            service.enable(session, engine),
        ):
            with pytest.raises(Conflict, match="set by the deployment"):
                await change
    assert engine.enabled


async def test_an_engine_is_taken_out_of_service_and_put_back(db: Sessions) -> None:
    engine = Engine(id=new_id(), name="east", url="http://10.0.0.1:8000", source=Source.DATABASE, enabled=True)

    async with db.begin() as session:
        await service.disable(session, engine)
        disabled = engine.enabled
        await service.enable(session, engine)

    assert not disabled
    assert engine.enabled


async def test_removing_an_engine_withdraws_models_that_only_it_had(db: Sessions) -> None:
    east = await an_engine(db, "linden", "hazel", publish=True)
    west = await an_engine(db, "linden", name="west")
    await publish(db, west, "linden")

    async with db.begin() as session:
        await service.remove(session, await service.find_engine(session, east))

    assert await models(db) == [("linden", True), ("hazel", False)]


async def test_publishing_what_was_found_makes_a_model(db: Sessions) -> None:
    engine_id = await an_engine(db, "team/linden", "hazel")

    model = await publish(db, engine_id, "team/linden")
    named = await publish(db, engine_id, "hazel", " Hazel  8B ")

    assert (model.name, named.name) == ("linden", "Hazel 8B")
    assert await models(db) == [("linden", True), ("Hazel 8B", True)]


async def test_publishing_a_known_name_lets_the_engine_join_that_model(db: Sessions) -> None:
    first = await publish(db, await an_engine(db, "linden"), "linden")

    second = await publish(db, await an_engine(db, "linden", name="west"), "linden")

    assert second.id == first.id
    async with db.begin() as session:
        assert len((await session.scalars(select(Deployment).where(Deployment.model_id == first.id))).all()) == 2


async def test_a_withdrawn_model_can_be_published_again(db: Sessions) -> None:
    engine_id = await an_engine(db, "linden")
    first = await publish(db, engine_id, "linden")
    async with db.begin() as session:
        await publishing.unpublish(session, await service.find_model(session, first.id))
    withdrawn = await models(db)

    again = await publish(db, engine_id, "linden")

    assert withdrawn == [("linden", False)]
    assert again.id == first.id
    assert await models(db) == [("linden", True)]


async def test_joining_an_engine_to_a_model_twice_is_told(db: Sessions) -> None:
    engine_id = await an_engine(db, "linden")
    model = await publish(db, engine_id, "linden")
    async with db.begin() as session:
        session.add(Deployment(engine_id=engine_id, upstream_name="linden"))

    async with db.begin() as session:
        second = (await session.scalars(select(Deployment).where(Deployment.model_id.is_(None)))).one()
        with pytest.raises(Conflict, match="already"):
            await publishing.publish(session, second, model.name)
        await session.rollback()


async def test_every_change_is_told_to_all_processes(db: Sessions, allowed: AllowList, database: str) -> None:
    heard = asyncio.Semaphore(0)
    async with Bus(database) as bus, asyncio.timeout(10):
        bus.on(service.CHANGED, lambda _message: heard.release())
        engine_id = (await add(db, allowed)).id
        await heard.acquire()
        for change in (service.disable, service.enable, service.drain, service.undrain, service.remove):
            async with db.begin() as session:
                await change(session, await service.find_engine(session, engine_id))
            await heard.acquire()
        model = await publish(db, await an_engine(db, "linden"), "linden")
        await heard.acquire()
        for withdraw in (publishing.unpublish, publishing.publish_again):
            async with db.begin() as session:
                await withdraw(session, await service.find_model(session, model.id))
            await heard.acquire()

    assert heard.locked(), "each of them once"


async def test_ids_of_nothing_are_not_found(db: Sessions) -> None:
    async with db.begin() as session:
        for find in (service.find_engine, service.find_deployment, service.find_model):
            with pytest.raises(NotFound):
                await find(session, new_id())

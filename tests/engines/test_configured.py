import asyncio
import logging
from typing import Any

import pytest
from sqlalchemy import select

from backend.core.db import Sessions
from backend.core.security import Sealer
from backend.core.settings import Settings
from backend.engines import configured, keys
from backend.engines.models import Deployment, Engine, Source


@pytest.fixture
def sealer() -> Sealer:
    return Sealer(["0123456789abcdef" * 2], "engine keys")


async def take_over(db: Sessions, sealer: Sealer, *engines: dict[str, Any], embedded: Any = None) -> dict[str, Engine]:
    settings = Settings.model_validate({"engines": engines, "embedded_engine": embedded})
    async with db.begin() as session:
        await configured.take_over(session, settings, sealer)
    async with db.begin() as session:
        return {engine.name: engine for engine in await session.scalars(select(Engine))}


async def test_engines_of_the_deployment_become_rows(db: Sessions, sealer: Sealer) -> None:
    found = await take_over(
        db,
        sealer,
        {"name": "east", "url": "http://gpu-1:8000/v1", "api_key": "secret"},
        {"name": "west", "url": "http://gpu-2:8000", "kind": "vllm"},
        embedded={"name": "This machine", "url": "http://127.0.0.1:5000", "api_key": "random"},
    )

    assert {name: engine.source for name, engine in found.items()} == {
        "east": Source.ENVIRONMENT,
        "west": Source.ENVIRONMENT,
        "This machine": Source.EMBEDDED,
    }
    assert all(engine.enabled for engine in found.values())
    assert (found["east"].url, keys.unseal(sealer, found["east"])) == ("http://gpu-1:8000", "secret")
    assert (found["west"].forced_kind, keys.unseal(sealer, found["west"])) == ("vllm", None)
    assert keys.unseal(sealer, found["This machine"]) == "random"


async def test_an_engine_of_the_deployment_on_the_internet_is_external(db: Sessions, sealer: Sealer) -> None:
    inside, outside = "http://10.0.0.1:8000", "https://93.184.216.34"
    found = await take_over(db, sealer, {"name": "east", "url": inside}, {"name": "hosted", "url": outside})
    moved = await take_over(db, sealer, {"name": "east", "url": outside}, {"name": "hosted", "url": inside})

    assert {name: engine.external for name, engine in found.items()} == {"east": False, "hosted": True}
    assert {name: engine.external for name, engine in moved.items()} == {"east": True, "hosted": False}


async def test_a_second_start_changes_what_changed_and_keeps_the_row(db: Sessions, sealer: Sealer) -> None:
    before = await take_over(db, sealer, {"name": "east", "url": "http://gpu-1:8000", "api_key": "old"})

    after = await take_over(db, sealer, {"name": "east", "url": "http://gpu-2:8000", "api_key": "new"})

    assert after["east"].id == before["east"].id
    assert after["east"].url == "http://gpu-2:8000"
    assert keys.unseal(sealer, after["east"]) == "new"


async def test_an_unchanged_key_is_not_sealed_again(db: Sessions, sealer: Sealer) -> None:
    setting = {"name": "east", "url": "http://gpu-1:8000", "api_key": "same"}
    before = await take_over(db, sealer, setting)

    after = await take_over(db, sealer, setting)

    assert after["east"].sealed_api_key == before["east"].sealed_api_key


async def test_a_key_that_is_taken_away_is_forgotten(db: Sessions, sealer: Sealer) -> None:
    await take_over(db, sealer, {"name": "east", "url": "http://gpu-1:8000", "api_key": "old"})

    after = await take_over(db, sealer, {"name": "east", "url": "http://gpu-1:8000"})

    assert after["east"].sealed_api_key is None


async def test_an_engine_that_moved_is_found_out_again(db: Sessions, sealer: Sealer) -> None:
    found = await take_over(db, sealer, {"name": "east", "url": "http://gpu-1:8000"})
    async with db.begin() as session:
        (await session.get_one(Engine, found["east"].id)).kind = "vllm"

    same_server = await take_over(db, sealer, {"name": "east", "url": "http://gpu-1:8000/team"})
    other_server = await take_over(db, sealer, {"name": "east", "url": "http://gpu-2:8000/team"})

    assert same_server["east"].kind == "vllm"
    assert other_server["east"].kind is None


async def test_the_kind_that_the_deployment_names_counts_more_than_what_is_found(db: Sessions, sealer: Sealer) -> None:
    setting = {"name": "east", "url": "http://gpu-1:8000"}
    named = await take_over(db, sealer, setting | {"kind": "vllm_router"})
    async with db.begin() as session:
        engine = await session.get_one(Engine, named["east"].id)
        engine.kind = "vllm"
        session.add(Deployment(engine_id=engine.id, upstream_name="linden", continues=True))

    again = await take_over(db, sealer, setting | {"kind": "vllm_router"})
    kept = await _continues(db)
    no_more = await take_over(db, sealer, setting)

    assert (again["east"].spoken_kind, kept) == ("vllm_router", True)
    assert (no_more["east"].spoken_kind, await _continues(db)) == ("vllm", None)


async def _continues(db: Sessions) -> bool | None:
    async with db.begin() as session:
        return await session.scalar(select(Deployment.continues))


async def test_an_engine_that_is_no_longer_named_is_disabled_and_comes_back(db: Sessions, sealer: Sealer) -> None:
    setting = {"name": "east", "url": "http://gpu-1:8000"}
    embedded = {"name": "This machine", "url": "http://127.0.0.1:5000"}
    before = await take_over(db, sealer, setting, embedded=embedded)

    gone = await take_over(db, sealer)
    back = await take_over(db, sealer, setting)

    assert [engine.enabled for engine in gone.values()] == [False, False]
    assert back["east"].enabled
    assert back["east"].id == before["east"].id


async def test_engines_of_admins_are_left_alone(db: Sessions, sealer: Sealer) -> None:
    async with db.begin() as session:
        session.add(Engine(name="mine", url="http://gpu-3:8000", source=Source.DATABASE))

    found = await take_over(db, sealer, {"name": "east", "url": "http://gpu-1:8000"})

    assert found["mine"].enabled
    assert found["mine"].url == "http://gpu-3:8000"


async def test_the_deployment_wins_over_an_admin_and_says_so(
    db: Sessions, sealer: Sealer, caplog: pytest.LogCaptureFixture
) -> None:
    async with db.begin() as session:
        session.add(Engine(name="east", url="http://elsewhere:8000", source=Source.DATABASE, enabled=False))

    with caplog.at_level(logging.WARNING):
        found = await take_over(db, sealer, {"name": "east", "url": "http://gpu-1:8000"})

    assert found["east"].source is Source.ENVIRONMENT
    assert found["east"].url == "http://gpu-1:8000"
    assert found["east"].enabled
    assert "names the engine east, and so did an administrator" in caplog.text


async def test_two_processes_may_start_at_once(db: Sessions, sealer: Sealer) -> None:
    setting = {"name": "east", "url": "http://gpu-1:8000"}

    found = await asyncio.gather(*(take_over(db, sealer, setting) for _ in range(4)))

    assert len({engines["east"].id for engines in found}) == 1


def an_engine(name: str, source: Source) -> Engine:
    return Engine(name=name, url="http://127.0.0.1:1", source=source)


async def test_models_of_the_first_engine_of_the_house_are_for_everybody() -> None:
    hosted = {"name": "hosted", "url": "https://8.8.8.8/v1"}
    own = {"name": "own", "url": "http://127.0.0.1:8000"}
    second = {"name": "second", "url": "http://10.0.0.1:8000"}
    settings = Settings.model_validate({"engines": [hosted, own, second]})

    published = [
        await configured.is_for_everybody(an_engine(name, Source.ENVIRONMENT), settings)
        for name in ("hosted", "own", "second")
    ]

    assert published == [False, True, False]


async def test_models_of_the_embedded_engine_are_for_everybody_and_those_of_admins_wait() -> None:
    own = {"name": "own", "url": "http://127.0.0.1:8000"}
    settings = Settings.model_validate({"engines": [own]})

    assert await configured.is_for_everybody(an_engine("This machine", Source.EMBEDDED), settings)
    assert not await configured.is_for_everybody(an_engine("own", Source.DATABASE), settings)
    assert not await configured.is_for_everybody(an_engine("gone", Source.ENVIRONMENT), Settings())

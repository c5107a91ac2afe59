import asyncio
import logging
from contextlib import aclosing

import psycopg
import pytest
from sqlalchemy import select, update

from backend.core.db import Sessions
from backend.core.errors import BadInput
from backend.core.settings import Settings
from backend.embedded.postgres import EmbeddedPostgres
from backend.engines import dialects, publishing, service
from backend.engines.client import ChatRequest
from backend.engines.events import Delta
from backend.engines.local import LocalServer
from backend.engines.models import Deployment, Engine, Model
from backend.engines.registry import NoEngineAvailable, Registry
from tests.engines import strangers
from tests.engines.conftest import SEALER, Ground, looked_at_again, until


def offered(registry: Registry) -> list[str]:
    return [offer.name for offer in registry.offers if offer.available]


def problem(registry: Registry, name: str) -> str | None:
    return next(engine.health.problem for engine in registry.engines if engine.name == name)


def problems(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.message
        for record in caplog.records
        if record.name.startswith(("backend.engines.registry", "backend.engines.watching"))
    ]


async def test_the_models_of_the_first_engine_can_be_chosen_at_once(ground: Ground) -> None:
    engine = await ground.engine(models=["linden", "hazel"], window=4096)
    registry = await ground.registry(engine.url)
    await registry.first_look()

    assert offered(registry) == ["linden", "hazel"]
    endpoint = registry.choose(registry.offers[0])
    assert (endpoint.engine_name, endpoint.engine_kind, endpoint.engine_version) == ("engine-1", "vllm", "0.32.0")
    assert (endpoint.upstream_name, endpoint.context_length) == ("linden", 4096)
    assert registry.offer(registry.offers[0].id) is registry.offers[0]
    assert registry.offer(None) is None


async def test_two_engines_can_be_chosen_once_the_second_is_published(ground: Ground) -> None:
    first = await ground.engine(models=["linden"])
    second = await ground.engine(models=["hazel"])
    registry = await ground.registry(first.url, second.url)
    await registry.first_look()
    before = offered(registry)

    await ground.publish("hazel")
    await registry.reload()

    assert before == ["linden"]
    assert offered(registry) == ["linden", "hazel"]
    assert [offer.endpoints[0].engine_name for offer in registry.offers] == ["engine-1", "engine-2"]


async def test_an_engine_answers_through_its_endpoint(ground: Ground) -> None:
    engine = await ground.engine(models=["linden"], api_key="sk-1")
    registry = await ground.registry(engines=[{"name": "east", "url": engine.url, "api_key": "sk-1"}])
    await registry.first_look()
    engine.script = ("Well, ", "yes.")

    assert await answer(registry) == "Well, yes."


async def answer(registry: Registry) -> str:
    endpoint = registry.choose(registry.offers[0])
    request = ChatRequest(endpoint.upstream_name, [{"role": "user", "content": "One?"}], None, None)
    async with aclosing(endpoint.client.answer(request)) as batches:
        return "".join([event.text async for events in batches for event in events if isinstance(event, Delta)])


async def test_dead_engines_delay_neither_pages_nor_the_others(ground: Ground) -> None:
    """ENG-01: one drops requests to connect, one never answers, one is somebody's web page, one is not there."""
    web_server = strangers.WebServer()
    with strangers.full() as drops, strangers.silent() as silent, web_server.running() as html:
        good = await ground.engine(models=["linden"])
        registry = await ground.registry(drops, good.url, silent, html, strangers.nobody(), probe_seconds=3)
        listed = [engine.name for engine in registry.engines]
        await until(lambda: registry.engines[1].deployments)
        still_waiting = [engine.health.checked_at is None for engine in registry.engines]
        await ground.publish("linden")
        await registry.reload()
        await until(lambda: sum(engine.health.problem is not None for engine in registry.engines) == 4, seconds=20)

    assert listed == ["engine-1", "engine-2", "engine-3", "engine-4", "engine-5"]
    assert (still_waiting[0], still_waiting[2]) == (True, True)
    assert offered(registry) == ["linden"]
    assert {name: problem(registry, name) for name in ("engine-1", "engine-3", "engine-4", "engine-5")} == {
        "engine-1": "The engine took too long.",
        "engine-3": "The engine took too long.",
        "engine-4": "What came back was not an engine’s answer.",
        "engine-5": "The engine cannot be reached.",
    }
    assert all(engine.health.since for engine in registry.engines if engine.health.problem)


async def test_no_transaction_is_open_while_an_engine_is_awaited(ground: Ground, postgres: EmbeddedPostgres) -> None:
    with strangers.silent() as silent:
        registry = await ground.registry(silent, probe_seconds=60)
        await asyncio.sleep(1)
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'test' AND xact_start < now() - interval '0.5 s'"
        url = postgres.superuser_url().replace("postgresql+psycopg", "postgresql")
        async with await psycopg.AsyncConnection.connect(url) as connection:
            row = await (await connection.execute(asked)).fetchone()
        assert registry.engines[0].health.checked_at is None

    assert row == (0,)


async def test_an_engine_that_goes_away_is_known_and_told_once(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await ground.engine(models=["linden"])
    registry = await ground.registry(engine.url)
    await registry.first_look()
    caplog.set_level(logging.INFO)

    await asyncio.to_thread(engine.stop)
    await until(lambda: problem(registry, "engine-1"))
    since = registry.engines[0].health.since
    offer = registry.offers[0]
    with pytest.raises(NoEngineAvailable, match="cannot be reached"):
        registry.choose(offer)
    failed_at = registry.health(registry.engines[0].id).checked_at
    await until(lambda: registry.health(registry.engines[0].id).checked_at != failed_at)
    still_since = registry.engines[0].health.since
    await asyncio.to_thread(engine.start)
    await until(lambda: offered(registry))

    assert (offer.name, offer.available) == ("linden", False)
    assert still_since == since
    assert len(problems(caplog)) == 2
    assert "engine-1 cannot be used: unreachable" in problems(caplog)[0]
    assert problems(caplog)[1] == "The engine engine-1 can be used again"


async def test_a_model_that_is_no_longer_served_is_marked_and_comes_back(ground: Ground) -> None:
    engine = await ground.engine(models=["linden", "hazel"])
    registry = await ground.registry(engine.url)
    await registry.first_look()

    engine.models.remove("hazel")
    await until(lambda: offered(registry) == ["linden"])
    problem_then = registry.offers[1].problem
    engine.models.append("hazel")
    await until(lambda: offered(registry) == ["linden", "hazel"])

    assert problem_then == "The engine does not offer this model at the moment."


async def test_an_engine_that_was_upgraded_in_passing_is_asked_again(ground: Ground) -> None:
    engine = await ground.engine(models=["linden"])
    registry = await ground.registry(engine.url, probe_seconds=1)
    await registry.first_look()

    await asyncio.to_thread(engine.stop)
    await until(lambda: problem(registry, "engine-1"))
    engine.version = "0.33.0"
    await asyncio.to_thread(engine.start)
    await until(lambda: registry.engines[0].version == "0.33.0")


async def test_a_kind_the_deployment_set_is_kept(ground: Ground) -> None:
    engine = await ground.engine(models=["linden"])
    registry = await ground.registry(engines=[{"name": "east", "url": engine.url, "kind": "vllm_router"}])
    await registry.first_look()

    assert (registry.engines[0].kind, registry.engines[0].version) == ("vllm_router", "0.32.0")
    [endpoint] = registry.offers[0].endpoints
    assert endpoint.client.dialect is dialects.of("vllm_router")


async def test_at_a_start_without_engines_everything_is_as_it_was(ground: Ground) -> None:
    await ground.add("lab", strangers.nobody(), "linden")

    registry = await ground.registry()

    assert [offer.name for offer in registry.offers] == ["linden"]


async def test_an_added_engine_is_looked_at_without_waiting(ground: Ground) -> None:
    engine = await ground.engine(models=["linden"])
    registry = await ground.registry(probe_seconds=60)
    await ground.add("lab", engine.url)

    await registry.reload()
    await until(lambda: registry.engines[0].deployments)

    assert registry.engines[0].deployments[0].proposed_name == "linden"
    assert registry.engines[0].kind == "vllm"


async def test_what_another_process_changed_is_seen(ground: Ground) -> None:
    engine = await ground.engine(models=["linden"])
    registry = await ground.registry(engine.url)
    await registry.first_look()

    async with ground.db.begin() as session:
        await session.execute(update(Model).values(name="Linden 32B"))

    await until(lambda: offered(registry) == ["Linden 32B"])


async def test_a_change_here_is_seen_at_once(ground: Ground) -> None:
    engine = await ground.engine(models=["linden"])
    registry = await ground.registry(engine.url, probe_seconds=60)
    await registry.first_look()

    async with ground.db.begin() as session:
        await publishing.unpublish(session, (await session.scalars(select(Model))).one())
    registry.wake()

    await until(lambda: registry.offers == (), seconds=5)


async def test_looking_now_does_not_wait_for_the_next_turn(ground: Ground) -> None:
    engine = await ground.engine(models=["linden"])
    registry = await ground.registry(engine.url, probe_seconds=60)
    await registry.first_look()
    await asyncio.to_thread(engine.stop)

    registry.look_now(registry.engines[0].id)

    await until(lambda: problem(registry, "engine-1"), seconds=5)


async def test_an_engine_taken_out_of_service_ends_what_it_began(ground: Ground) -> None:
    engine = await ground.engine(models=["linden"])
    engine_id = await ground.add("lab", engine.url, "linden")
    registry = await ground.registry()
    await registry.first_look()
    go_on = asyncio.Event()
    engine.script = ("Well, ", go_on, "yes.")
    running = asyncio.create_task(answer(registry))
    await engine.until(lambda asked: asked.running == 1)

    async with ground.db.begin() as session:
        await service.disable(session, await service.find_engine(session, engine_id))
    await registry.reload()
    offers = registry.offers
    go_on.set()

    assert offers == ()
    assert await running == "Well, yes."


async def test_a_removed_engine_is_not_asked_any_more(ground: Ground) -> None:
    server = strangers.WebServer()
    with server.running() as url:
        engine_id = await ground.add("lab", url)
        registry = await ground.registry(strangers.nobody())
        await registry.first_look()

        async with ground.db.begin() as session:
            await service.remove(session, await service.find_engine(session, engine_id))
        await registry.reload()
        await looked_at_again(registry, "engine-1")  # a request may have been under way
        asked = len(server.asked)
        await looked_at_again(registry, "engine-1")

    assert len(server.asked) == asked
    assert [engine.name for engine in registry.engines] == ["engine-1"]


async def test_a_key_is_not_sent_to_another_address(ground: Ground) -> None:
    server = strangers.WebServer()
    with server.running() as elsewhere:
        engine = await ground.engine(models=["linden"], api_key="sk-1")
        engine_id = await ground.add("lab", engine.url.removesuffix("/v1"), "linden", api_key="sk-1")
        registry = await ground.registry(strangers.nobody())
        await registry.first_look()
        before = offered(registry)

        async with ground.db.begin() as session:
            moved = await service.find_engine(session, engine_id)
            await service.change_engine(session, registry.allowed, SEALER, moved, url=elsewhere)
        await registry.reload()
        await registry.first_look()
        await looked_at_again(registry, "engine-1")

    assert before == ["linden"]
    assert problem(registry, "lab") == "The API key has to be entered again."
    assert offered(registry) == []
    assert server.asked == []


async def test_an_engine_whose_key_was_entered_again_is_used(ground: Ground) -> None:
    engine = await ground.engine(models=["linden"], api_key="sk-1")
    engine_id = await ground.add("lab", "http://127.0.0.1:1", "linden", api_key="sk-1")
    async with ground.db.begin() as session:
        await session.execute(update(Engine).values(url=engine.url))
    registry = await ground.registry()
    lost = problem(registry, "lab")

    async with ground.db.begin() as session:
        row = await service.find_engine(session, engine_id)
        await service.change_engine(session, registry.allowed, SEALER, row, url=engine.url, api_key="sk-1")
    await registry.reload()
    await until(lambda: offered(registry) == ["linden"])

    assert lost == "The API key has to be entered again."


async def test_an_address_that_is_not_allowed_is_never_asked(ground: Ground) -> None:
    server = strangers.WebServer()
    with server.running() as url:
        await ground.add("lab", url)
        registry = await ground.registry(engine_allowed=["10.0.0.0/8"])
        await registry.first_look()

    assert server.asked == []
    assert problem(registry, "lab") == "No engine answers at this address."


async def test_a_redirect_is_not_followed(ground: Ground) -> None:
    target = strangers.WebServer()
    with target.running() as forbidden:
        redirects = strangers.WebServer(elsewhere=f"{forbidden}/v1/models")
        with redirects.running() as url:
            await ground.add("lab", url)
            registry = await ground.registry()
            await registry.first_look()

    assert redirects.asked == ["/v1/models"]
    assert target.asked == []
    assert problem(registry, "lab") == "No engine answers at this address."


async def test_a_wrong_key_is_told_and_never_logged(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    engine = await ground.engine(models=["linden"], api_key="sk-right")
    await ground.add("lab", engine.url, api_key="sk-wrong-key")
    with caplog.at_level(logging.DEBUG):
        registry = await ground.registry()
        await registry.first_look()

    assert "key" in str(problem(registry, "lab"))
    assert problems(caplog)
    assert "sk-" not in caplog.text


async def test_the_registry_survives_a_restart_of_the_database(
    ground: Ground, postgres: EmbeddedPostgres, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "backend.engines.registry")
    engine = await ground.engine(models=["linden"])
    registry = await ground.registry(engine.url)
    await registry.first_look()

    await asyncio.to_thread(postgres.stop)
    engine.models.append("hazel")
    await until(lambda: "database is away" in caplog.text)
    await looked_at_again(registry, "engine-1")
    meanwhile = offered(registry)
    postgres.start()  # not in a thread: the server would end with it
    await until(lambda: len(registry.engines[0].deployments) == 2)

    assert meanwhile == ["linden"]
    assert offered(registry) == ["linden", "hazel"]
    assert caplog.text.count("database is away") == 1
    assert caplog.text.count("database is back") == 1


async def test_two_processes_may_look_after_the_same_engines(ground: Ground) -> None:
    engine = await ground.engine(models=["linden", "hazel"])
    registries = await asyncio.gather(*(ground.registry(engine.url) for _ in range(3)))
    for registry in registries:
        await registry.first_look()
    await until(lambda: all(offered(registry) == ["linden", "hazel"] for registry in registries))

    async with ground.db.begin() as session:
        assert len((await session.scalars(select(Deployment))).all()) == 2


async def test_a_server_on_this_machine_is_shown_until_it_is_added(ground: Ground) -> None:
    server = strangers.WebServer()
    with server.running() as url:
        ollama = LocalServer("Ollama", url)
        registry = await ground.registry(local=(ollama, LocalServer("LM Studio", strangers.nobody())))
        await until(lambda: registry.local == (ollama,))
        asked = list(server.asked)

        await ground.add("Ollama", url)
        await registry.reload()

        assert registry.local == ()
    assert asked == []


async def test_a_server_that_may_not_be_added_is_not_shown(ground: Ground) -> None:
    with strangers.silent() as first, strangers.silent() as own:
        port = int(own.rpartition(":")[2])
        allowed = await ground.registry(local=(LocalServer("Ollama", first),), port=port)
        refused = await ground.registry(local=(LocalServer("Ollama", first),), engine_allowed=["10.0.0.0/8"])
        ourselves = await ground.registry(local=(LocalServer("LM Studio", own),), port=port)
        for registry in (allowed, refused, ourselves):
            await registry._look_around()

        assert [server.name for server in allowed.local] == ["Ollama"]
        assert refused.local == ()
        assert ourselves.local == ()


async def test_a_list_that_cannot_be_read_stops_the_start(db: Sessions) -> None:
    with pytest.raises(BadInput, match="PARLEY_ENGINE_ALLOWED"):
        Registry(Settings(engine_allowed=("127.1",)), db, SEALER)

import asyncio
from dataclasses import dataclass
from uuid import UUID

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import selectinload

from backend.core.clock import now
from backend.core.db import Sessions
from backend.engines import findings, publishing, queries, service
from backend.engines.findings import Findings, display_name
from backend.engines.kinds import Kind
from backend.engines.models import Deployment, Engine, Model, Source
from backend.engines.pages import UpstreamModel


@dataclass
class Rows:
    """Reads and writes in transactions of its own, as the registry does."""

    db: Sessions

    async def engine(self, name: str = "east", source: Source = Source.ENVIRONMENT) -> UUID:
        async with self.db.begin() as session:
            engine = Engine(name=name, url=f"http://{name}:8000".replace(" ", "-"), source=source)
            session.add(engine)
        return engine.id

    async def found(
        self, engine_id: UUID, *names: str, publish: bool = True, context: int | None = None, kind: Kind = Kind.VLLM
    ) -> None:
        models = [UpstreamModel(name, context_length=context) for name in names]
        async with self.db.begin() as session:
            await findings.store(session, engine_id, Findings(kind, "0.32", models), publish=publish)

    async def models(self) -> list[Model]:
        async with self.db.begin() as session:
            select_all = select(Model).options(selectinload(Model.deployments)).order_by(Model.position)
            return list(await session.scalars(select_all))

    async def deployments(self) -> dict[str, Deployment]:
        async with self.db.begin() as session:
            return {each.upstream_name: each for each in await session.scalars(select(Deployment))}


@pytest.fixture
def rows(db: Sessions) -> Rows:
    return Rows(db)


async def test_models_of_the_first_engine_are_published_in_the_order_listed(rows: Rows) -> None:
    engine = await rows.engine()

    await rows.found(engine, "linden-32b", "team/hazel-8b", context=4096)

    assert [(model.name, model.published) for model in await rows.models()] == [
        ("linden-32b", True),
        ("hazel-8b", True),
    ]
    deployments = await rows.deployments()
    assert deployments["team/hazel-8b"].context_length == 4096
    assert deployments["team/hazel-8b"].missing_since is None


async def test_models_of_other_engines_wait_for_an_admin(rows: Rows) -> None:
    engine = await rows.engine()

    await rows.found(engine, "linden-32b", publish=False)

    assert await rows.models() == []
    assert (await rows.deployments())["linden-32b"].model_id is None


async def test_kind_and_version_are_kept_with_the_engine(rows: Rows, db: Sessions) -> None:
    engine_id = await rows.engine()

    await rows.found(engine_id)
    async with db.begin() as session:
        await findings.store(session, engine_id, Findings(None, None, []), publish=False)

    async with db.begin() as session:
        engine = await service.find_engine(session, engine_id)
    assert (engine.kind, engine.version) == ("vllm", "0.32")


async def test_other_weights_under_an_old_name_are_tried_anew(rows: Rows, db: Sessions) -> None:
    engine_id = await rows.engine()

    async def look(model: UpstreamModel) -> Deployment:
        async with db.begin() as session:
            await findings.store(session, engine_id, Findings("vllm", "0.32", [model]), publish=False)
            deployment = (await session.scalars(queries.deployments_of(engine_id))).one()
            kept = Deployment(revision=deployment.revision, continues=deployment.continues, thinks=deployment.thinks)
            deployment.continues = True
        return kept

    first = await look(UpstreamModel("linden", revision="a", thinks=True))
    in_between = await look(UpstreamModel("linden"))  # a look that is not thorough tells less
    other = await look(UpstreamModel("linden", revision="b"))

    assert (first.revision, first.continues, first.thinks) == ("a", None, True)
    assert (in_between.revision, in_between.continues, in_between.thinks) == ("a", True, True)
    assert (other.revision, other.continues, other.thinks) == ("b", None, None)


async def test_a_window_that_is_only_assumed_gives_way_to_one_that_was_told(rows: Rows, db: Sessions) -> None:
    engine_id = await rows.engine()
    windows = []
    for length, assumed in ((4096, True), (32768, False), (4096, True), (16384, False)):
        model = UpstreamModel("linden", context_length=length, context_is_assumed=assumed)
        async with db.begin() as session:
            await findings.store(session, engine_id, Findings("ollama", "0.14", [model]), publish=False)
        windows.append((await rows.deployments())["linden"].context_length)

    assert windows == [4096, 32768, 32768, 16384]


async def test_a_hosted_service_is_marked_as_outside(rows: Rows, db: Sessions) -> None:
    engine_id = await rows.engine()
    async with db.begin() as session:
        await findings.store(session, engine_id, Findings("hosted", None, []), publish=False)

    async with db.begin() as session:
        assert (await service.find_engine(session, engine_id)).external


async def test_what_an_admin_withdrew_does_not_come_back(rows: Rows, db: Sessions) -> None:
    engine = await rows.engine()
    await rows.found(engine, "linden-32b")
    async with db.begin() as session:
        await publishing.unpublish(session, await service.find_model(session, (await rows.models())[0].id))

    await rows.found(engine)
    await rows.found(engine, "linden-32b")

    assert [model.published for model in await rows.models()] == [False]
    assert len(await rows.deployments()) == 1


async def test_a_published_name_on_a_second_engine_is_only_proposed(rows: Rows) -> None:
    first, second = await rows.engine("east"), await rows.engine("west")
    await rows.found(first, "linden-32b")

    await rows.found(second, "linden-32b")

    (model,) = await rows.models()
    assert [deployment.engine_id for deployment in model.deployments] == [first]
    assert len(await rows.models()) == 1


async def test_two_paths_with_the_same_end_are_two_models(rows: Rows) -> None:
    engine = await rows.engine()

    await rows.found(engine, "team/llama", "other/llama")

    assert [model.name for model in await rows.models()] == ["llama", "other/llama"]


async def test_a_name_that_is_no_longer_listed_is_kept_and_marked(rows: Rows) -> None:
    engine = await rows.engine()
    await rows.found(engine, "linden-32b", "hazel-8b")

    await rows.found(engine, "hazel-8b")
    gone = await rows.deployments()
    await rows.found(engine, "hazel-8b")
    still_gone = await rows.deployments()
    await rows.found(engine, "linden-32b", "hazel-8b")
    back = await rows.deployments()

    assert gone["linden-32b"].missing_since is not None
    assert gone["hazel-8b"].missing_since is None
    assert still_gone["linden-32b"].missing_since == gone["linden-32b"].missing_since
    assert back["linden-32b"].missing_since is None
    assert back["linden-32b"].model_id == gone["linden-32b"].model_id


async def test_what_was_proved_is_proved_again_for_another_version_and_for_a_name_that_comes_back(
    rows: Rows, db: Sessions
) -> None:
    engine_id = await rows.engine()
    await rows.found(engine_id, "linden", "hazel")

    async def prove_and_find(*names: str, version: str) -> dict[str, tuple[bool | None, bool | None]]:
        async with db.begin() as session:
            await session.execute(update(Deployment).values(continues=True, sees=False))
            found = Findings("vllm", version, [UpstreamModel(name) for name in names])
            await findings.store(session, engine_id, found, publish=True)
        return {name: (each.continues, each.sees) for name, each in (await rows.deployments()).items()}

    same = await prove_and_find("linden", "hazel", version="0.32")
    upgraded = await prove_and_find("linden", "hazel", version="0.33")
    await prove_and_find("hazel", version="0.33")
    back = await prove_and_find("linden", "hazel", version="0.33")

    assert same == {"linden": (True, False), "hazel": (True, False)}
    assert upgraded == {"linden": (None, None), "hazel": (None, None)}
    assert back == {"linden": (None, None), "hazel": (True, False)}


async def test_a_context_length_follows_the_engine_and_is_not_forgotten(rows: Rows) -> None:
    engine = await rows.engine()
    await rows.found(engine, "linden-32b", context=4096)

    await rows.found(engine, "linden-32b", context=8192)
    await rows.found(engine, "linden-32b", context=None)

    assert (await rows.deployments())["linden-32b"].context_length == 8192


@pytest.mark.parametrize("name", ["nomic-embed-text:latest", "bge-m3", "qwen3-reranker", "whisper-1"])
async def test_what_cannot_chat_is_not_published_by_itself(rows: Rows, name: str) -> None:
    engine = await rows.engine()

    await rows.found(engine, name, "linden-32b")

    assert [model.name for model in await rows.models()] == ["linden-32b"]
    assert name in await rows.deployments()


async def test_what_leaves_the_house_is_for_the_kind_to_say(rows: Rows) -> None:
    vllm, ollama = await rows.engine(), await rows.engine("west")

    await rows.found(vllm, "linden-cloud")
    await rows.found(ollama, "hazel:cloud", kind=Kind.OLLAMA)

    assert [model.name for model in await rows.models()] == ["linden-cloud"]
    assert "hazel:cloud" in await rows.deployments()


async def test_the_embedded_engine_gives_two_models_to_switch_between(rows: Rows) -> None:
    engine = await rows.engine("This machine", Source.EMBEDDED)

    await rows.found(engine, "smollm2-135m-instruct")

    normal, brief = await rows.models()
    assert (normal.name, normal.system_prompt, normal.published) == ("SmolLM2 135M", "", True)
    assert (brief.name, brief.published) == ("SmolLM2 135M, brief", True)
    assert brief.system_prompt == "Answer in one or two short sentences."
    assert brief.temperature is not None
    assert brief.temperature < 0.5
    assert [model.deployments[0].upstream_name for model in (normal, brief)] == ["smollm2-135m-instruct"] * 2


async def test_the_embedded_engine_is_found_again_without_doubling(rows: Rows, db: Sessions) -> None:
    engine = await rows.engine("This machine", Source.EMBEDDED)
    await rows.found(engine, "smollm2-135m-instruct")

    await rows.found(engine)
    await rows.found(engine, "smollm2-135m-instruct")

    async with db.begin() as session:
        deployments = (await session.scalars(select(Deployment))).all()
    assert len(deployments) == 2
    assert [deployment.missing_since for deployment in deployments] == [None, None]
    assert len(await rows.models()) == 2


async def test_an_engine_that_was_removed_meanwhile_is_passed_over(rows: Rows, db: Sessions) -> None:
    engine_id = await rows.engine(source=Source.DATABASE)
    async with db.begin() as session:
        await service.remove(session, await service.find_engine(session, engine_id))

    await rows.found(engine_id, "linden-32b")

    assert await rows.models() == []


async def test_two_processes_may_find_the_same_at_once(rows: Rows) -> None:
    engine = await rows.engine()

    await asyncio.gather(*(rows.found(engine, "linden-32b", "hazel-8b") for _ in range(4)))
    await asyncio.gather(*(rows.found(engine, "elder-70b", publish=False) for _ in range(4)))

    assert [model.name for model in await rows.models()] == ["linden-32b", "hazel-8b"]
    assert len(await rows.deployments()) == 3


@pytest.mark.parametrize(
    ("upstream", "embedded", "shown"),
    [
        ("smollm2-135m-instruct", True, "SmolLM2 135M"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", True, "SmolLM2 135M"),
        ("smollm2-135m-instruct", False, "smollm2-135m-instruct"),
        ("Qwen3-0.6B-Q8_0", True, "Qwen3-0.6B-Q8_0"),
        ("meta-llama/Llama-3.1-8B-Instruct", False, "Llama-3.1-8B-Instruct"),
        ("llama3.2:latest", False, "llama3.2:latest"),
        ("/weights/smollm2-hf/", False, "smollm2-hf"),
        ("/", False, "/"),
        ("x" * 300, False, "x" * 100),
    ],
)
def test_people_read_the_last_part_of_a_name(upstream: str, embedded: bool, shown: str) -> None:
    assert display_name(upstream, embedded=embedded) == shown


def known(**deployments: Deployment) -> Engine:
    engine = Engine(name="east", url="http://east:8000", source=Source.ENVIRONMENT, kind="vllm", version="0.32")
    engine.deployments = list(deployments.values())
    return engine


def test_only_news_is_written() -> None:
    there = Deployment(upstream_name="linden", context_length=4096, missing_since=None)
    missing = Deployment(upstream_name="elder", context_length=None, missing_since=now())
    engine = known(there=there, missing=missing)
    linden = UpstreamModel("linden", context_length=4096)

    def is_news(*models: UpstreamModel, kind: str | None = None, version: str | None = None) -> bool:
        return findings.is_news(engine, Findings(kind, version, models))

    assert not is_news(linden)
    assert not is_news(UpstreamModel("linden"), kind="vllm", version="0.32")
    assert is_news(linden, version="0.33")
    assert is_news(linden, kind="sglang")
    assert is_news(linden, UpstreamModel("elder"))
    assert is_news(linden, UpstreamModel("hazel"))
    assert is_news(UpstreamModel("linden", context_length=8192))
    assert is_news()

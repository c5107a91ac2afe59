"""What each kind tells about its models beside the list, and how it is told to load them."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from backend.core.settings import EngineSetting
from backend.engines import dialects
from backend.engines.client import EngineClient
from backend.engines.dialects import ALL, LoadedModel, ModelState
from backend.engines.events import EngineFailed, Failure
from backend.engines.kinds import Kind
from backend.engines.pages import UpstreamModel
from tests.engines import strangers
from tests.engines.replay import recording
from tests.engines.test_discovery import knowing, listed
from tests.fakes.engine import FakeEngine


async def told(kind: Kind, pages: Mapping[str, object]) -> UpstreamModel:
    """The first model, as a thorough look finds it."""
    async with knowing(pages) as url, EngineClient(url) as client:
        client.speak(kind, forced=True)
        probe = await client.probe()
    return probe.models[0]


OLLAMA = {
    "/v1/models": listed(owned_by="library"),
    "/": b"Ollama is running",
    "/api/tags": {"models": [{"name": "other", "digest": "0"}, {"name": "m", "digest": "9f4e"}]},
}
SHOWN = {"model_info": {"llama.context_length": 131072}, "capabilities": ["completion", "thinking"]}


async def test_ollama_tells_the_window_of_what_is_loaded() -> None:
    loaded = {"/api/ps": {"models": [{"name": "m", "context_length": 32768}]}, "/api/show": SHOWN}

    model = await told(Kind.OLLAMA, OLLAMA | loaded)

    assert model == UpstreamModel("m", "library", 32768, "9f4e", thinks=True)


@pytest.mark.parametrize(
    ("shown", "length", "assumed"),
    [
        (SHOWN, 4096, True),
        ({"model_info": {"bert.context_length": 512}}, 512, True),
        ({**SHOWN, "parameters": 'stop "x"\nnum_ctx                        8192\ntop_k 3'}, 8192, False),
        ({}, 4096, True),
    ],
)
async def test_what_ollama_has_not_loaded_is_taken_for_small(
    shown: dict[str, object], length: int, assumed: bool
) -> None:
    """It drops the oldest turns without a word when it is sent too much."""
    model = await told(Kind.OLLAMA, OLLAMA | {"/api/show": shown})

    assert (model.context_length, model.context_is_assumed) == (length, assumed)


async def test_models_that_ollama_passes_on_to_its_maker_are_not_listed() -> None:
    entries = [{"id": name, "owned_by": "library"} for name in ("gpt-oss:120b-cloud", "glm:cloud", "llama3", "cloudy")]
    async with knowing({"/v1/models": {"data": entries}}) as url, EngineClient(url, kind=Kind.OLLAMA) as client:
        models = await client.models()

    assert [model.id for model in models] == ["llama3", "cloudy"]


async def test_lm_studio_tells_the_window_of_what_is_loaded_and_leaves_out_what_embeds() -> None:
    pages = {
        "/v1/models": {"data": [{"id": "a"}, {"id": "b"}, {"id": "c"}]},
        "/api/v1/models": {
            "models": [
                {
                    "key": "a",
                    "type": "llm",
                    "loaded_instances": [{"id": "a:2", "config": {"context_length": 16384}}],
                    "max_context_length": 131072,
                    "capabilities": {"reasoning": {"allowed_options": ["off", "on"]}},
                },
                {"key": "b", "type": "llm", "loaded_instances": [], "max_context_length": 131072},
                {"key": "c", "type": "embedding", "loaded_instances": []},
            ]
        },
    }
    async with knowing(pages) as url, EngineClient(url, kind=Kind.LMSTUDIO) as client:
        models = await client.models()

    assert models == [
        UpstreamModel("a", "", 16384, thinks=True),
        UpstreamModel("b", "", 4096, context_is_assumed=True),
    ]


async def test_the_recorded_llama_cpp_tells_the_file_of_its_weights() -> None:
    pages = {"/v1/models": recording("llamacpp/models").body, "/props": recording("llamacpp/props").body}

    model = await told(Kind.LLAMACPP, pages)

    assert model.context_length == 1024
    assert model.revision is not None
    assert model.revision.endswith("SmolLM2-135M-Instruct.Q4_1.gguf")


async def test_vllm_tells_what_it_serves_and_the_production_stack_its_window_only_when_it_counts() -> None:
    pages = {"/v1/models": listed(owned_by="vllm"), "/tokenize": {"count": 1, "max_model_len": 4096}}

    assert (await told(Kind.VLLM, {"/v1/models": recording("vllm/models").body})).revision == "/weights/smollm2-hf"
    assert (await told(Kind.PRODUCTION_STACK, pages)).context_length == 4096


@pytest.mark.parametrize("page", [b"", b"<html>", b"[]", b"null", b'{"models":"odd","data":7,"version":[]}'])
@pytest.mark.parametrize("kind", list(Kind))
async def test_pages_that_make_no_sense_change_nothing(kind: Kind, page: bytes) -> None:
    paths = ["/", "/api/tags", "/api/ps", "/api/show", "/api/v1/models", "/info", "/props", "/tokenize", "/version"]
    pages: dict[str, object] = dict.fromkeys(paths, page)

    model = await told(kind, pages | {"/v1/models": listed()})

    assert model.id == "m"
    assert model.revision is None


# Loading and unloading


@pytest.mark.parametrize("kind", [Kind.OLLAMA, Kind.LLAMACPP, Kind.LMSTUDIO])
async def test_a_model_is_loaded_and_unloaded(kind: Kind) -> None:
    async with FakeEngine(kind=kind, models=["a", "b"]) as engine, EngineClient(engine.url, kind=kind) as client:
        await client.load("b")
        with_b = await client.loaded()
        await client.unload("b")
        without = await client.loaded()

    assert states(with_b) == {"a": ModelState.UNLOADED, "b": ModelState.LOADED}
    assert states(without) == {"a": ModelState.UNLOADED, "b": ModelState.UNLOADED}


async def test_ollama_tells_how_long_a_model_stays_and_keeps_one_for_ever() -> None:
    async with (
        FakeEngine(kind=Kind.OLLAMA, models=["a"], window=32_768) as engine,
        EngineClient(engine.url, kind=Kind.OLLAMA) as client,
    ):
        await client.load("a")
        for_a_while = await client.loaded()
        await client.load("a", keep=True)
        kept = await client.loaded()

    until = datetime(2026, 12, 4, 13, 38, 31, 837538, UTC)
    assert for_a_while == [LoadedModel("a", ModelState.LOADED, 32_768, 5_137_025_024, until)]
    assert kept == [LoadedModel("a", ModelState.LOADED, 32_768, 5_137_025_024, None)]
    keeping = {kind for kind, dialect in ALL.items() if dialect.lifecycle and dialect.lifecycle.keeps_warm}
    assert keeping == {Kind.OLLAMA}


async def test_vllm_sleeps_and_wakes_up_where_it_was_started_so() -> None:
    async with FakeEngine(dev_mode=True) as engine, EngineClient(engine.url, kind=Kind.VLLM) as client:
        await client.unload("fake-8b")
        asleep = await client.loaded()
        await client.load("fake-8b")
        awake = await client.loaded()

    assert states(asleep) == {"fake-8b": ModelState.SLEEPING}
    assert states(awake) == {"fake-8b": ModelState.LOADED}


@pytest.mark.parametrize("kind", [Kind.VLLM, Kind.LLAMACPP, Kind.SGLANG, Kind.TGI, Kind.OPENAI, Kind.VLLM_ROUTER])
async def test_others_say_that_they_cannot(kind: Kind) -> None:
    """vLLM without its development mode, llama.cpp with one model, and all that never could."""
    async with FakeEngine(kind=kind) as engine, EngineClient(engine.url, kind=kind) as client:
        loaded = await client.loaded()
        with pytest.raises(EngineFailed) as failure:
            await client.load("fake-8b")

    assert loaded is None
    assert failure.value.kind in (Failure.BAD_REQUEST, Failure.NONSENSE)


async def test_loading_what_leaves_the_house_and_asking_an_engine_that_is_away_fail_in_words() -> None:
    async with EngineClient(strangers.nobody(), kind=Kind.OLLAMA) as client:
        with pytest.raises(EngineFailed, match="servers of its maker"):
            await client.load("glm:cloud")
        with pytest.raises(EngineFailed, match="cannot be reached"):
            await client.loaded()
        with pytest.raises(EngineFailed, match="cannot be reached"):
            await client.unload("a")


def test_the_wish_not_to_think_is_kept_from_a_strict_kind_whose_model_never_does() -> None:
    strict, other = dialects.of(Kind.TRTLLM), dialects.of(Kind.VLLM)

    assert [strict.without_thinking(thinks) for thinks in (True, False, None)] == ["off", "", ""]
    assert [other.without_thinking(thinks) for thinks in (True, False, None)] == ["off", "off", "off"]


def states(models: object) -> dict[str, ModelState]:
    assert isinstance(models, list)
    return {model.name: model.state for model in models}


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_can_be_named_by_the_deployment(kind: Kind) -> None:
    setting = EngineSetting.model_validate_json(json.dumps({"name": "a", "url": "http://gpu-1:8000", "kind": kind}))

    assert setting.kind == kind

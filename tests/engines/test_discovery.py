import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from backend.engines import wire
from backend.engines.client import EngineClient, UpstreamModel
from backend.engines.events import EngineFailed, Failure
from backend.engines.kinds import Kind
from backend.engines.pages import Page, read_models
from tests.engines.replay import read_request, recording, serving
from tests.fakes.engine import FakeEngine

Pages = Mapping[str, object]


def listed(**fields: object) -> dict[str, object]:
    return {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, **fields}]}


@asynccontextmanager
async def knowing(pages: Pages, server: str = "test") -> AsyncIterator[str]:
    """An HTTP server that has nothing but `pages`."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        page = pages.get(await read_request(reader))
        content = page if isinstance(page, bytes) else json.dumps(page).encode()
        status = "404 Not Found" if page is None else "200 OK"
        head = f"HTTP/1.1 {status}\r\nServer: {server}\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)

    async with serving(answer) as url:
        yield url


async def test_vllm_is_known_by_its_models_and_tells_its_version() -> None:
    async with FakeEngine(models=["a", "b"], window=4096) as engine, EngineClient(engine.url) as client:
        probe = await client.probe()

    assert (probe.kind, probe.version) == (Kind.VLLM, "0.32.0")
    assert [model.id for model in probe.models] == ["a", "b"]


@pytest.mark.parametrize(
    ("pages", "kind", "version"),
    [
        ({"/v1/models": listed(owned_by="vllm")}, Kind.VLLM, None),
        # What vllm-router 0.1.17 and the SGLang gateway 0.3.2 answered, both in front of llama.cpp
        (
            {
                "/v1/models": {**listed(owned_by="llamacpp"), "models": []},
                "/list_workers": {"urls": ["http://127.0.0.1:18901"]},
                "/workers": {"workers": [{"url": "http://127.0.0.1:18901", "is_healthy": True}], "total": 1},
            },
            Kind.VLLM_ROUTER,
            None,
        ),
        (
            {
                "/v1/models": {"object": "list", "data": [{"id": "unknown", "object": "model", "owned_by": "local"}]},
                "/workers": {"workers": [{"url": "http://127.0.0.1:18901", "is_healthy": True}], "total": 1},
            },
            Kind.SMG,
            None,
        ),
        (
            {
                "/v1/models": listed(owned_by="vllm"),
                "/engines": [{"engine_id": "a", "serving_models": ["m"], "created": 1}],
                "/version": {"version": "0.1.9"},
            },
            Kind.PRODUCTION_STACK,
            "0.1.9",
        ),
        ({"/v1/models": listed(owned_by="vllm"), "/engines": [], "/workers": ["odd"]}, Kind.VLLM, None),
        ({"/v1/models": listed(owned_by="sglang"), "/server_info": {"version": "0.5.23"}}, Kind.SGLANG, "0.5.23"),
        ({"/v1/models": listed(owned_by="tensorrt_llm"), "/version": {"version": "1.3.0"}}, Kind.TRTLLM, "1.3.0"),
        ({"/v1/models": listed(owned_by="llamacpp"), "/props": {"build_info": "b11434-x"}}, Kind.LLAMACPP, "b11434-x"),
        ({"/v1/models": {**listed(owned_by="me"), "models": []}}, Kind.LLAMACPP, None),
        (
            {"/v1/models": listed(owned_by="library"), "/": b"Ollama is running", "/api/version": {"version": "0.9"}},
            Kind.OLLAMA,
            "0.9",
        ),
        ({"/v1/models": listed(), "/api/v1/models": {"models": [{"loaded_instances": []}]}}, Kind.LMSTUDIO, None),
        (
            {"/v1/models": listed(), "/api/v0/models": {"data": [{"id": "m", "state": "not-loaded"}]}},
            Kind.LMSTUDIO,
            None,
        ),
        ({"/v1/models": listed(owned_by="m", created=0), "/info": {"version": "3.3.5"}}, Kind.TGI, "3.3.5"),
        ({"/v1/models": listed(owned_by="openai")}, Kind.OPENAI, None),
        ({"/v1/models": listed(), "/": b"<title>Ollama is running</title>"}, Kind.OPENAI, None),
        ({"/v1/models": {"data": []}}, Kind.OPENAI, None),
        ({"/v1/models": listed(owned_by="vllm"), "/version": ["odd"]}, Kind.VLLM, None),
    ],
)
async def test_each_kind_has_a_sign(pages: Pages, kind: Kind, version: str | None) -> None:
    async with knowing(pages) as url, EngineClient(url) as client:
        probe = await client.probe()

    assert (probe.kind, probe.version) == (kind, version)


async def test_envoy_in_front_of_vllm_is_taken_for_llm_d_and_in_front_of_others_for_nothing() -> None:
    for owner, kind in (("vllm", Kind.LLMD), ("llamacpp", Kind.LLAMACPP), ("me", Kind.OPENAI)):
        async with knowing({"/v1/models": listed(owned_by=owner)}, server="envoy") as url, EngineClient(url) as client:
            assert (await client.probe()).kind is kind


async def test_a_kind_that_somebody_forced_stays_and_its_own_pages_are_read() -> None:
    pages = {"/v1/models": listed(owned_by="vllm"), "/info": {"version": "3.3.5", "sha": "abc", "max_total_tokens": 9}}
    async with knowing(pages) as url, EngineClient(url) as client:
        client.speak(Kind.TGI, forced=True)
        probe = await client.probe()

    assert (probe.kind, client.dialect.kind) == (Kind.VLLM, Kind.TGI)
    assert (probe.version, probe.models[0].revision, probe.models[0].context_length) == ("3.3.5", "abc", 9)


async def test_llama_cpp_is_known_by_its_header_too() -> None:
    async with knowing({"/v1/models": {"data": []}}, server="llama.cpp") as url, EngineClient(url) as client:
        assert (await client.probe()).kind is Kind.LLAMACPP


def made_of(*modalities: str) -> dict[str, object]:
    return listed(architecture={"input_modalities": modalities})


@pytest.mark.parametrize(
    ("kind", "pages", "sees"),
    [
        (Kind.LLAMACPP, {"/v1/models": made_of("text", "image")}, True),
        (Kind.LLAMACPP, {"/v1/models": made_of("text"), "/props": {"modalities": {"vision": True}}}, False),
        (Kind.LLAMACPP, {"/v1/models": listed(), "/props": {"modalities": {"vision": True}}}, True),
        (Kind.LLAMACPP, {"/v1/models": listed(id="other", architecture={"input_modalities": ["image"]})}, None),
        (Kind.OLLAMA, {"/api/show": {"capabilities": ["completion", "vision"]}}, True),
        (Kind.OLLAMA, {"/api/show": {"capabilities": ["completion"]}}, False),
        (Kind.OLLAMA, {"/api/show": {"details": {}}}, None),
        (Kind.LMSTUDIO, {"/api/v1/models": {"models": [{"key": "m", "capabilities": {"vision": True}}]}}, True),
        (Kind.LMSTUDIO, {"/api/v1/models": {"models": [{"key": "other", "capabilities": {"vision": True}}]}}, None),
        (Kind.LMSTUDIO, {"/api/v1/models": ["odd"]}, None),
        (Kind.OPENAI, {"/v1/models": made_of("text", "image")}, True),
        (Kind.OPENAI, {"/v1/models": listed()}, None),
        (Kind.VLLM, {"/v1/models": listed()}, None),
        (None, {}, None),
    ],
)
async def test_some_kinds_say_whether_a_model_sees(kind: Kind | None, pages: Pages, sees: bool | None) -> None:
    async with knowing(pages) as url, EngineClient(url, kind=kind) as client:
        assert await client.sees("m") is sees


async def test_the_recorded_llama_cpp_says_that_it_does_not_see() -> None:
    for name in ("models", "props"):
        pages = {"/v1/models": {"data": []}, f"{'/v1' * (name == 'models')}/{name}": recording(f"llamacpp/{name}").body}
        async with knowing(pages) as url, EngineClient(url, kind=Kind.LLAMACPP) as client:
            assert await client.sees("smollm2") is False


def test_the_version_of_the_recorded_llama_cpp_is_where_it_is_looked_for() -> None:
    assert json.loads(recording("llamacpp/props").body)["build_info"] == "b0-unknown"
    assert json.loads(recording("vllm/version").body)["version"] == "0.32.0"


async def test_an_adapter_has_the_window_of_its_model() -> None:
    async with (
        FakeEngine(models=["a"], adapters=["a-legal"], window=4096) as engine,
        EngineClient(engine.url) as client,
    ):
        models = await client.models()

    assert models[1] == UpstreamModel("a-legal", "vllm", 4096, "/adapters/a-legal")


def test_entries_that_make_no_sense_are_passed_over() -> None:
    entries: list[object] = [
        {"id": "good"},
        "text",
        None,
        {},
        {"id": 5},
        {"id": ""},
        {"id": "x" * 301},
        {"id": "a\0b"},
        {"id": "odd", "owned_by": 7, "root": [], "max_model_len": "many", "meta": None},
        {"id": "huge", "max_model_len": 2**40},
        {"id": "host", "context_length": 8192},
    ]

    models = read_models(Page(json.dumps({"data": entries}).encode()))

    assert models == [
        UpstreamModel("good"),
        UpstreamModel("odd"),
        UpstreamModel("huge"),
        UpstreamModel("host", "", 8192),
    ]


def test_what_should_be_a_name_and_is_something_else_is_passed_over() -> None:
    entries = [{"id": ["a"]}, {"id": {"b": 1}}, {"id": "adapter", "parent": ["a"]}, {"id": "good", "owned_by": []}]

    assert [model.id for model in read_models(Page(json.dumps({"data": entries}).encode()))] == ["adapter", "good"]


def test_a_list_without_end_is_read_only_so_far() -> None:
    entries = [{"id": str(number)} for number in range(2_000)]

    assert len(read_models(Page(json.dumps({"data": entries}).encode()))) == 1_000


@pytest.mark.parametrize("content", [b"<html>Sign in</html>", b"", b"[]", b'{"data":{}}', b'{"models":[]}', b"\xff"])
async def test_a_page_that_is_no_list_of_models_is_nonsense(content: bytes) -> None:
    """ENG-01, the engine that answers with HTML"""
    async with knowing({"/v1/models": content}) as url, EngineClient(url) as client:
        for asking in (client.models, client.probe):
            with pytest.raises(EngineFailed) as failure:
                await asking()
            assert failure.value.kind is Failure.NONSENSE


async def test_a_wrong_key_is_told_apart() -> None:
    async with FakeEngine(api_key="right") as engine, EngineClient(engine.url, "wrong") as client:
        with pytest.raises(EngineFailed) as failure:
            await client.models()

    assert failure.value.kind is Failure.AUTH
    assert str(failure.value) == "The engine does not accept Parley’s key. An admin can correct it."


async def test_an_engine_that_accepts_and_never_answers_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """ENG-01, the engine that hangs"""
    monkeypatch.setattr(wire, "PAGE_SECONDS", 0.2)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(hang) as url, EngineClient(url) as client:
        before = time.monotonic()
        with pytest.raises(EngineFailed) as failure:
            await client.probe()

    assert failure.value.kind is Failure.TIMEOUT
    assert time.monotonic() - before < 1

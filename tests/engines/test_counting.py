import asyncio
import json
import time

import pytest

from backend.engines import client as client_module, wire
from backend.engines.client import ChatMessage, EngineClient
from backend.engines.events import EngineFailed, Failure
from backend.engines.kinds import Kind
from tests.engines import strangers
from tests.engines.replay import playing, recording, serving
from tests.engines.test_discovery import knowing
from tests.fakes.engine import FakeEngine

ASKED: list[ChatMessage] = [{"role": "user", "content": "What is the capital of France? Answer briefly."}]
BEGUN: list[ChatMessage] = [*ASKED, {"role": "assistant", "content": "The capital"}]


@pytest.mark.parametrize(("name", "kind"), [("vllm/tokenize", Kind.VLLM), ("llamacpp/input-tokens", Kind.LLAMACPP)])
async def test_a_recorded_count_is_read(name: str, kind: Kind) -> None:
    async with playing(recording(name)) as url, EngineClient(url, kind=kind) as client:
        assert await client.count_tokens("smollm2", ASKED) == 40


async def test_tgi_lists_the_tokens() -> None:
    page = {"tokenize_response": [{"id": 1, "text": "a", "start": 0, "stop": 1}] * 7, "templated_text": "a"}
    async with knowing({"/chat_tokenize": page}) as url, EngineClient(url, kind=Kind.TGI) as client:
        assert await client.count_tokens("m", ASKED) == 7


@pytest.mark.parametrize("kind", [Kind.VLLM, Kind.SGLANG, Kind.LLAMACPP, Kind.TGI])
async def test_an_engine_counts_what_it_would_be_asked(kind: Kind) -> None:
    async with FakeEngine(kind=kind) as engine, EngineClient(engine.url, kind=kind) as client:
        asked = await client.count_tokens("fake-8b", ASKED)
        begun = await client.count_tokens("fake-8b", BEGUN, continues=True)

    assert asked is not None
    assert begun is not None
    assert asked < begun <= asked + 4
    assert engine.counted[0] == {"model": "fake-8b", "messages": ASKED}
    assert engine.counted[1]["continue_final_message"] is True
    assert engine.requests == []


@pytest.mark.parametrize("kind", [None, Kind.OLLAMA, Kind.LMSTUDIO, Kind.TRTLLM, Kind.OPENAI])
async def test_others_cannot_count_and_are_not_asked(kind: Kind | None) -> None:
    async with EngineClient(strangers.nobody(), kind=kind) as client:
        assert await client.count_tokens("m", ASKED) is None


async def test_a_router_that_keeps_counting_to_itself_is_asked_once() -> None:
    server = strangers.WebServer()
    with server.running() as url:
        async with EngineClient(url, kind=Kind.VLLM) as client:
            counts = [await client.count_tokens("m", ASKED) for _ in range(3)]
    async with knowing({"/tokenize": {"count": "many"}}) as url, EngineClient(url, kind=Kind.VLLM) as client:
        nonsense = await client.count_tokens("m", ASKED)

    assert counts == [None, None, None]
    assert server.asked == ["/tokenize"]
    assert nonsense is None


async def test_a_failure_is_a_failure_and_the_next_count_is_tried() -> None:
    async with (
        FakeEngine(load_seconds=30, answers_while_loading=True) as engine,
        EngineClient(engine.url, kind=Kind.VLLM) as client,
    ):
        with pytest.raises(EngineFailed) as loading:
            await client.count_tokens("fake-8b", ASKED)
        engine._loading_until = 0
        count = await client.count_tokens("fake-8b", ASKED)

    assert loading.value.kind is Failure.LOADING
    assert count


async def test_a_prompt_beyond_measure_does_not_end_the_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count comes with all its tokens."""
    monkeypatch.setattr(wire, "MAX_PAGE_BYTES", 1_000)
    async with FakeEngine() as engine, EngineClient(engine.url, kind=Kind.VLLM) as client:
        with pytest.raises(EngineFailed) as failure:
            await client.count_tokens("fake-8b", [{"role": "user", "content": "word " * 1_000}])
        count = await client.count_tokens("fake-8b", ASKED)

    assert failure.value.kind is Failure.CUT
    assert count


async def test_nobody_waits_long_for_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "COUNT_SECONDS", 0.2)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(hang) as url, EngineClient(url, kind=Kind.VLLM) as client:
        before = time.monotonic()
        with pytest.raises(EngineFailed) as failure:
            await client.count_tokens("m", ASKED)

    assert failure.value.kind is Failure.TIMEOUT
    assert time.monotonic() - before < 1


async def test_a_connection_that_was_closed_meanwhile_is_not_a_failure() -> None:
    """llama.cpp closes after each answer, and the pool may not have noticed yet."""
    asked: list[bytes] = []

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        body = json.dumps({"count": len(asked)}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        await asyncio.sleep(0.05)  # the next request is on its way when it ends

    async with serving(answer_once) as url, EngineClient(url, kind=Kind.VLLM) as client:
        counts = [await client.count_tokens("m", ASKED) for _ in range(3)]

    assert counts == [1, 2, 3]

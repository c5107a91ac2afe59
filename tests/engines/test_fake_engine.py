"""The double has to behave like the engine it stands for, or the other tests prove nothing."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.engines.replay import FIXTURES
from tests.fakes import tokens
from tests.fakes.engine import RESET, STALL, FakeEngine, Pause, T, Thought, cut, error, refusal

CHAT: dict[str, Any] = {
    "model": "fake-8b",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "stream": True,
    "stream_options": {"include_usage": True},
}

CONTINUED = {"continue_final_message": True, "add_generation_prompt": False}


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def root(engine: FakeEngine) -> str:
    return engine.url.removesuffix("/v1")


async def chat(http: aiohttp.ClientSession, engine: FakeEngine, **fields: Any) -> tuple[int, bytes]:
    async with http.post(f"{engine.url}/chat/completions", json=CHAT | fields) as response:
        return response.status, await response.read()


def chunks(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in stream.split(b"\n\n") if line.startswith(b"data: {")]


def recorded(name: str) -> bytes:
    return (FIXTURES / "vllm" / name / "body").read_bytes()


def text_of(stream: bytes) -> str:
    return "".join(choice["delta"].get("content", "") for chunk in chunks(stream) for choice in chunk["choices"])


def shape(value: Any) -> Any:
    """The keys of a body, without its values."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(item) for item in value[:1]] if isinstance(value, list) else type(value).__name__


async def test_it_streams_what_vllm_streams(http: aiohttp.ClientSession) -> None:
    """Rows 3 and 4: order, keys, one id."""
    async with FakeEngine() as engine:
        engine.script = ("The", " capital")
        status, stream = await chat(http, engine)

    ours, theirs = chunks(stream), chunks(recorded("stream"))
    assert status == 200
    assert stream.endswith(b"data: [DONE]\n\n")
    assert ours[0]["choices"][0]["delta"] == theirs[0]["choices"][0]["delta"]
    assert shape(ours[1]) == shape(theirs[1])
    assert shape(ours[-2]) == shape(theirs[-2])
    assert ours[-1]["choices"] == theirs[-1]["choices"] == []
    assert set(ours[-1]["usage"]) == set(theirs[-1]["usage"])
    assert len({chunk["id"] for chunk in ours}) == 1
    assert all("usage" not in chunk for chunk in ours[:-1])


async def test_usage_is_sent_only_when_asked_for(http: aiohttp.ClientSession) -> None:
    async with FakeEngine() as engine:
        _, without = await chat(http, engine, stream_options=None)
        _, continuous = await chat(http, engine, stream_options={"continuous_usage_stats": True})

    assert b'"usage"' not in without
    assert all("usage" in chunk for chunk in chunks(continuous))


async def test_the_headers_come_before_the_prompt_is_read_and_the_first_token_with_the_role(
    http: aiohttp.ClientSession,
) -> None:
    """Row 3"""
    async with FakeEngine(ttft=0.3) as engine:
        engine.hold()
        before = time.monotonic()
        async with http.post(f"{engine.url}/chat/completions", json=CHAT) as response:
            engine.release()
            first = await response.content.readany()
            first_after = time.monotonic() - before

    assert first_after >= 0.3
    assert b'"role":"assistant"' in first
    assert b'"content":"You"' in first
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["server"] == "uvicorn"


async def test_words_come_at_the_pace_that_was_set(http: aiohttp.ClientSession) -> None:
    async with FakeEngine(itl=0.05) as engine:
        engine.script = ["a"] * 6
        before = time.monotonic()
        await chat(http, engine)

    assert time.monotonic() - before >= 0.3


async def test_it_loads_like_vllm_and_like_llama_cpp(http: aiohttp.ClientSession) -> None:
    """Row 1"""
    async with FakeEngine(load_seconds=0.5) as engine:
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get(f"{root(engine)}/health")
        await engine.until(lambda engine: engine.is_listening)
        async with http.get(f"{root(engine)}/health") as ready:
            assert (ready.status, await ready.read()) == (200, b"")

    async with FakeEngine(load_seconds=30, answers_while_loading=True) as engine:
        async with http.get(f"{root(engine)}/health") as loading:
            assert loading.status == 503
            assert (await loading.json())["error"]["message"] == "Loading model"


async def test_its_models_have_the_keys_of_vllms(http: aiohttp.ClientSession) -> None:
    """Row 2"""
    async with FakeEngine(models=["a", "b"], adapters=["c"]) as engine:
        async with http.get(f"{engine.url}/models") as response:
            listed = await response.json()

    [theirs] = json.loads(recorded("models"))["data"]
    assert set(listed["data"][0]) == set(theirs)
    assert [card["id"] for card in listed["data"]] == ["a", "b", "c"]
    assert listed["data"][0]["root"] == listed["data"][1]["root"]
    assert (listed["data"][2]["parent"], listed["data"][2]["max_model_len"]) == ("a", None)


async def test_the_key_guards_v1_and_nothing_else(http: aiohttp.ClientSession) -> None:
    """Row 2"""
    async with FakeEngine(api_key="s3cret") as engine:
        status, body = await chat(http, engine)
        async with http.get(f"{engine.url}/models", headers={"Authorization": "Bearer s3cret"}) as models:
            assert models.status == 200
        for path in ("/health", "/metrics", "/version"):
            async with http.get(root(engine) + path) as response:
                assert response.status == 200

    assert (status, body) == (401, b'{"error":"Unauthorized"}')


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("error-bad-temperature", {"temperature": -1}),
        ("error-cache-salt", {"cache_salt": "a/b@c"}),
        ("error-context-exact-max-tokens", {"max_tokens": 100_000}),
        ("error-no-messages", {"messages": []}),
        ("error-unknown-model", {"model": "nope"}),
        ("error-image-to-text-model", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
    ],
)
async def test_it_refuses_in_the_words_of_vllm(http: aiohttp.ClientSession, name: str, fields: dict[str, Any]) -> None:
    """Row 6"""
    async with FakeEngine(models=["smollm2"], window=4096, sees=False) as engine:
        status, body = await chat(http, engine, **({"model": "smollm2"} | fields))

    theirs = json.loads(recorded(name))
    assert json.loads(body) == theirs
    assert status == theirs["error"]["code"]


async def test_it_refuses_a_body_that_is_no_json(http: aiohttp.ClientSession) -> None:
    """Row 6"""
    async with FakeEngine() as engine, http.post(f"{engine.url}/chat/completions", data=b'{"model": ') as response:
        assert response.status == 400
        assert "json_invalid" in await response.text()


async def test_the_window_is_kept_to_the_token(http: aiohttp.ClientSession) -> None:
    """Row 11"""
    async with FakeEngine() as engine:
        async with http.post(f"{root(engine)}/tokenize", json={"messages": CHAT["messages"]}) as response:
            count = (await response.json())["count"]
        engine.window = count + 1
        fits, stream = await chat(http, engine)
        engine.window = count
        fills, exact = await chat(http, engine)
        engine.window = count - 1
        exceeds, message = await chat(http, engine)

    assert (fits, fills, exceeds) == (200, 400, 400)
    assert chunks(stream)[-1]["usage"]["prompt_tokens"] == count
    assert b"max_tokens must be at least 1, got 0." in exact
    assert (
        f"maximum context length is {count - 1} tokens. However, your prompt contains {count} input".encode() in message
    )


async def test_tokens_can_be_turned_back(http: aiohttp.ClientSession) -> None:
    """Row 11"""
    async with FakeEngine() as engine:
        async with http.post(f"{root(engine)}/tokenize", json={"prompt": "Grüße 🌍"}) as response:
            found = (await response.json())["tokens"]
        async with http.post(f"{root(engine)}/detokenize", json={"tokens": found}) as response:
            assert (await response.json())["prompt"] == "Grüße 🌍"


def test_a_longer_conversation_begins_with_the_tokens_of_the_shorter_one() -> None:
    short = [{"role": "user", "content": "Why?"}]
    long = [*short, {"role": "assistant", "content": "Because."}]

    assert tokens.encode_chat(long)[: len(tokens.encode_chat(short, answers=False))] == tokens.encode_chat(
        short, answers=False
    )


async def test_a_repeated_prompt_is_cached_for_its_salt_only(http: aiohttp.ClientSession) -> None:
    """Row 10"""
    messages = [{"role": "user", "content": "word " * 200}]
    longer = [*messages, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "and?"}]
    async with FakeEngine() as engine:

        async def cached(**fields: Any) -> int:
            _, stream = await chat(http, engine, **fields)
            found: int = chunks(stream)[-1]["usage"]["prompt_tokens_details"]["cached_tokens"]
            return found

        first = await cached(messages=messages, cache_salt="a")
        other = await cached(messages=messages, cache_salt="b")
        again = await cached(messages=longer, cache_salt="a")

    assert (first, other) == (0, 0)
    assert again >= 240
    assert engine.cache.hits == again


async def test_a_cached_prompt_is_read_faster(http: aiohttp.ClientSession) -> None:
    """Row 10"""
    async with FakeEngine(seconds_per_prompt_token=0.001) as engine:
        before = time.monotonic()
        await chat(http, engine, messages=[{"role": "user", "content": "word " * 300}])
        between = time.monotonic()
        await chat(http, engine, messages=[{"role": "user", "content": "word " * 300}])
        after = time.monotonic()

    assert (between - before) - (after - between) > 0.2


async def test_a_client_that_leaves_stops_the_work(http: aiohttp.ClientSession) -> None:
    """Row 8"""
    async with FakeEngine() as engine:
        engine.script = ["a", "b", STALL]
        async with http.post(f"{engine.url}/chat/completions", json=CHAT) as response:
            await response.content.readany()
            await engine.until(lambda engine: engine.running == 1)
            await asyncio.sleep(0.05)
            response.close()
        left = time.monotonic()
        await engine.until(lambda engine: engine.running == 0)

    assert engine.aborted[0].at - left < 0.2
    assert engine.aborted[0].steps == 2
    assert not engine.counters.successes


async def test_answers_wait_for_a_seat_in_the_order_they_came(http: aiohttp.ClientSession) -> None:
    async with FakeEngine(seats=1, queue=2) as engine:
        engine.hold()
        waiting = [asyncio.create_task(chat(http, engine, messages=_saying("0")))]
        await engine.until(lambda engine: engine.running == 1)
        waiting.append(asyncio.create_task(chat(http, engine, messages=_saying("1"))))
        await engine.until(lambda engine: engine.waiting == 1)
        waiting.append(asyncio.create_task(chat(http, engine, messages=_saying("2"))))
        await engine.until(lambda engine: engine.waiting == 2)
        status, body = await chat(http, engine)
        engine.release()
        streams = [stream for _, stream in await asyncio.gather(*waiting)]

    assert status == 503
    assert b"The engine is currently busy" in body
    assert engine.counters.rejected == 1
    assert [number in stream.decode() for number, stream in zip("012", streams, strict=True)] == [True] * 3


async def test_held_answers_go_on_when_released(http: aiohttp.ClientSession) -> None:
    async with FakeEngine() as engine:
        engine.hold()
        asking = asyncio.create_task(chat(http, engine))
        await engine.until(lambda engine: engine.running == 1)
        await asyncio.sleep(0.05)
        assert not asking.done()
        engine.release()
        status, _ = await asking

    assert status == 200


async def test_plans_are_used_up_in_order_and_titles_take_none(http: aiohttp.ClientSession) -> None:
    async with FakeEngine() as engine:
        engine.plan(["one"], refusal(500, "EngineCore encountered an issue."))
        engine.script = ["ever after"]
        bodies = [await chat(http, engine, **fields) for fields in ({}, {"max_tokens": 20}, {}, {}, {})]

    assert [status for status, _ in bodies] == [200, 200, 500, 200, 200]
    assert b"title" in bodies[1][1]
    assert b"ever after" in bodies[4][1]
    assert (len(engine.questions), len(engine.titles)) == (4, 1)


async def test_a_script_of_bytes_is_sent_as_it_stands(http: aiohttp.ClientSession) -> None:
    """Row 5 and 7"""
    async with FakeEngine() as engine:
        engine.script = [*cut(b"data: \xf0\x9f|\x8c\x8d\n\n"), T("a"), error("boom")]
        _, stream = await chat(http, engine)

    assert stream == "data: 🌍\n\n".encode() + T("a") + error("boom")


async def test_a_bar_in_a_script_is_a_pause_between_two_writes(http: aiohttp.ClientSession) -> None:
    async with FakeEngine() as engine:
        engine.script = cut(b"ab|cd")
        async with http.post(f"{engine.url}/chat/completions", json=CHAT) as response:
            pieces = [await response.content.readany(), await response.content.readany()]

    assert pieces == [b"ab", b"cd"]


async def test_a_reset_is_a_reset(http: aiohttp.ClientSession) -> None:
    """Row 7"""
    async with FakeEngine() as engine:
        engine.script = [T("a"), RESET]
        async with http.post(f"{engine.url}/chat/completions", json=CHAT) as response:
            first = await response.content.readany()
            with pytest.raises(aiohttp.ClientPayloadError) as failure:
                await response.content.read()

    assert first.startswith(T("a"))
    assert "reset" in str(failure.value).lower()


async def test_killing_it_frees_the_port_and_it_can_be_started_again(http: aiohttp.ClientSession) -> None:
    async with FakeEngine() as engine:
        engine.script = ["a", STALL]
        asking = asyncio.create_task(chat(http, engine))
        await engine.until(lambda engine: engine.running == 1)
        await asyncio.to_thread(engine.stop)
        with pytest.raises(aiohttp.ClientPayloadError):
            await asking
        engine.script = None
        await asyncio.to_thread(engine.start)
        status, _ = await chat(http, engine)

    assert status == 200


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    """Row 13"""
    async with FakeEngine(keep_alive=1) as engine:
        reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        before = time.monotonic()
        end = await reader.read()
        writer.close()
        await writer.wait_closed()

    assert end == b""
    assert time.monotonic() - before > 0.9


async def test_every_connection_can_be_reset_from_outside(http: aiohttp.ClientSession) -> None:
    async with FakeEngine() as engine:
        engine.script = ["a", STALL]
        asking = asyncio.create_task(chat(http, engine))
        await engine.until(lambda engine: engine.running == 1)
        engine.reset_connections()
        with pytest.raises(aiohttp.ClientError):
            await asking


async def test_the_id_of_a_request_becomes_the_id_of_its_answer(http: aiohttp.ClientSession) -> None:
    """Row 14"""
    async with FakeEngine() as engine:
        async with http.post(f"{engine.url}/chat/completions", json=CHAT, headers={"X-Request-Id": "abc"}) as response:
            stream = await response.read()

    assert chunks(stream)[0]["id"] == "chatcmpl-abc"
    assert engine.requests[0].headers["x-request-id"] == "abc"
    assert engine.requests[0].body == CHAT
    assert engine.requests[0].last_text == "What is the capital of France?"


@pytest.mark.parametrize(
    ("roles", "fits"),
    [
        (["user"], True),
        (["system", "user", "assistant", "user"], True),
        (["user", "user"], False),
        (["assistant", "user"], False),
    ],
)
async def test_a_strict_template_wants_roles_to_alternate(
    http: aiohttp.ClientSession, roles: list[str], fits: bool
) -> None:
    """SEM-04"""
    messages = [{"role": role, "content": "x"} for role in roles]
    async with FakeEngine(alternating=True) as engine:
        status, _ = await chat(http, engine, messages=messages)

    assert status == (200 if fits else 400)


async def test_some_templates_want_no_empty_text_and_no_system(http: aiohttp.ClientSession) -> None:
    """SEM-04"""
    empty = [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "b"}]
    async with FakeEngine(alternating=True, system_role=False) as engine:
        without_text, _ = await chat(http, engine, messages=empty)
        with_system, _ = await chat(http, engine, messages=[{"role": "system", "content": "x"}, *empty[:1]])

    assert (without_text, with_system) == (400, 400)


async def test_a_text_is_continued_where_it_stopped(http: aiohttp.ClientSession) -> None:
    messages = [*_saying("one two"), {"role": "assistant", "content": "You asked: one"}]
    async with FakeEngine() as engine:
        _, stream = await chat(http, engine, messages=messages, **CONTINUED)
        both, _ = await chat(http, engine, messages=messages, continue_final_message=True)

    assert text_of(stream) == " two"
    assert both == 400


async def test_a_script_is_continued_after_what_was_said_of_it(http: aiohttp.ClientSession) -> None:
    async def rest(said: str) -> str:
        messages = [*_saying("?"), {"role": "assistant", "content": said}]
        return text_of((await chat(http, engine, messages=messages, **CONTINUED))[1])

    async with FakeEngine() as engine:
        engine.script = (Thought("hm"), "Well, ", RESET, "yes", ".")
        rests = [await rest(said) for said in ("Well, ", "Well, ye", "Well, yes.")]
        engine.plan(("Well, ", "no."), ("no.",))
        planned = [await rest("Well, "), await rest("Well, ")]
        engine.continues = False
        engine.script = ("Well, ", "yes.")
        anew = await rest("Well, ")

    assert rests == ["yes.", "s.", ""]
    assert planned == ["no.", "no."]
    assert anew == "Well, yes."


async def test_what_the_product_tries_is_kept_apart(http: aiohttp.ClientSession) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    look = {"messages": [{"role": "user", "content": [{"type": "text", "text": "What colour is this?"}, picture]}]}
    begun = [*_saying("Count from one to ten in words."), {"role": "assistant", "content": "One, two, three,"}]
    async with FakeEngine(seats=0) as engine:
        engine.plan(("never",))
        engine.hold()
        _, counting = await chat(http, engine, messages=begun, max_tokens=12, **CONTINUED)
        seen, _ = await chat(http, engine, **look, max_tokens=1)
        engine.sees, engine.continues = False, False
        _, anew = await chat(http, engine, messages=begun, max_tokens=12, **CONTINUED)
        unseen, _ = await chat(http, engine, **look, max_tokens=1)

    assert text_of(counting).startswith(" four, five,")
    assert text_of(anew).startswith("One, two,")
    assert (seen, unseen) == (200, 400)
    assert (len(engine.probes), engine.requests, engine.running) == (4, [], 0)


async def test_a_picture_takes_its_room_and_no_more(http: aiohttp.ClientSession) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    async with FakeEngine() as engine:
        counts = []
        for content in ("Hm?", [{"type": "text", "text": "Hm?"}], [{"type": "text", "text": "Hm?"}, picture]):
            async with http.post(f"{root(engine)}/tokenize", json={"messages": _saying(content)}) as response:
                counts.append((await response.json())["count"])

    assert counts[0] == counts[1] == counts[2] - 64


async def test_the_length_of_an_answer_can_be_limited(http: aiohttp.ClientSession) -> None:
    async with FakeEngine() as engine:
        engine.is_title = lambda asked: False
        _, stream = await chat(http, engine, max_tokens=2)

    assert chunks(stream)[-2]["choices"][0]["finish_reason"] == "length"
    assert len(chunks(stream)) == 5


async def test_an_answer_need_not_be_streamed(http: aiohttp.ClientSession) -> None:
    async with FakeEngine() as engine:
        engine.script = (Thought("hm"), "42")
        _, body = await chat(http, engine, stream=False, stream_options=None)
        refused, _ = await chat(http, engine, stream=False)

    message = json.loads(body)["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == ("42", "hm")
    assert refused == 400


async def test_its_metrics_have_the_names_of_vllms(http: aiohttp.ClientSession) -> None:
    """Row 12"""
    async with FakeEngine() as engine:
        await chat(http, engine)
        async with http.get(f"{root(engine)}/metrics") as response:
            text = await response.text()

    theirs = recorded("metrics-after").decode()
    ours = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    assert ours <= {line.split("{")[0].split(" ")[0] for line in theirs.splitlines() if not line.startswith("#")}
    assert 'vllm:request_success_total{engine="0",finished_reason="stop",model_name="fake-8b"} 1.0' in text
    assert 'vllm:time_to_first_token_seconds_count{engine="0",model_name="fake-8b"} 1.0' in text


async def test_a_step_may_wait_for_an_event_of_the_test(http: aiohttp.ClientSession) -> None:
    go_on = asyncio.Event()
    async with FakeEngine() as engine:
        engine.script = ("Well, ", go_on, Pause(0.01), "yes.")
        asking = asyncio.create_task(chat(http, engine))
        await asyncio.sleep(0.1)
        waited = not asking.done()
        go_on.set()
        await asking

    assert waited


def test_it_serves_tests_without_a_loop() -> None:
    with FakeEngine() as engine:
        with socket.create_connection(("127.0.0.1", engine.port)) as connection:
            connection.sendall(b"GET /__fake/state HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(9_999), b""))
        engine.wait_until(lambda engine: engine.running == 0)

    assert json.loads(answer.split(b"\r\n\r\n")[1])["requests"] == 0


def _saying(text: object) -> list[dict[str, object]]:
    return [{"role": "user", "content": text}]

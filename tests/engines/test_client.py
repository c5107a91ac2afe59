"""The client against an engine that misbehaves. Names in docstrings are cases of the bug log."""

import asyncio
import socket
import time
from contextlib import aclosing
from typing import Any

import pytest

from backend.engines import client as client_module
from backend.engines.client import EngineClient
from backend.engines.events import Delta, EngineFailed, Event, Failure, Overflow, Usage
from tests.engines.replay import read_request, serving
from tests.engines.support import Heard, ask, question
from tests.fakes.engine import (
    DONE,
    END,
    HANG,
    HANG_UP,
    RESET,
    STALL,
    FakeEngine,
    Pause,
    Script,
    Status,
    Step,
    T,
    Thought,
    cut,
    cut_at,
    error,
    event,
    finish,
    refusal,
    usage,
)

FAMILY = "Grüße 漢字 👩\u200d👩\u200d👧\u200d👦 🌍"


async def test_an_answer_comes_piece_by_piece() -> None:
    go_on = asyncio.Event()
    batches: list[list[Event]] = []
    async with FakeEngine() as engine, EngineClient(engine.url) as client:
        engine.script = ("Well, ", go_on, "yes.")

        async for batch in client.answer(question()):
            batches.append(batch)
            go_on.set()

    assert batches[0] == [Delta("Well, ")]
    assert batches[1][0] == Delta("yes.")
    assert len(engine.requests) == 1


async def test_the_request_is_what_was_asked_and_nothing_about_the_person() -> None:
    async with FakeEngine(api_key="s3cret") as engine, EngineClient(engine.url, "s3cret", kind="vllm") as client:
        await ask(client, question("Why?", max_tokens=50, temperature=0.7, salt="00ff"))

    [asked] = engine.requests
    assert asked.body == {
        "model": "fake-8b",
        "messages": [{"role": "user", "content": "Why?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 50,
        "temperature": 0.7,
        "cache_salt": "00ff",
    }
    assert asked.headers["authorization"] == "Bearer s3cret"
    assert asked.headers["accept-encoding"] == "identity"
    assert set(asked.headers) == {
        "host", "accept", "accept-encoding", "content-type", "content-length", "authorization", "user-agent"
    }  # fmt: skip


async def test_without_a_key_none_is_sent() -> None:
    async with FakeEngine() as engine, EngineClient(engine.url, "") as client:
        await ask(client)

    assert "authorization" not in engine.requests[0].headers


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
async def test_the_address_may_be_given_with_or_without_its_path(ending: str) -> None:
    async with FakeEngine() as engine, EngineClient(engine.url.removesuffix("/v1") + ending) as client:
        heard = await ask(client)
        probe = await client.probe()

    assert heard.text == "You asked: Hi there"
    assert probe.version == "0.32.0"


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    async with FakeEngine() as engine, EngineClient(engine.url) as client:
        assert (await ask(client)).failure is None


# STR: what the engine streams


@pytest.mark.parametrize("mark", [b"\xf0\x9f\x8c", b"\xe2\x80"])
async def test_a_character_cut_by_a_write_is_whole(mark: bytes) -> None:
    """STR-01 b and c"""
    stream = T(FAMILY) + END
    place = stream.index(mark) + 2

    heard = await _heard_of(cut_at([stream[:place], stream[place:]]))

    assert heard.text == FAMILY


async def test_one_byte_a_write_is_enough() -> None:
    """STR-01 a"""
    stream = T(FAMILY) + END

    heard = await _heard_of(cut_at([stream[i : i + 1] for i in range(len(stream))], pause=0))

    assert heard.text == FAMILY


async def test_a_family_cut_over_deltas_is_put_together() -> None:
    """STR-01 d"""
    heard = await _heard_of([T("👩\u200d👩"), T("\u200d"), T("👧\u200d"), T("👦"), END])

    assert heard.text == "👩\u200d👩\u200d👧\u200d👦"


@pytest.mark.parametrize("ends", [b"\r\n", b"\r", b"\n"])
async def test_unusual_lines_are_read(ends: bytes) -> None:
    """STR-02"""
    chunk = b'data:{"choices":[{"delta":{"content":"ok"}}]}'
    stream = b": warm-up\r\n\r\nretry: 3000\r\nid: 7\r\nevent: message\r\n" + chunk + b"\r\n\r\ndata:[DONE]\r\n\r\n"

    heard = await _heard_of([stream.replace(b"\r\n", ends)])

    assert heard.text == "ok"
    assert heard.failure is None


async def test_one_event_may_have_two_data_lines_and_the_last_no_end() -> None:
    """STR-03"""
    stream = b'data: {"choices":[{"delta":|\ndata: {"content":"two"}}]}|\n\n'

    heard = await _heard_of([*cut(stream), finish().rstrip()])

    assert heard.text == "two"
    assert heard.failure is None


async def test_chunks_without_choices_do_no_harm() -> None:
    """STR-04"""
    opening = event({"choices": [], "prompt_filter_results": []})

    heard = await _heard_of([opening, T("Hi"), finish(), usage(12, 1), DONE])

    assert heard.text == "Hi"
    assert heard.usage == [Usage(12, 1)]
    assert heard.failure is None


async def test_missing_content_is_no_text() -> None:
    """STR-05"""
    deltas: list[dict[str, Any]] = [
        {"delta": {"role": "assistant", "content": ""}},
        {"delta": {"content": None}},
        {"delta": {}},
        {},
        {"delta": None},
    ]

    heard = await _heard_of([*[event({"choices": [delta]}) for delta in deltas], event({"choices": None}), T("x"), END])

    assert heard.text == "x"


async def test_text_beside_the_finish_reason_is_kept() -> None:
    """STR-06"""
    last = event({"choices": [{"delta": {"content": "def"}, "finish_reason": "length"}]})

    heard = await _heard_of([T("abc"), last, DONE])

    assert (heard.text, heard.reasons) == ("abcdef", ["length"])


async def test_done_without_a_reason_is_a_whole_answer_and_is_not_asked_for_again() -> None:
    """STR-07"""
    async with FakeEngine() as engine, EngineClient(engine.url) as client:
        engine.script = [T("Hello"), DONE]

        heard = await ask(client)

    assert heard.text == "Hello"
    assert heard.failure is None
    assert len(engine.requests) == 1


async def test_a_clean_end_in_the_middle_is_a_cut_and_is_not_asked_for_again() -> None:
    """STR-08"""
    async with FakeEngine() as engine, EngineClient(engine.url) as client:
        engine.script = [T("Hello wor")]

        heard = await ask(client)

    assert heard.text == "Hello wor"
    assert heard.kind is Failure.CUT
    assert str(heard.failure) == "The engine broke off before the end of the answer."
    assert len(engine.requests) == 1


async def test_an_error_inside_the_stream_keeps_the_text_and_hides_the_words() -> None:
    """STR-09"""
    heard = await _heard_of([T("a"), T("b"), error("CUDA out of memory"), DONE])

    assert heard.text == "ab"
    assert heard.failure is not None
    assert (heard.kind, heard.failure.detail) == (Failure.DEAD, "CUDA out of memory")
    assert "CUDA" not in str(heard.failure)


async def test_a_bare_json_error_ends_the_answer_though_the_stream_stays_open() -> None:
    """STR-10"""
    heard = await _heard_of([T("a"), b'{"error":{"message":"boom"}}', STALL])

    assert heard.text == "a"
    assert heard.failure is not None
    assert (heard.kind, heard.failure.detail) == (Failure.DEAD, "boom")


async def test_an_open_stream_that_says_nothing_readable_is_left() -> None:
    """STR-10"""
    heard = await _heard_of([T("a"), b'{"error":{"message":"boom"', STALL], idle_seconds=0.2)

    assert heard.text == "a"
    assert heard.kind is Failure.TIMEOUT
    assert str(heard.failure) == "The engine stopped sending for 0.2 seconds."


async def test_a_refusal_gives_its_reason() -> None:
    """STR-11 a"""
    heard = await _heard_of(refusal(400, "This model's maximum context length is 10 tokens."))

    assert heard.failure is not None
    assert heard.kind is Failure.OVERFLOW
    assert heard.failure.overflow == Overflow(window=10)
    assert heard.events == []


async def test_a_whole_completion_is_an_answer() -> None:
    """STR-11 b"""
    heard = await _heard_of(Status(200, {"choices": [{"message": {"content": "whole"}}]}))

    assert heard.text == "whole"
    assert heard.failure is None


async def test_an_error_with_status_200_is_one() -> None:
    assert (await _heard_of(Status(200, {"error": "boom"}))).kind is Failure.DEAD


async def test_a_sign_in_page_is_no_answer_and_is_not_shown() -> None:
    """STR-11 c"""
    page = b"<!doctype html><title>Sign in to Contoso</title>"

    heard = await _heard_of(Status(200, page, {"content-type": "text/html; charset=utf-8"}))
    disguised = await _heard_of(Status(200, page, {"content-type": "text/event-stream"}))

    as_json = await _heard_of(Status(200, {"choices": [{"message": {"content": "x"}}]}, {"content-type": "text/html"}))

    for found in (heard, disguised, as_json):
        assert found.kind is Failure.NONSENSE
        assert str(found.failure) == "What came back was not an engine’s answer."


async def test_a_redirect_is_not_followed() -> None:
    async with FakeEngine() as elsewhere, FakeEngine() as engine, EngineClient(engine.url) as client:
        engine.script = Status(307, headers={"location": elsewhere.url + "/chat/completions"})

        heard = await ask(client)

    assert heard.kind is Failure.NONSENSE
    assert elsewhere.requests == []


async def test_an_engine_may_think_long_before_its_first_token() -> None:
    """STR-12"""
    async with FakeEngine(ttft=0.5) as engine, EngineClient(engine.url, idle_seconds=0.1) as client:
        heard = await ask(client)

    assert heard.text == "You asked: Hi there"


@pytest.mark.parametrize("way", [RESET, HANG_UP])
async def test_an_engine_killed_in_mid_chunk_leaves_what_it_sent(way: Any) -> None:
    """STR-13"""
    async with FakeEngine() as engine, EngineClient(engine.url) as client:
        engine.plan([T(f"{number} ") for number in range(40)] + [way])
        before = time.monotonic()

        heard = await ask(client)

        assert heard.text.split() == [str(number) for number in range(40)]
        assert heard.kind is Failure.CUT
        assert time.monotonic() - before < 2
        await engine.until(lambda engine: engine.running == 0)
        assert (await ask(client)).failure is None


async def test_an_engine_that_was_away_is_used_again_once_it_is_back() -> None:
    """STR-13"""
    async with FakeEngine() as engine, EngineClient(engine.url) as client:
        first = await ask(client)
        await asyncio.to_thread(engine.stop)
        away = await ask(client)
        await asyncio.to_thread(engine.start)
        back = await ask(client)

    assert first.failure is None
    assert away.kind is Failure.UNREACHABLE
    assert str(away.failure) == "The engine cannot be reached."
    assert back.failure is None


async def test_a_stale_connection_costs_one_retry_at_once() -> None:
    """STR-13"""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The first connection answers once, and closes when it is used again."""
        nonlocal connections
        connections += 1
        await read_request(reader)
        content = T("ok") + END
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(content)
        writer.write(head + content)
        await reader.read(1)

    async with serving(serve) as url, EngineClient(url) as client:
        first = await ask(client)
        second = await ask(client)

    assert (first.text, second.text) == ("ok", "ok")
    assert second.failure is None
    assert connections == 2


async def test_a_connection_that_always_breaks_is_tried_twice_and_no_more() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)

    async with serving(serve) as url, EngineClient(url) as client:
        heard = await ask(client)

    assert heard.kind is Failure.UNREACHABLE
    assert connections == 2


# SEM: reasoning, order of messages


async def test_a_thought_that_never_ends_is_no_text() -> None:
    """SEM-01"""
    heard = await _heard_of([T("<thi"), T("nk>let me see"), T(" 2+2"), END])

    assert (heard.reasoning, heard.text) == ("let me see 2+2", "")
    assert heard.failure is None


async def test_a_text_that_is_continued_does_not_begin_to_think() -> None:
    messages = [*question("Which tag?").messages, {"role": "assistant", "content": "The tag is "}]
    async with FakeEngine() as engine, EngineClient(engine.url) as client:
        engine.script = ("<think>", ", of course.")
        heard = await ask(client, question(messages=messages, continues=True))

    assert heard.text == "<think>, of course."


async def test_talking_about_the_tag_is_text() -> None:
    """SEM-02"""
    text = "Write `<think>` or <thinking>.\n\n```xml\n<think>a</think>\n```\n"

    heard = await _heard_of(list(text))

    assert (heard.reasoning, heard.text) == ("", text)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
async def test_reasoning_in_its_own_field_is_kept_apart(name: str) -> None:
    """SEM-03"""
    thought = event({"choices": [{"delta": {name: "hm", "content": None}}]})
    message = {"choices": [{"message": {name: "hm", "content": "42"}, "finish_reason": "stop"}]}

    streamed = await _heard_of([thought, T("42"), END])
    whole = await _heard_of(Status(200, message))
    as_vllm = await _heard_of([Thought("hm"), "42"])

    for heard in (streamed, whole, as_vllm):
        assert (heard.reasoning, heard.text) == ("hm", "42")


async def test_an_engine_that_refuses_an_order_of_roles_is_understood() -> None:
    """SEM-04: the engine's half; keeping the order is the prompt's."""
    async with FakeEngine(alternating=True) as engine, EngineClient(engine.url) as client:
        twice = question()
        refused = await ask(client, question(messages=[*twice.messages, *twice.messages]))
        taken = await ask(client, twice)

    assert refused.kind is Failure.BAD_REQUEST
    assert taken.failure is None


# Time


async def test_an_engine_that_never_begins_is_left() -> None:
    before = time.monotonic()
    scripts: list[Script] = [[STALL], HANG, [b": keep-alive\n\n", Pause(0.15)] * 20, [T(""), T(""), STALL]]

    for script in scripts:
        heard = await _heard_of(script, first_token_seconds=0.3)
        assert heard.kind is Failure.TIMEOUT
        assert str(heard.failure) == "The engine did not begin to answer within 0.3 seconds."

    assert time.monotonic() - before < 4


async def test_a_long_answer_may_take_longer_than_a_first_token() -> None:
    async with FakeEngine(itl=0.15) as engine:
        async with EngineClient(engine.url, first_token_seconds=0.4, idle_seconds=0.4) as client:
            engine.script = ["a"] * 5
            heard = await ask(client)

    assert heard.text == "aaaaa"
    assert heard.failure is None


async def test_an_engine_that_stops_in_the_middle_is_left() -> None:
    heard = await _heard_of([T("a"), T("b"), STALL], idle_seconds=0.2)

    assert heard.text == "ab"
    assert heard.kind is Failure.TIMEOUT
    assert str(heard.failure) == "The engine stopped sending for 0.2 seconds."


async def test_a_keep_alive_comment_is_a_sign_of_life() -> None:
    alive: list[Step] = [b": keep-alive\n\n", Pause(0.15)] * 4

    heard = await _heard_of([T("a"), *alive, T("b"), END], idle_seconds=0.3)

    assert heard.text == "ab"
    assert heard.failure is None


async def test_comments_alone_do_not_keep_an_answer_for_ever() -> None:
    alive: list[Step] = [b": keep-alive\n\n", Pause(0.05)] * 40

    heard = await _heard_of([T("a"), *alive], first_token_seconds=0.4, idle_seconds=0.3)

    assert heard.text == "a"
    assert heard.kind is Failure.TIMEOUT
    assert str(heard.failure) == "The engine stopped sending for 0.4 seconds."


async def test_a_slow_reader_does_not_make_the_engine_late() -> None:
    go_on = asyncio.Event()
    async with FakeEngine() as engine, EngineClient(engine.url, idle_seconds=0.2) as client:
        engine.script = ("a", go_on, "b")
        heard: list[Event] = []

        async for batch in client.answer(question()):
            await asyncio.sleep(0.5)
            heard += batch
            go_on.set()

    assert heard[:2] == [Delta("a"), Delta("b")]


async def test_bytes_that_waited_while_the_process_stood_still_count() -> None:
    async with FakeEngine() as engine, EngineClient(engine.url, idle_seconds=0.4) as client:
        engine.script = ("a", Pause(0.1), "b", Pause(0.9), "c")
        heard: list[Event] = []

        async for batch in client.answer(question()):
            if not heard:
                asyncio.get_running_loop().call_later(0.05, time.sleep, 0.8)  # as if it were suspended
            heard += batch

    assert heard[:3] == [Delta("a"), Delta("b"), Delta("c")]


async def test_a_complete_answer_is_not_spoilt_by_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "AFTER_FINISH_SECONDS", 0.1)

    before = time.monotonic()

    for ending in (STALL, RESET, HANG_UP):
        heard = await _heard_of([T("a"), finish(), ending])
        assert heard.text == "a"
        assert heard.failure is None

    assert time.monotonic() - before < 2


# It is asked once


@pytest.mark.parametrize(
    "answer",
    [
        refusal(400, "temperature must be non-negative"),
        refusal(401, "no"),
        refusal(404, "The model `x` does not exist."),
        refusal(500, "EngineCore encountered an issue."),
        refusal(503, "The engine is currently busy."),
        Status(429, {"error": {"message": "Quota", "code": "insufficient_quota"}}),
        Status(429, headers={"Retry-After": "1"}),
    ],
)
async def test_a_refusal_is_told_at_once_and_left_to_the_caller(answer: Status) -> None:
    async with FakeEngine() as engine, EngineClient(engine.url) as client:
        engine.script = answer

        heard = await ask(client)

    assert heard.failure is not None
    assert len(engine.requests) == 1


async def test_after_the_first_byte_nothing_is_asked_again() -> None:
    async with FakeEngine() as engine, EngineClient(engine.url) as client:
        engine.script = [b": hello\n\n", RESET]

        heard = await ask(client)

    assert heard.kind is Failure.CUT
    assert len(engine.requests) == 1


async def test_a_model_that_is_loading_is_told_apart() -> None:
    async with FakeEngine(load_seconds=30, answers_while_loading=True) as engine:
        async with EngineClient(engine.url) as client:
            heard = await ask(client)

    assert heard.kind is Failure.LOADING
    assert str(heard.failure) == "The model is still starting."


# Leaving


async def test_leaving_closes_the_connection_at_once() -> None:
    async with FakeEngine() as engine, EngineClient(engine.url) as client:
        engine.script = ["word "] * 3 + [STALL]

        async with aclosing(client.answer(question())) as batches:
            await anext(batches)
        left = time.monotonic()
        await engine.until(lambda engine: bool(engine.aborted))

    assert engine.aborted[0].at - left < 0.2
    assert engine.running == 0


async def test_cancelling_closes_the_connection_at_once_also_before_the_first_token() -> None:
    async with FakeEngine() as engine, EngineClient(engine.url) as client:
        scripts: list[Script] = [[STALL], HANG, ["a", STALL]]
        for script in scripts:
            engine.aborted.clear()
            engine.requests.clear()
            engine.script = script
            asking = asyncio.create_task(ask(client))
            await engine.until(lambda engine: bool(engine.requests))
            await asyncio.sleep(0.05)

            asking.cancel()
            left = time.monotonic()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await engine.until(lambda engine: bool(engine.aborted))

            assert engine.aborted[0].at - left < 0.2


async def test_a_connection_is_used_again_only_when_its_answer_was_read_to_the_end() -> None:
    async with FakeEngine() as engine, EngineClient(engine.url) as client:
        await ask(client)
        await ask(client)
        kept = _open_connections(client)
        engine.plan(["a", "b", STALL])
        async with aclosing(client.answer(question())) as batches:
            await anext(batches)

        assert kept == 1
        assert _open_connections(client) == 0


async def test_the_end_of_a_response_may_come_a_little_after_its_last_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "AFTER_DONE_SECONDS", 2)
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            await read_request(reader)
            content = T("ok") + END
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            writer.write(head + b"%x\r\n%b\r\n" % (len(content), content))
            await asyncio.sleep(0.01)
            writer.write(b"0\r\n\r\n")

    async with serving(serve) as url, EngineClient(url) as client:
        await ask(client)
        await ask(client)

    assert connections == 1


async def test_many_answers_at_once_wait_for_no_connection() -> None:
    async with FakeEngine() as engine, EngineClient(engine.url) as client:
        engine.hold()
        asking = [asyncio.create_task(ask(client)) for _ in range(150)]
        await engine.until(lambda engine: engine.running == 150)
        engine.release()
        heard = await asyncio.gather(*asking)

    assert {one.text for one in heard} == {"You asked: Hi there"}


# Bounds and leaks


async def test_an_endless_answer_is_ended() -> None:
    heard = await _heard_of([T("x" * 1_000_000)] * 10 + [END])

    assert len(heard.text) == 8_000_000
    assert heard.kind is Failure.NONSENSE


async def test_a_refusal_of_any_size_is_read_only_so_far() -> None:
    heard = await _heard_of(Status(400, b"x" * 3_000_000, {"content-type": "text/plain"}))

    assert heard.failure is not None
    assert len(heard.failure.detail) <= 500


async def test_the_key_is_in_no_detail() -> None:
    async with FakeEngine() as engine, EngineClient(engine.url, "s3cret-key") as client:
        engine.plan(refusal(400, "got key s3cret-key"), [T("a"), error("key s3cret-key is bad")])

        refused, broken = await ask(client), await ask(client)

    for heard in (refused, broken):
        assert heard.failure is not None
        assert "[key]" in heard.failure.detail
        assert "s3cret" not in heard.failure.detail


async def test_a_compressed_answer_is_not_unpacked() -> None:
    heard = await _heard_of(Status(200, b"\x1f\x8b\x08\x00", {"content-encoding": "gzip"}))

    assert heard.kind is Failure.NONSENSE


async def test_something_that_does_not_speak_http_is_no_engine() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        await reader.read(1_000)

    async with serving(serve) as url, EngineClient(url) as client:
        assert (await ask(client)).kind is Failure.NONSENSE


async def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        async with EngineClient(f"http://127.0.0.1:{free.getsockname()[1]}") as client:
            heard = await ask(client)
            with pytest.raises(EngineFailed) as failure:
                await client.models()

    assert heard.kind is failure.value.kind is Failure.UNREACHABLE


async def test_a_name_that_does_not_exist_is_unreachable() -> None:
    async with EngineClient("http://engine.invalid:8000/v1") as client:
        assert (await ask(client)).kind is Failure.UNREACHABLE


async def _heard_of(script: Script, *, first_token_seconds: float = 5, idle_seconds: float = 5) -> Heard:
    async with (
        FakeEngine() as engine,
        EngineClient(engine.url, first_token_seconds=first_token_seconds, idle_seconds=idle_seconds) as client,
    ):
        engine.script = script
        return await ask(client)


def _open_connections(client: EngineClient) -> int:
    connector = client._wire.session.connector
    assert connector is not None
    return sum(len(connections) for connections in connector._conns.values())

"""Server-sent events: what is on the wire, when it goes out, and how a stream ends."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import APIRouter
from hypothesis import example, given, settings, strategies as st
from starlette.responses import Response

from tests.web.small import Lines, log, small_site
from web.streaming import Event, EventStream

__all__ = ["log"]


def read(stream: str) -> list[Event]:
    """As the standard says a browser reads it: any of three line ends, one space after the colon, comments skipped."""
    events: list[Event] = []
    data: list[str] = []
    name = id_ = None
    for line in re.split("\r\n|\r|\n", stream):
        field, _colon, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "" if not line and data:
                events.append(Event("\n".join(data), id_, name))
                data, name, id_ = [], None, None
            case "data":
                data.append(value)
            case "event":
                name = value
            case "id":
                id_ = value
    return events


# On the wire


@pytest.mark.parametrize(
    ("event", "bytes_"),
    [
        (Event("hello"), b"data: hello\n\n"),
        (Event("one\ntwo"), b"data: one\ndata: two\n\n"),
        (Event("x", id="1.0.5"), b"id: 1.0.5\ndata: x\n\n"),
        (Event("", name="finished"), b"event: finished\ndata: \n\n"),
        (Event("\u00fc😀"), "data: ü😀\n\n".encode()),
    ],
)
def test_an_event_is_written_as_the_standard_says(event: Event, bytes_: bytes) -> None:
    assert event.encode() == bytes_


@pytest.mark.parametrize(
    "data", ["| a | b |\n|---|---|\n\n", "    x = 1", "  ", "\n", "", ": no comment", "data: x", "\t\n "]
)
def test_white_space_comes_through(data: str) -> None:
    """WEB-01."""
    assert read(Event(data, id="1").encode().decode()) == [Event(data, id="1")]


@example(["one\rtwo", "three\r\nfour\r"])
@settings(deadline=None)
@given(st.lists(st.text(st.one_of(st.sampled_from("\r\n :ad"), st.characters(codec="utf-8"))), min_size=1, max_size=5))
def test_every_text_arrives_whole_and_in_its_own_event(texts: list[str]) -> None:
    """Line ends of every kind arrive as line feeds, as HTML would read them anyway."""
    stream = b"".join(Event(text, id=str(number)).encode() for number, text in enumerate(texts)).decode()

    assert read(stream) == [Event(re.sub("\r\n|\r", "\n", text), id=str(number)) for number, text in enumerate(texts)]


# Over HTTP, through the gate

Generate = Callable[[], AsyncGenerator[Event]]


@asynccontextmanager
async def serving(generate: Generate, *, heartbeat: float = 15) -> AsyncIterator[httpx.AsyncClient]:
    router = APIRouter()

    @router.get("/stream")
    async def stream() -> Response:
        return EventStream(generate(), heartbeat=heartbeat)

    async with small_site(router) as client:
        yield client


async def test_events_arrive_in_order_and_the_stream_ends() -> None:
    async def three() -> AsyncGenerator[Event]:
        for number in range(3):
            yield Event(f"<p>{number}</p>", id=f"1.0.{number}")
        yield Event("", name="finished")

    async with serving(three) as client:
        reply = await client.get("/stream")

    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert "content-length" not in reply.headers
    assert reply.headers["x-accel-buffering"] == "no"
    assert {"no-store", "no-transform"} <= set(reply.headers["cache-control"].split(", "))
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert [event.data for event in read(reply.text)] == ["<p>0</p>", "<p>1</p>", "<p>2</p>", ""]
    assert read(reply.text)[-1].name == "finished"


async def test_headers_come_at_once_while_nothing_is_said() -> None:
    """WEB-09: an engine may take minutes to its first token."""

    async def silent() -> AsyncGenerator[Event]:
        await asyncio.sleep(3600)
        yield Event("never")

    async with serving(silent) as client:
        await client.get("/nowhere")  # the connection is made
        began = time.perf_counter()
        async with client.stream("GET", "/stream") as reply:
            first = await anext(reply.aiter_bytes())
            seconds = time.perf_counter() - began

    assert reply.status_code == 200
    assert first.startswith(b":"), "a comment, which no reader takes for news"
    assert seconds < 0.3


async def test_silence_is_filled_with_heartbeats() -> None:
    """So that no proxy takes the connection for dead; they are no events, and none is lost for them."""

    async def slow() -> AsyncGenerator[Event]:
        yield Event("one")
        await asyncio.sleep(0.35)
        yield Event("two")

    async with serving(slow, heartbeat=0.1) as client:
        text = (await client.get("/stream")).text

    between = text[text.index("data: one") : text.index("data: two")]
    assert between.count("\n: waiting\n") >= 2
    assert [event.data for event in read(text)] == ["one", "two"]


async def test_the_generator_is_closed_when_its_reader_leaves() -> None:
    """LIFE-07: also when it has nothing to say, so that no send would ever notice."""
    closed: list[str] = []

    async def waiting() -> AsyncGenerator[Event]:
        try:
            yield Event("one")
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            closed.append("closed")

    async with serving(waiting) as client:
        before = asyncio.all_tasks()
        async with client.stream("GET", "/stream") as reply:
            async for piece in reply.aiter_text():
                if "one" in piece:
                    break
        async with asyncio.timeout(2):
            while not closed or len(asyncio.all_tasks() - before) > 0:
                await asyncio.sleep(0.01)

    assert closed == ["closed"]


async def test_the_generator_is_closed_when_it_has_ended() -> None:
    closed: list[str] = []

    async def short() -> AsyncGenerator[Event]:
        try:
            yield Event("one")
        finally:
            closed.append("closed")

    async with serving(short) as client:
        await client.get("/stream")

    assert closed == ["closed"]


async def test_a_fault_in_the_generator_breaks_the_stream_off_and_is_logged(log: Lines) -> None:
    """A reader must not take it for the end: it comes back with its cursor."""

    async def faulty() -> AsyncGenerator[Event]:
        yield Event("one", id="1.0.3")
        raise RuntimeError("a fault of ours")

    async with serving(faulty) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/stream")

    assert "RuntimeError: a fault of ours" in log.text


class Wire:
    """A connection whose other end takes `seconds` for every message, or leaves."""

    def __init__(self, seconds: float = 0) -> None:
        self.seconds = seconds
        self.sent: list[bytes] = []
        self.open = True
        self.left = asyncio.Event()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            if message["body"].startswith(b"data") or message["body"].startswith(b"event"):
                await asyncio.sleep(self.seconds)
            self.sent.append(message["body"])
            self.open = message.get("more_body", False)

    async def receive(self) -> MutableMapping[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}


async def test_a_slow_reader_gets_the_last_event() -> None:
    """The writer looks ahead while a send is held up; what it has by then must not be lost."""
    wire = Wire(seconds=0.05)

    async def quick() -> AsyncGenerator[Event]:
        for number in range(4):
            yield Event(str(number))
        yield Event("", name="finished")

    await EventStream(quick(), heartbeat=0.01)({}, wire.receive, wire.send)

    assert not wire.open
    assert [event.data for event in read(b"".join(wire.sent).decode())] == ["0", "1", "2", "3", ""]


async def test_a_reader_that_leaves_in_the_middle_of_a_send_is_let_go() -> None:
    wire = Wire(seconds=3600)
    closed: list[str] = []

    async def quick() -> AsyncGenerator[Event]:
        try:
            while True:
                yield Event("more")
        finally:
            closed.append("closed")

    stream = asyncio.create_task(EventStream(quick())({}, wire.receive, wire.send))
    await asyncio.sleep(0.01)
    wire.left.set()
    async with asyncio.timeout(1):
        await stream

    assert closed == ["closed"]


async def test_a_stream_that_is_cancelled_closes_its_generator() -> None:
    """As when the server shuts down."""
    wire = Wire()
    closed: list[str] = []

    async def waiting() -> AsyncGenerator[Event]:
        try:
            yield Event("one")
            await asyncio.sleep(3600)
        finally:
            closed.append("closed")

    stream = asyncio.create_task(EventStream(waiting())({}, wire.receive, wire.send))
    await asyncio.sleep(0.01)
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)

    assert stream.cancelled()
    assert closed == ["closed"]

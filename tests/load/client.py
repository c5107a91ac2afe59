"""A browser reduced to what it costs nothing to be: one connection, one cookie, the requests htmx makes.

Python's usual HTTP clients would need more of their core than the product of its own; this one reads bytes as they
arrive and looks only for what is measured.
"""

import asyncio
import html
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast
from urllib.parse import urlencode
from uuid import uuid4

from tests.load.engine import FIRST, LAST, MODEL

_STREAM = re.compile(r'hx-sse:connect="([^"]+)"')
_MODEL = re.compile(r'<option value="([0-9a-f-]{36})"')
_LENGTH = re.compile(rb"(?i)content-length: *(\d+)")

OnData = Callable[[bytes], None]


class Broken(Exception):
    """A request that did not end as it should."""


@dataclass(frozen=True)
class Reply:
    status: int
    head: str
    body: bytes
    at: float

    @property
    def text(self) -> str:
        return self.body.decode()

    def header(self, name: str) -> str:
        found = re.search(rf"(?im)^{name}: *(.*?)\r?$", self.head)
        return found[1] if found else ""


class Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive; one request at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._reply: asyncio.Future[Reply] | None = None
        self._on_data: OnData | None = None
        self._head: str | None = None
        self._left = 0  # bytes of the body, or of the chunk, that have not come
        self._chunked = False
        self._body = bytearray()

    @classmethod
    async def to(cls, host: str, port: int) -> "Connection":
        _transport, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._reply and not self._reply.done():
            self._reply.set_exception(Broken(f"the connection was lost: {error}"))

    @property
    def closed(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def ask(self, request: bytes, on_data: OnData | None = None) -> "asyncio.Future[Reply]":
        """The whole reply; with `on_data` its body goes there as it comes."""
        self._reply = asyncio.get_running_loop().create_future()
        self._on_data = on_data
        self._head, self._chunked, self._left = None, False, 0
        self._body = bytearray()
        self._transport.write(request)
        return self._reply

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._head is None and not self._read_head():
            return
        if self._chunked:
            self._read_chunks()
        else:
            self._take(len(self._buffer))
            if not self._left:
                self._done()

    def _read_head(self) -> bool:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return False
        self._buffer = rest
        self._head = head.decode("latin-1")
        self._chunked = b"transfer-encoding: chunked" in head.lower()
        length = _LENGTH.search(head)
        self._left = int(length[1]) if length else 0
        return True

    def _read_chunks(self) -> None:
        buffer = self._buffer
        came: list[bytes] = []
        at, size = 0, len(buffer)
        while True:
            line = buffer.find(b"\r\n", at)
            if line < 0:
                break
            length = int(buffer[at:line], 16)
            if line + length + 4 > size:
                break
            if length == 0:
                self._give(b"".join(came))
                self._buffer = buffer[line + 4 :]
                self._done()
                return
            came.append(bytes(buffer[line + 2 : line + 2 + length]))
            at = line + length + 4
        if at:
            del buffer[:at]
        if came:
            self._give(b"".join(came))

    def _take(self, size: int) -> None:
        size = min(size, self._left)
        self._give(bytes(self._buffer[:size]))
        del self._buffer[:size]
        self._left -= size

    def _give(self, data: bytes) -> None:
        if self._on_data and self._head and " 200 " in self._head[:16]:
            self._on_data(data)
        else:
            self._body += data

    def _done(self) -> None:
        reply, self._reply = self._reply, None
        if reply and not reply.done():
            assert self._head is not None
            reply.set_result(Reply(int(self._head.split(" ", 2)[1]), self._head, bytes(self._body), time.monotonic()))


@dataclass
class Outcome:
    """What one person saw of one answer. Times are `time.monotonic()`."""

    mark: str
    asked: float
    replied: float = 0
    first: float = 0  # the first text
    ended: float = 0
    updates: list[float] = field(default_factory=list)
    bytes: int = 0
    problem: str = ""

    @property
    def ttft(self) -> float:
        return self.first - self.asked

    @property
    def gaps(self) -> list[float]:
        return [later - sooner for sooner, later in pairwise(self.updates)]


class _Watching:
    """Looks through a stream as it comes: first text, updates, the end."""

    def __init__(self, outcome: Outcome, end: bytes) -> None:
        self._outcome = outcome
        self._end = end
        self._tail = b""
        self._rest = b""
        self.whole = False

    def __call__(self, data: bytes) -> None:
        moment = time.monotonic()
        outcome = self._outcome
        outcome.bytes += len(data)
        if self._end in self._tail + data:
            self.whole = True
        if not outcome.first:
            self._rest += data
            if FIRST.encode() in self._rest:
                outcome.first = moment
                outcome.updates.append(moment)
        elif b"\ndata: " in data or data.startswith(b"data: "):
            outcome.updates.append(moment)
        self._tail = (self._tail + data)[-4096:]


def _words(page: str) -> str:
    """The first sentence of an error page, without what draws it."""
    words = " ".join(html.unescape(re.sub(r"(?s)<head.*?</head>|<[^>]*>", " ", page)).split())
    return words.partition(".")[0][:100]


class Person:
    """Somebody with a browser at `host:port`, signed in by a session's token."""

    def __init__(self, host: str, port: int, token: str = "") -> None:
        self._host, self._port = host, port
        self._token = token
        self._connection: Connection | None = None
        self.model = ""
        self.conversation = ""

    async def open(self) -> None:
        """Load the start page, as everybody does first."""
        page = await self._request("GET", "/")
        if page.status != 200:
            raise Broken(f"the start page has {page.status}")
        found = _MODEL.search(page.text)
        if not found:
            raise Broken("there is no model to choose on the start page")
        self.model = found[1]

    async def sign_in(self, email: str, password: str) -> None:
        """With the form, as a person does it."""
        page = await self._request("GET", "/login")
        if 'name="password"' not in page.text:
            raise Broken("there is no form to sign in with")
        reply = await self._request("POST", "/login", {"email": email, "password": password, "next": "/"})
        cookie = re.search(r"sid=([^;]+)", reply.header("set-cookie"))
        if reply.status != 303 or not cookie:
            raise Broken(f"signing in has {reply.status}")
        self._token = cookie[1]

    async def ask(self, text: str, mark: str) -> tuple[Outcome, str]:
        """Press Send; what became of it, and the address of the stream."""
        outcome = Outcome(mark, time.monotonic())
        form = {"text": text, "model": self.model, "key": str(uuid4())}
        try:
            address = f"{self.conversation}/messages" if self.conversation else "/chat"
            reply = await self._request("POST", address, form)
        except (OSError, Broken) as broken:
            outcome.problem = str(broken)
            return outcome, ""
        outcome.replied = time.monotonic()
        outcome.bytes = len(reply.body)
        if FIRST in reply.text:  # the engine was quicker than the page
            outcome.first = outcome.replied
            outcome.updates.append(outcome.first)
        found = _STREAM.findall(reply.text)
        if reply.status == 200 and not found and LAST.strip() in reply.text:
            outcome.ended = outcome.replied
        elif reply.status != 200 or not found:
            outcome.problem = f"the send has {reply.status}: {_words(reply.text)}"
            return outcome, ""
        if not self.conversation:
            self.conversation = reply.header("hx-push-url")
        return outcome, html.unescape(found[-1]) if found else ""

    async def watch(self, outcome: Outcome, stream: str, patience: float = 120) -> Outcome:
        """Read the answer to its end."""
        watching = _Watching(outcome, LAST.strip().encode())
        try:
            async with asyncio.timeout(patience):
                reply = await (await self.connect()).ask(self._bytes("GET", stream, None), watching)
        except (OSError, Broken) as broken:
            outcome.problem = f"the stream broke: {broken!r}"
            return outcome
        outcome.ended = time.monotonic()
        if reply.status != 200:
            outcome.problem = f"the stream has {reply.status}"
        elif not outcome.first or not watching.whole:
            outcome.problem = "the stream ended before the answer was whole"
        return outcome

    async def turn(self, text: str, mark: str, patience: float = 120) -> Outcome:
        outcome, stream = await self.ask(text, mark)
        return await self.watch(outcome, stream, patience) if stream else outcome

    async def stop(self, stream: str) -> Reply:
        """Press Stop, on a connection of its own as browsers do while a stream is open."""
        connection = await Connection.to(self._host, self._port)
        try:
            return await connection.ask(self._bytes("POST", stream.partition("/events")[0] + "/stop", {}))
        finally:
            connection.close()

    def begin_anew(self) -> None:
        self.conversation = ""

    def close(self) -> None:
        if self._connection:
            self._connection.close()

    async def connect(self) -> Connection:
        """As a browser has it that showed a page a moment ago."""
        if self._connection is None or self._connection.closed:
            self._connection = await Connection.to(self._host, self._port)
        return self._connection

    async def _request(self, method: str, path: str, form: dict[str, str] | None = None) -> Reply:
        async with asyncio.timeout(60):
            return await (await self.connect()).ask(self._bytes(method, path, form))

    def _bytes(self, method: str, path: str, form: dict[str, str] | None) -> bytes:
        body = b"" if form is None else urlencode(form).encode()
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {self._host}:{self._port}",
            f"Origin: http://{self._host}:{self._port}",
            "User-Agent: load test",
            "Accept: text/html, text/event-stream",
            "Sec-Fetch-Site: same-origin",
        ]
        if self._token:
            lines.append(f"Cookie: sid={self._token}")
        if path not in ("/", "/login"):
            lines.append("HX-Request: true")
        if form is not None:
            lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(body)}"]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Program:
    """The reference: asks the engine itself, without a product in between. With a `key` it asks the product's API."""

    def __init__(self, host: str, port: int, *, key: str = "", model: str = MODEL) -> None:
        self._host, self._port = host, port
        self._key, self._model = key, model
        self._connection: Connection | None = None

    async def connect(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await Connection.to(self._host, self._port)
        return self._connection

    async def turn(self, text: str, mark: str) -> Outcome:
        connection = await self.connect()
        body = b'{"model":"%s","stream":true,"messages":[{"role":"user","content":"%s"}]}' % (
            self._model.encode(),
            text.encode(),
        )
        lines = ["POST /v1/chat/completions HTTP/1.1", "Host: engine", f"Content-Length: {len(body)}"]
        if self._key:
            lines.append(f"Authorization: Bearer {self._key}")
        head = "\r\n".join(lines) + "\r\n\r\n"
        outcome = Outcome(mark, time.monotonic())
        watching = _Watching(outcome, LAST.strip().encode())
        reply = await connection.ask(head.encode() + body, watching)
        outcome.ended = time.monotonic()
        if not watching.whole:
            outcome.problem = f"the answer was not whole ({reply.status}): {reply.text[:100]}"
        return outcome

    def close(self) -> None:
        if self._connection:
            self._connection.close()

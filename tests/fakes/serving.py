"""A real uvicorn on a loopback port, in a thread of its own, that can vanish, come back, and cut its connections."""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeAlias, cast

import uvicorn

from tests.fakes.script import Status

Send: TypeAlias = Callable[[Any], Awaitable[None]]
Receive: TypeAlias = Callable[[], Awaitable[Any]]

LOOK_AGAIN = 0.002
"""Gates are opened from other threads and loops, so the engine looks at them."""


class Serving:
    """Whoever inherits this has an `app`. With `load_seconds` it is bound at once and listens later, as vLLM does."""

    def __init__(self, *, port: int, keep_alive: int) -> None:
        self.port = port
        self.load_seconds: float = 0
        self.answers_while_loading = False
        self._keep_alive = keep_alive
        self._loading_until = 0.0
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._listening = threading.Event()
        self._server: uvicorn.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def app(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        raise NotImplementedError

    def before_leaving(self) -> None:
        """Whatever would keep a request from ending."""

    @property
    def is_listening(self) -> bool:
        return self._listening.is_set()

    @property
    def is_loading(self) -> bool:
        return time.monotonic() < self._loading_until

    def start(self) -> Self:
        """Bind the port, and listen on it once loaded: until then the connection is refused, as by vLLM."""
        # Asyncio switches Nagle's algorithm off only where the protocol is named; it would hold tokens back for 40 ms.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._loading_until = time.monotonic() + self.load_seconds
        self._stop.clear()
        self._listening.clear()
        self._thread = threading.Thread(target=self._run, args=(listener,), name="fake engine", daemon=True)
        self._thread.start()
        if self.answers_while_loading or not self.load_seconds:
            self._listening.wait()
        return self

    def stop(self) -> None:
        """Away at once, with every connection, as after `kill -9`; may be started again on the same port."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
            self._listening.clear()

    def reset_connections(self) -> None:
        """Reset every connection, idle ones too, and go on listening."""
        assert self._loop is not None
        done = threading.Event()

        def cut() -> None:
            assert self._server is not None
            for connection in list(self._server.server_state.connections):
                reset(connection.transport)
            done.set()

        self._loop.call_soon_threadsafe(cut)
        done.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.before_leaving()
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.before_leaving()
        await asyncio.to_thread(self.stop)

    def _run(self, listener: socket.socket) -> None:
        with listener:
            if not self.answers_while_loading:
                self._stop.wait(self.load_seconds)
            if not self._stop.is_set():
                asyncio.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        config = uvicorn.Config(
            self.app,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            ws="none",
            timeout_keep_alive=self._keep_alive,
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener])
        ticking = asyncio.create_task(server.main_loop())
        self._server, self._loop = server, asyncio.get_running_loop()
        self._listening.set()
        await becomes(self._stop.is_set)
        ticking.cancel()
        for listening in server.servers:
            listening.close()
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        await asyncio.gather(ticking, *server.server_state.tasks, return_exceptions=True)


class Signed:
    """Sends, and says in every response who gave it."""

    def __init__(self, send: Send, signature: Mapping[str, str]) -> None:
        self._send = send
        self._signs = [(name.encode(), value.encode()) for name, value in signature.items()]

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            message = message | {"headers": [*message["headers"], *self._signs]}
        await self._send(message)

    @property
    def transport(self) -> Any:
        """The connection itself, to break it."""
        return self._send.__self__.transport  # type: ignore[attr-defined]


async def becomes(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(LOOK_AGAIN)


def reset(transport: Any) -> None:
    """Close with a reset instead of an end."""
    linger = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()


async def read_body(receive: Receive) -> bytes:
    raw = b""
    while True:
        message = await receive()
        raw += cast(bytes, message.get("body", b""))
        if not message.get("more_body"):
            return raw


async def left(receive: Receive) -> None:
    """Until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def answer(send: Send, status: Status) -> None:
    headers = [(name.encode(), value.encode()) for name, value in status.all_headers().items()]
    content = status.content()
    headers.append((b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": status.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})

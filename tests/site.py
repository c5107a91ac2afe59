"""The whole site under test: the real app behind a real uvicorn on a loopback port, in the test's own event loop.

A stream cannot be tested through an in-process transport that collects the body first, so nothing here is shortened.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import httpx
import uvicorn

from backend.accounts.models import User
from backend.accounts.passwords import Passwords
from backend.conversations.turns import Timing, Turns
from backend.core.db import Sessions
from backend.core.ids import new_id
from backend.core.lifecycle import Lifecycle
from backend.core.settings import Settings
from backend.engines.registry import Registry

CHEAP_PASSWORDS = {"memory_kib": 64, "rounds": 1, "lanes": 1}
QUICK = Timing(save_every=0.05, abandoned_after=0.5, reap_every=0.1, drain=0.5, patience=2)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@dataclass(frozen=True)
class Event:
    """One server-sent event as a browser reads it."""

    name: str
    data: str
    id: str | None


class _Server(uvicorn.Server):
    """Ends when it is told to, and not at the next of its looks, of which there are ten a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.told = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.told.wait()


class Site:
    """`async with Site(settings)`: up and answering; leaving it shuts down the way SIGTERM does."""

    def __init__(self, settings: Settings, *, timing: Timing = QUICK) -> None:
        self.settings = settings
        self.lifecycle = Lifecycle()
        self._timing = timing
        self._task: asyncio.Task[None] | None = None
        self._server: _Server | None = None

    async def __aenter__(self) -> Self:
        from backend.main import create_app

        app = create_app(
            self.settings, lifecycle=self.lifecycle, passwords=Passwords(**CHEAP_PASSWORDS), timing=self._timing
        )
        config = uvicorn.Config(
            app,
            host="127.0.0.1",
            port=self.settings.port,
            log_config=None,
            access_log=False,
            lifespan="on",
            ws="none",
            timeout_graceful_shutdown=2,
            proxy_headers=bool(self.settings.trusted_proxies),
            forwarded_allow_ips=list(self.settings.trusted_proxies),
        )
        self._server = _Server(config)
        self._server.config.load()
        self._task = asyncio.create_task(self._server._serve())  # without taking over the signals
        while not self._server.started:
            await asyncio.sleep(0.005)
            if self._task.done():
                self._task.result()
                raise AssertionError("the site did not start; its log says why")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None and self._task is not None
        self.lifecycle.stop()
        self._server.should_exit = True
        self._server.told.set()
        await self._task

    @property
    def state(self) -> dict[str, Any]:
        """What `backend/main.py` put into the lifespan state."""
        assert self._server is not None
        state: dict[str, Any] = self._server.lifespan.state
        return state

    def cut_connections(self) -> None:
        """As when the network is lost: every open connection is reset."""
        assert self._server is not None
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()

    @property
    def open_streams(self) -> int:
        """Requests that are being answered right now: on a quiet site, the open streams."""
        assert self._server is not None
        return len(self._server.server_state.tasks)

    @property
    def turns(self) -> Turns:
        turns: Turns = self.state["turns"]
        return turns

    @property
    def registry(self) -> Registry:
        registry: Registry = self.state["registry"]
        return registry

    @property
    def sessions(self) -> Sessions:
        sessions: Sessions = self.state["sessions"]
        return sessions

    async def until_offered(self, *names: str) -> dict[str, UUID]:
        """Wait until the picker holds these models; their ids by name."""
        async with asyncio.timeout(5):
            while True:
                offered = {offer.name: offer.id for offer in self.registry.offers if offer.available}
                if set(names) <= offered.keys() and (names or offered):
                    return offered
                await asyncio.sleep(0.01)


class Browser:
    """A person's browser as far as HTTP goes: cookies, same-origin headers, htmx when asked."""

    def __init__(self, site: Site, *, token: str | None = None, person: User | None = None) -> None:
        self.site = site
        self.person = person
        self.http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{site.settings.port}",
            cookies={"sid": token} if token else {},
            headers={"sec-fetch-site": "same-origin", "user-agent": "test"},
            timeout=60,
            verify=False,  # there is no TLS here, and loading the certificates takes longer than most tests
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.aclose()

    async def get(self, path: str, *, hx: bool = False, **options: Any) -> httpx.Response:
        return await self.http.get(path, headers=_headers(hx, options), **options)

    async def post(self, path: str, data: Any = None, *, hx: bool = True, **options: Any) -> httpx.Response:
        # A browser sends an empty form with its type, too; `content` is for what is no form.
        form = {} if "content" in options else {"content-type": "application/x-www-form-urlencoded"}
        headers = form | _headers(hx, options)
        return await self.http.post(path, data=data, headers=headers, **options)

    async def send(
        self, text: str, *, model: UUID, to: str = "", key: UUID | None = None, **more: Any
    ) -> httpx.Response:
        """Press Send: in a new conversation, or in the one `to` is the address of."""
        data = {"text": text, "model": str(model), "key": str(key or new_id()), **more}
        return await self.post(f"{to}/messages" if to else "/chat", data)

    @asynccontextmanager
    async def watch(self, address: str, *, last_event_id: str | None = None) -> AsyncIterator[AsyncIterator[Event]]:
        """Open the stream at `address` (as found in `hx-sse:connect`)."""
        headers = {"accept": "text/event-stream", "hx-request": "true"}
        if last_event_id is not None:
            headers["last-event-id"] = last_event_id
        async with self.http.stream("GET", address, headers=headers) as response:
            assert response.status_code == 200, response.status_code
            yield read_events(response.aiter_lines())

    async def read(self, address: str, **options: Any) -> list[Event]:
        """The whole stream, to its end."""
        async with self.watch(address, **options) as events:
            return [event async for event in events]


def _headers(hx: bool, options: dict[str, Any]) -> dict[str, str]:
    headers: dict[str, str] = options.pop("headers", {})
    return ({"hx-request": "true"} if hx else {}) | headers


async def read_events(lines: AsyncIterator[str]) -> AsyncIterator[Event]:
    name, id_ = "", None
    data: list[str] = []
    async for line in lines:
        if not line:
            if data or name:
                yield Event(name, "\n".join(data), id_)
            name, data, id_ = "", [], None
        elif line.startswith("data: "):
            data.append(line.removeprefix("data: "))
        elif line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("id: "):
            id_ = line.removeprefix("id: ")

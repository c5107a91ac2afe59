"""The connections to one engine: what is sent, how often it is tried, and what counts as a failure of the line."""

import asyncio
from collections.abc import Mapping

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver
from yarl import URL

from backend.engines.events import EngineFailed, Failure
from backend.engines.failures import bounded, failed, refused
from backend.engines.pages import Page, Site
from backend.engines.request import JSON

CONNECT_SECONDS = 4.0
PAGE_SECONDS = 5.0
"""For everything that is not an answer: no admin page and no probe waits longer for a dead engine."""

KEEP_ALIVE_SECONDS = 4.0
"""vLLM and SGLang close an idle connection after 5 s; a request sent in that moment would be lost."""

MAX_CONNECTIONS = 4_096
"""Admission decides how many answers run; the pool must never be what makes them wait."""

MAX_PAGE_BYTES = 4 << 20
MAX_ERROR_BYTES = 64 << 10


class Wire:
    """Make it inside a running event loop, and close it."""

    def __init__(self, url: str, api_key: str | None, resolver: AbstractResolver | None = None) -> None:
        self.base, root = _addresses(url)
        self.key = (api_key or "").strip() or None
        self.site = Site(self.page, self.base, root)
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=MAX_CONNECTIONS, keepalive_timeout=KEEP_ALIVE_SECONDS, resolver=resolver
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            headers=_headers(self.key),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def aclose(self) -> None:
        await self.session.close()

    async def open(
        self, method: str, url: URL, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> aiohttp.ClientResponse:
        """Tried twice, because engines close idle connections, also in the moment one is taken from the pool."""
        try:
            return await self.session.request(method, url, data=body, headers=headers, allow_redirects=False)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
            return await self.session.request(method, url, data=body, headers=headers, allow_redirects=False)

    async def page(self, url: URL, body: JSON = None, *, seconds: float | None = None) -> Page:
        """One small thing of an engine, by a POST if there is a `body`; anything but success fails."""
        seconds = seconds or PAGE_SECONDS
        method, data = ("GET", None) if body is None else ("POST", orjson.dumps(body))
        try:
            async with asyncio.timeout(seconds):
                response = await self.open(method, url, data)
                try:
                    content = await _read_at_most(response, MAX_PAGE_BYTES)
                finally:
                    response.close()
        except (aiohttp.ClientError, ConnectionError) as error:
            raise failed(Failure.UNREACHABLE, self.words(error)) from error
        except TimeoutError:
            raise failed(Failure.TIMEOUT, f"nothing within {seconds:g} s") from None
        if not 200 <= response.status < 300:
            raise refused(response.status, content, retry_after=_retry_after(response.headers), secret=self.key)
        if len(content) == MAX_PAGE_BYTES:
            raise failed(Failure.CUT, "the page is longer than this client reads")
        return Page(content, response.headers)

    async def refusal(self, response: aiohttp.ClientResponse) -> EngineFailed:
        try:
            async with asyncio.timeout(PAGE_SECONDS):
                body = await _read_at_most(response, MAX_ERROR_BYTES)
        except (aiohttp.ClientError, OSError):  # a TimeoutError is an OSError
            body = b""
        finally:
            response.close()
        return refused(response.status, body, retry_after=_retry_after(response.headers), secret=self.key)

    def words(self, error: Exception) -> str:
        return bounded(f"{type(error).__name__}: {error}", self.key)


def _addresses(url: str) -> tuple[URL, URL]:
    """The address of the API, and of the server around it. A bare host gets `/v1`; any other path is taken as it is."""
    base = URL(url.rstrip("/"))
    if base.path in ("", "/"):
        base = base.with_path("/v1")
    return base, base.parent if base.name == "v1" else base


def _headers(key: str | None) -> dict[str, str]:
    headers = {
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "User-Agent": "Parley",
    }
    return headers | {"Authorization": f"Bearer {key}"} if key else headers


async def _read_at_most(response: aiohttp.ClientResponse, limit: int) -> bytes:
    body = bytearray()
    while len(body) < limit and (data := await response.content.readany()):
        body += data
    return bytes(body[:limit])


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds an engine asks for. A date, which the header also allows, is no engine's habit."""
    text = headers.get("Retry-After", "").strip()
    return float(text) if text.isdecimal() and len(text) < 6 else None

"""One engine over HTTP, for as long as the process lives.

    answer()         events of one chat request, as they come; raises `EngineFailed` unless the answer is whole
    count_tokens()   how long a prompt is
    models()         what the engine serves
    probe()          what kind of engine it is
    sees()           whether it says that a model takes pictures

Only closing the connection makes an engine stop: leaving `answer()` in any way closes it at once, and a connection goes
back to the pool only when its response was read to the end.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Self

import aiohttp
import orjson
from yarl import URL

from backend.core.i18n import _
from backend.engines import counting, discovery
from backend.engines.discovery import Page, Probe, UpstreamModel
from backend.engines.events import EngineFailed, Event, Failure
from backend.engines.failures import bounded, failed, refused
from backend.engines.reading import AnswerReader
from backend.engines.request import JSON, ChatMessage, ChatRequest, Part, body_of, prompt_fields
from backend.engines.silence import Silence

__all__ = ["JSON", "ChatMessage", "ChatRequest", "EngineClient", "Part", "Probe", "UpstreamModel"]

CONNECT_SECONDS = 4.0
PAGE_SECONDS = 5.0
"""For everything that is not an answer: no admin page and no probe waits longer for a dead engine."""

COUNT_SECONDS = 2.0
"""A person waits for the count; an estimate is at hand where it takes longer."""

KEEP_ALIVE_SECONDS = 4.0
"""vLLM and SGLang close an idle connection after 5 s; a request sent in that moment would be lost."""

MAX_CONNECTIONS = 4_096
"""Admission decides how many answers run; the pool must never be what makes them wait."""

MAX_PAGE_BYTES = 4 << 20
MAX_ERROR_BYTES = 64 << 10

MAX_RETRY_AFTER_SECONDS = 5.0
"""An engine that asks for more is left to the caller, who may know another one."""

AFTER_FINISH_SECONDS = 5.0
"""How long usage and `[DONE]` are waited for once the answer is complete."""
AFTER_DONE_SECONDS = 0.05
"""How long the end of the response is waited for, to keep the connection."""


class EngineClient:
    """Make it inside a running event loop, and close it: `async with`, or `aclose()`."""

    def __init__(
        self, url: str, api_key: str | None = None, *, first_token_seconds: float = 300, idle_seconds: float = 60
    ) -> None:
        self._base, self._root = _addresses(url)
        self._chat = self._base / "chat" / "completions"
        self._key = (api_key or "").strip() or None
        self._first_token_seconds = first_token_seconds
        self._idle_seconds = idle_seconds
        self._cannot_count: set[str | None] = set()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=KEEP_ALIVE_SECONDS),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            headers=_headers(self._key),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._session.close()

    async def answer(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        """All complete events of one read at a time. Close the iterator when you leave it early (`aclosing`).

        Before the first text an engine has `first_token_seconds`, whatever else it sends; afterwards every byte, also a
        keep-alive comment, gives it `idle_seconds` more, but text has to come again within `first_token_seconds`.
        """
        reader = AnswerReader(begins=not request.continues, secret=self._key)
        started = asyncio.get_running_loop().time()
        response = await self._ask(body_of(request))
        content = response.content
        silence = Silence(content, started, self._first_token_seconds, self._idle_seconds)
        because: EngineFailed | None = None
        try:
            try:
                with silence:
                    while not reader.is_over:
                        silence.begins()
                        data = await content.readany()
                        silence.ends()
                        if not data:
                            break
                        if events := reader.feed(data):
                            yield events
                            silence.broken(by_text=reader.has_text)
                        if reader.finish_reason is not None:
                            silence.allow(AFTER_FINISH_SECONDS)
            except TimeoutError:
                because = _too_silent(reader, silence.seconds)
            except (aiohttp.ClientError, OSError) as error:
                because = failed(Failure.CUT, self._words(error))
            if events := reader.close(because):
                yield events
            if reader.done:
                await _hear_the_end(content)
        finally:
            response.close()
        if reader.failure is not None:
            raise reader.failure

    async def count_tokens(
        self, kind: str | None, model: str, messages: Sequence[ChatMessage], *, continues: bool = False
    ) -> int | None:
        """The tokens of the prompt that the engine would make of `messages`; None where it cannot count.

        Pictures may be missing from the count. Raises `EngineFailed` where the engine could and did not.
        """
        counter = counting.COUNTERS.get(kind or "")
        if counter is None or kind in self._cannot_count:
            return None
        url = (self._base if counter.in_api else self._root).joinpath(*counter.path)
        body = prompt_fields(model, messages, continues=continues)
        try:
            return counter.read(await self._page(url, body, seconds=COUNT_SECONDS))
        except EngineFailed as failure:
            if failure.kind is not Failure.NONSENSE:
                raise
            # No such route here, or a router that keeps it to itself: not worth asking before every answer.
            self._cannot_count.add(kind)
            return None

    async def models(self) -> list[UpstreamModel]:
        return discovery.read_models(await self._page(self._base / "models"))

    async def probe(self) -> Probe:
        """What answers there, and what it serves."""
        return await discovery.probe(self._page, self._base, self._root)

    async def sees(self, kind: str | None, model: str) -> bool | None:
        """Whether the engine says that `model` takes pictures; None where it says nothing about that."""
        return await discovery.sees(self._page, self._base, self._root, kind, model)

    async def _ask(self, body: bytes) -> aiohttp.ClientResponse:
        """The response to a chat request, with status 200 and nothing read of it."""
        try:
            async with asyncio.timeout(self._first_token_seconds):
                response = await self._send(body)
        except TimeoutError:
            raise _late(self._first_token_seconds) from None
        if response.content_type in ("text/html", "application/xhtml+xml"):  # a proxy's sign-in page also has 200
            response.close()
            raise failed(Failure.NONSENSE, f"200 with {response.content_type}")
        return response

    async def _send(self, body: bytes) -> aiohttp.ClientResponse:
        """Sent again only while not a byte of an answer has come, and only once to an engine that did not take it."""
        refused_once = False
        while True:
            try:
                response = await self._open("POST", self._chat, body)
                if response.status == 200:
                    return response
                failure = await self._refusal(response)
            except aiohttp.ClientConnectorError as error:
                failure = failed(Failure.UNREACHABLE, self._words(error))
            except (aiohttp.ClientError, ConnectionError) as error:
                kind = Failure.NONSENSE if isinstance(error, aiohttp.ClientResponseError) else Failure.UNREACHABLE
                raise failed(kind, self._words(error)) from error
            pause = _pause_before_retry(failure)
            if refused_once or pause is None:
                raise failure
            refused_once = True
            await asyncio.sleep(pause)

    async def _open(self, method: str, url: URL, body: bytes | None = None) -> aiohttp.ClientResponse:
        """Tried twice, because engines close idle connections, also in the moment one is taken from the pool."""
        try:
            return await self._session.request(method, url, data=body, allow_redirects=False)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
            return await self._session.request(method, url, data=body, allow_redirects=False)

    async def _refusal(self, response: aiohttp.ClientResponse) -> EngineFailed:
        try:
            async with asyncio.timeout(PAGE_SECONDS):
                body = await _read_at_most(response, MAX_ERROR_BYTES)
        except (aiohttp.ClientError, OSError):  # a TimeoutError is an OSError
            body = b""
        finally:
            response.close()
        return refused(response.status, body, retry_after=_retry_after(response.headers), secret=self._key)

    async def _page(self, url: URL, body: JSON = None, *, seconds: float | None = None) -> Page:
        """One small thing of an engine, by a POST if there is a `body`; anything but 200 fails."""
        seconds = seconds or PAGE_SECONDS
        method, data = ("GET", None) if body is None else ("POST", orjson.dumps(body))
        try:
            async with asyncio.timeout(seconds):
                response = await self._open(method, url, data)
                try:
                    content = await _read_at_most(response, MAX_PAGE_BYTES)
                finally:
                    response.close()
        except (aiohttp.ClientError, ConnectionError) as error:
            raise failed(Failure.UNREACHABLE, self._words(error)) from error
        except TimeoutError:
            raise failed(Failure.TIMEOUT, f"nothing within {seconds:g} s") from None
        if response.status != 200:
            raise refused(response.status, content, retry_after=_retry_after(response.headers), secret=self._key)
        if len(content) == MAX_PAGE_BYTES:
            raise failed(Failure.CUT, "the page is longer than this client reads")
        return Page(content, response.headers.get("Server", ""))

    def _words(self, error: Exception) -> str:
        return bounded(f"{type(error).__name__}: {error}", self._key)


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


def _late(seconds: float) -> EngineFailed:
    sentence = _("The engine did not begin to answer within %(seconds)s seconds.")
    return EngineFailed(Failure.TIMEOUT, sentence % {"seconds": f"{seconds:g}"})


def _too_silent(reader: AnswerReader, seconds: float) -> EngineFailed:
    if not reader.has_text:
        return _late(seconds)
    sentence = _("The engine stopped sending for %(seconds)s seconds.")
    return EngineFailed(Failure.TIMEOUT, sentence % {"seconds": f"{seconds:g}"})


async def _hear_the_end(content: aiohttp.StreamReader) -> None:
    """After `[DONE]` only the end of the response is left; heard, it lets the connection be used again."""
    try:
        async with asyncio.timeout(AFTER_DONE_SECONDS):
            while not content.at_eof():
                await content.readany()
    except (aiohttp.ClientError, OSError):  # a TimeoutError is an OSError
        return


async def _read_at_most(response: aiohttp.ClientResponse, limit: int) -> bytes:
    body = bytearray()
    while len(body) < limit and (data := await response.content.readany()):
        body += data
    return bytes(body[:limit])


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds an engine asks for. A date, which the header also allows, is no engine's habit."""
    text = headers.get("Retry-After", "").strip()
    return float(text) if text.isdecimal() and len(text) < 6 else None


def _pause_before_retry(failure: EngineFailed) -> float | None:
    """How long to wait before asking again, or nothing when it would not help."""
    if failure.kind not in (Failure.UNREACHABLE, Failure.OVERLOADED, Failure.LOADING):
        return None
    if failure.retry_after is None:
        return random.uniform(0.1, 0.4)  # noqa: S311 — only spreads the retries
    if failure.retry_after > MAX_RETRY_AFTER_SECONDS:
        return None
    return failure.retry_after + random.uniform(0, 0.2)  # noqa: S311

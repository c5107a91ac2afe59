"""One engine over HTTP, for as long as the process lives.

    answer()                    events of one chat request, as they come; raises `EngineFailed` unless it is whole
    count_tokens()              how long a prompt is
    models(), probe()           what the engine serves, and what kind of engine it is
    check_health()              whether one that still answers is alive
    sees(), room()              whether it says that a model takes pictures, and how much room it has
    loaded(), load(), unload()  the models in its memory, where it can be told

It speaks in the dialect of its engine. Only closing the connection makes an engine stop: leaving `answer()` in any way
closes it at once, and a connection goes back to the pool only when its response was read to the end.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp.abc import AbstractResolver

from backend.core.i18n import _
from backend.engines import dialects, discovery
from backend.engines.dialects import Lifecycle, LoadedModel
from backend.engines.discovery import Probe
from backend.engines.events import EngineFailed, Event, Failure
from backend.engines.failures import failed
from backend.engines.pages import UpstreamModel
from backend.engines.reading import AnswerReader
from backend.engines.request import JSON, ChatMessage, ChatRequest, Part, prompt_fields
from backend.engines.room import Room
from backend.engines.silence import Silence
from backend.engines.wire import Wire

__all__ = ["JSON", "ChatMessage", "ChatRequest", "EngineClient", "Part", "Probe", "UpstreamModel"]

COUNT_SECONDS = 2.0
"""A person waits for the count; an estimate is at hand where it takes longer."""

NUMBERS_SECONDS = 2.0
"""Numbers that come late are worth nothing."""

AFTER_FINISH_SECONDS = 5.0
"""How long usage and `[DONE]` are waited for once the answer is complete."""
AFTER_DONE_SECONDS = 0.05
"""How long the end of the response is waited for, to keep the connection."""


class EngineClient:
    """Make it inside a running event loop, and close it: `async with`, or `aclose()`."""

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        first_token_seconds: float = 300,
        idle_seconds: float = 60,
        kind: str | None = None,
        resolver: AbstractResolver | None = None,
    ) -> None:
        """`kind` as far as it is known; `probe` finds it out, `speak` says more. A `resolver` may refuse an address."""
        self._wire = Wire(url, api_key, resolver)
        self._chat = self._wire.base / "chat" / "completions"
        self.first_token_seconds = first_token_seconds
        self._idle_seconds = idle_seconds
        self._cannot_count: set[str] = set()
        self._is_forced = False
        self.dialect = dialects.of(kind)
        self.priorities = False
        """The engine was started with them; elsewhere they would be refused."""
        self.session_header = ""

    def speak(
        self, kind: str | None, *, forced: bool = False, priorities: bool = False, session_header: str = ""
    ) -> None:
        """How to talk to this engine from now on. One that is `forced` is not replaced by what `probe` finds."""
        self.dialect = dialects.of(kind)
        self._is_forced = forced
        self.priorities = priorities
        self.session_header = session_header

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._wire.aclose()

    async def answer(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        """All complete events of one read at a time. Close the iterator when you leave it early (`aclosing`).

        It is asked for once: the pool knows where, and whether, to try again.

        Before the first text an engine has `first_token_seconds`, whatever else it sends; afterwards every byte, also a
        keep-alive comment, gives it `idle_seconds` more, but text has to come again within `first_token_seconds`.
        """
        reader = AnswerReader(begins=not request.continues, secret=self._wire.key)
        started = asyncio.get_running_loop().time()
        response = await self._ask(request)
        content = response.content
        silence = Silence(content, started, self.first_token_seconds, self._idle_seconds)
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
                because = failed(Failure.CUT, self._wire.words(error))
            if events := reader.close(because):
                yield events
            if reader.done:
                await _hear_the_end(content)
        finally:
            response.close()
        if reader.failure is not None:
            raise reader.failure

    async def count_tokens(self, model: str, messages: Sequence[ChatMessage], *, continues: bool = False) -> int | None:
        """The tokens of the prompt that the engine would make of `messages`; None where it cannot count.

        Pictures may be missing from the count. Raises `EngineFailed` where the engine could and did not.
        """
        dialect, site = self.dialect, self._wire.site
        counter = dialect.counter
        if counter is None or dialect.kind in self._cannot_count:
            return None
        url = (site.api if counter.in_api else site.root).joinpath(*counter.path.split("/"))
        body = prompt_fields(model, messages, continues=continues)
        try:
            return counter.read(await self._wire.page(url, body, seconds=COUNT_SECONDS))
        except EngineFailed as failure:
            if failure.kind is not Failure.NONSENSE:
                raise
            # No such route here, or a router that keeps it to itself: not worth asking before every answer.
            self._cannot_count.add(dialect.kind)
            return None

    async def models(self) -> Sequence[UpstreamModel]:
        return await discovery.models(self._wire.site, self.dialect)

    async def probe(self) -> Probe:
        """What answers there, and what it serves. From then on it is spoken to in its own dialect."""
        found = await discovery.probe(self._wire.site, forced=self.dialect if self._is_forced else None)
        if not self._is_forced:
            self.dialect = dialects.of(found.kind)
        return found

    async def check_health(self) -> None:
        """Raises `EngineFailed` where an engine that still lists its models says that it has died."""
        path = self.dialect.health_path
        if path is None:
            return
        try:
            await self._wire.site.get(path)
        except EngineFailed as failure:
            if failure.kind is not Failure.NONSENSE:  # something in front of it does not pass this page on
                raise

    async def sees(self, model: str) -> bool | None:
        """Whether the engine says that `model` takes pictures; None where it says nothing about that."""
        asks = self.dialect.sees
        return await asks(self._wire.site, model) if asks else None

    async def numbers(self, path: str) -> bytes:
        """A page beside the API that is read again and again, such as `metrics`."""
        page = await self._wire.page(self._wire.site.beside(path), seconds=NUMBERS_SECONDS)
        return page.body

    async def room(self) -> Room | None:
        """How much room it has for conversations; None where it does not say."""
        tells = self.dialect.room
        return tells.read(await self._wire.site.get(tells.path)) if tells else None

    async def loaded(self) -> Sequence[LoadedModel] | None:
        """The models in its memory, and those it could load; None where it cannot be told to load any."""
        lifecycle = self.dialect.lifecycle
        return await lifecycle.loaded(self._wire.site) if lifecycle else None

    async def load(self, model: str, *, keep: bool = False) -> None:
        """Returns when it is loaded, or on its way. With `keep` it stays, where the engine can be told so."""
        self.dialect.must_have(model)
        await self._lifecycle().load(self._wire.site, model, keep)

    async def unload(self, model: str) -> None:
        await self._lifecycle().unload(self._wire.site, model)

    def _lifecycle(self) -> Lifecycle:
        if self.dialect.lifecycle is None:
            raise EngineFailed(Failure.BAD_REQUEST, _("This engine does not load or unload models when it is told to."))
        return self.dialect.lifecycle

    async def _ask(self, request: ChatRequest) -> aiohttp.ClientResponse:
        """The response to a chat request, with status 200 and nothing read of it."""
        body = self.dialect.body(request, priorities=self.priorities)
        headers = self.dialect.headers(request, self.session_header)
        try:
            async with asyncio.timeout(self.first_token_seconds):
                response = await self._wire.open("POST", self._chat, body, headers)
                if response.status != 200:
                    raise await self._wire.refusal(response)
        except (aiohttp.ClientError, ConnectionError) as error:  # one to connect in time is a TimeoutError, too
            kind = Failure.NONSENSE if isinstance(error, aiohttp.ClientResponseError) else Failure.UNREACHABLE
            raise failed(kind, self._wire.words(error)) from error
        except TimeoutError:
            raise _late(self.first_token_seconds) from None
        if response.content_type in ("text/html", "application/xhtml+xml"):  # a proxy's sign-in page also has 200
            response.close()
            raise failed(Failure.NONSENSE, f"200 with {response.content_type}")
        return response


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

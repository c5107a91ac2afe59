"""Server-sent events as a plain ASGI reply: headers at once, a heartbeat in silence, an end when the reader is gone."""

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from uuid import UUID

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

HEARTBEAT_SECONDS = 15
_LAST_WORD_SECONDS = 1

# A carriage return alone ends a line, too, for whoever reads a stream; what came after it would be lost.
_LINE_END = re.compile("\r\n|\r|\n")


@dataclass(frozen=True)
class Event:
    data: str
    id: str | None = None
    name: str | None = None

    def encode(self) -> bytes:
        lines = [f"event: {self.name}"] if self.name else []
        if self.id is not None:
            lines.append(f"id: {self.id}")
        lines += [f"data: {line}" for line in _LINE_END.split(self.data)]
        return ("\n".join(lines) + "\n\n").encode()


class OpenStreams:
    """The streams of this process by person, so that they end with the right to read them."""

    def __init__(self) -> None:
        self._ends: defaultdict[UUID, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def joined(self, person_id: UUID, has_ended: Callable[[], bool] = lambda: False) -> Iterator[asyncio.Event]:
        """Until the stream is left; the event is set when it has to end.

        `has_ended` is asked once: whether that came before the stream was open, but after the request was let in.
        """
        ended = asyncio.Event()
        if has_ended():
            ended.set()
        self._ends[person_id].add(ended)
        try:
            yield ended
        finally:
            self._ends[person_id].discard(ended)
            if not self._ends[person_id]:
                del self._ends[person_id]

    def __len__(self) -> int:
        return sum(map(len, self._ends.values()))

    def end_all_of(self, person_id: UUID) -> None:
        """After a sign-out, a new password, another role: whoever may still read comes back by itself."""
        for ended in self._ends.get(person_id, ()):
            ended.set()

    def end_all(self) -> None:
        for person_id in tuple(self._ends):
            self.end_all_of(person_id)


class EventStream(Response):
    """Sends `events` until they end, the browser goes away or `until` is set; then closes the iterator."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[Event],
        *,
        until: AbstractContextManager[asyncio.Event] | None = None,
        heartbeat: float = HEARTBEAT_SECONDS,
    ) -> None:
        super().__init__(headers={"cache-control": "no-store, no-transform", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._until = until or nullcontext(asyncio.Event())
        self._heartbeat = heartbeat
        self._said_at = 0.0  # time.monotonic()
        self._is_over = False

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        # A first byte at once, so that no proxy and no browser holds the headers until the first token.
        await self._say(send, b": open\n\n")
        with self._until as told:
            writer = asyncio.create_task(self._write(send))
            others = (
                asyncio.create_task(self._beat(send)),
                asyncio.create_task(_until_gone(receive)),
                asyncio.create_task(told.wait()),
            )
            try:
                await asyncio.wait({writer, *others}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (writer, *others):
                    task.cancel()
                results = await asyncio.gather(writer, *others, return_exceptions=True)
                await self._events.aclose()
        if told.is_set() and not self._is_over:
            with suppress(TimeoutError):  # whoever reads nothing is not waited for
                async with asyncio.timeout(_LAST_WORD_SECONDS):
                    await send({"type": "http.response.body", "body": b""})
        if isinstance(results[0], Exception):
            raise results[0]

    async def _write(self, send: Send) -> None:
        async for event in self._events:
            await self._say(send, event.encode())
        self._is_over = True
        await send({"type": "http.response.body", "body": b""})

    async def _beat(self, send: Send) -> None:
        """A comment after every silence, so that nobody on the way takes the stream for dead."""
        while not self._is_over:
            silence = time.monotonic() - self._said_at
            if silence >= self._heartbeat:
                await self._say(send, b": waiting\n\n")
                silence = 0.0
            await asyncio.sleep(self._heartbeat - silence)

    async def _say(self, send: Send, body: bytes) -> None:
        self._said_at = time.monotonic()
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

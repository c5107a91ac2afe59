"""Server-sent events as a plain ASGI reply: headers at once, a heartbeat in silence, an end when the reader is gone."""

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from uuid import UUID

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

HEARTBEAT_SECONDS = 15

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
    def joined(self, person_id: UUID) -> Iterator[asyncio.Event]:
        """Until the stream is left; the event is set when it has to end."""
        ended = asyncio.Event()
        self._ends[person_id].add(ended)
        try:
            yield ended
        finally:
            self._ends[person_id].discard(ended)
            if not self._ends[person_id]:
                del self._ends[person_id]

    def end_all_of(self, person_id: UUID) -> None:
        """After a sign-out, a new password, another role: whoever may still read comes back by itself."""
        for ended in self._ends.get(person_id, ()):
            ended.set()


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

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        # A first byte at once, so that no proxy and no browser holds the headers until the first token.
        await send({"type": "http.response.body", "body": b": open\n\n", "more_body": True})
        with self._until as told:
            writer = asyncio.create_task(self._write(send))
            gone = asyncio.create_task(_until_gone(receive))
            ended = asyncio.create_task(told.wait())
            try:
                await asyncio.wait({writer, gone, ended}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (writer, gone, ended):
                    task.cancel()
                results = await asyncio.gather(writer, gone, ended, return_exceptions=True)
                await self._events.aclose()
        if told.is_set():
            await send({"type": "http.response.body", "body": b""})
        if isinstance(results[0], Exception):
            raise results[0]

    async def _write(self, send: Send) -> None:
        upcoming = asyncio.ensure_future(anext(self._events, None))
        try:
            while True:
                done, _pending = await asyncio.wait({upcoming}, timeout=self._heartbeat)
                if not done:
                    await send({"type": "http.response.body", "body": b": waiting\n\n", "more_body": True})
                    continue
                event = upcoming.result()
                if event is None:
                    await send({"type": "http.response.body", "body": b""})
                    return
                await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
                upcoming = asyncio.ensure_future(anext(self._events, None))
        finally:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

"""Server-sent events as a plain ASGI reply: headers at once, a heartbeat in silence, an end when the reader is gone."""

import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass

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


class EventStream(Response):
    """Sends `events` until they end or the browser goes away; then the iterator is closed."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[Event], *, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        super().__init__(headers={"cache-control": "no-store, no-transform", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._heartbeat = heartbeat

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        # A first byte at once, so that no proxy and no browser holds the headers until the first token.
        await send({"type": "http.response.body", "body": b": open\n\n", "more_body": True})
        writer = asyncio.create_task(self._write(send))
        gone = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait({writer, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            writer.cancel()
            gone.cancel()
            results = await asyncio.gather(writer, gone, return_exceptions=True)
            await self._events.aclose()
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

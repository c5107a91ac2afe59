"""Plays back recorded responses over a real socket: same status, same headers, same body, cut where the test says."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent.parent / "fixtures" / "engines"


@dataclass(frozen=True)
class Recording:
    name: str
    request: dict[str, Any]
    head: bytes
    body: bytes

    @property
    def is_chunked(self) -> bool:
        return b"transfer-encoding: chunked" in self.head.lower()

    @property
    def status(self) -> int:
        return int(self.head.split()[1])


def recording(name: str) -> Recording:
    folder = FIXTURES / name
    head = (folder / "response.http").read_text().strip().replace("\n", "\r\n").encode()
    return Recording(name, json.loads((folder / "request.json").read_text()), head, (folder / "body").read_bytes())


def recordings(path: str) -> list[str]:
    """Names of all recordings of requests to `path`."""
    found = FIXTURES.glob("*/*/request.json")
    names = [str(file.parent.relative_to(FIXTURES)) for file in found if json.loads(file.read_text())["path"] == path]
    return sorted(names)


@asynccontextmanager
async def serving(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """The address of a server that treats every connection with `handle`; it leaves nothing behind."""
    handling: set[asyncio.Task[None] | None] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handling.add(asyncio.current_task())
        try:
            await handle(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(run, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    await asyncio.gather(*filter(None, handling), return_exceptions=True)


@asynccontextmanager
async def playing(recording: Recording, pieces: Sequence[bytes] | None = None) -> AsyncIterator[str]:
    """Answers everything with `recording`; each piece of the body is a write, and a chunk if it was chunked."""
    pieces = [recording.body] if pieces is None else pieces

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(recording.head + b"\r\n\r\n")
        for piece in pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if recording.is_chunked else piece)
            await writer.drain()
            await asyncio.sleep(0)
        if recording.is_chunked:
            writer.write(b"0\r\n\r\n")

    async with serving(answer) as url:
        yield url


async def read_request(reader: asyncio.StreamReader) -> str:
    """One request, to its end; gives its path."""
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(_content_length(head))
    return head.split()[1].decode()


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0

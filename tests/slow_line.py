"""A line to Postgres on which every reply takes longer, as between two data centres."""

import asyncio
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from sqlalchemy import make_url

_SOCKET = ".s.PGSQL.5432"


class SlowLine:
    """`async with SlowLine(url, folder) as line`: connect to `line.url`, set `line.seconds`, count `line.trips`."""

    def __init__(self, url: str, folder: Path) -> None:
        there = make_url(url).query["host"]
        assert isinstance(there, str)
        self._there = Path(there) / _SOCKET
        self._folder = folder
        self.url = url.partition("?")[0] + f"?host={quote(str(folder), safe='')}"
        self.seconds = 0.0
        self.trips = 0  # questions that were asked after the answer to the one before had come, on all connections
        self._lines: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._connected, self._folder / _SOCKET)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, there = await asyncio.open_unix_connection(self._there)
        waits = asyncio.Event()  # for an answer
        both = asyncio.gather(self._carry(reader, there, waits), self._carry(back, writer, waits, slow=True))
        task = asyncio.current_task()
        assert task
        self._lines.add(task)
        try:
            with suppress(
                ConnectionError, asyncio.CancelledError
            ):  # asyncio takes the second for a fault of the server
                await both
        finally:
            self._lines.discard(task)
            there.close()
            writer.close()

    @staticmethod
    def _deliver(target: asyncio.StreamWriter, data: bytes, waits: asyncio.Event) -> None:
        waits.clear()
        target.write(data)

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, waits: asyncio.Event, *, slow: bool = False
    ) -> None:
        """What belongs to one reply comes late together: it is the distance that is long, not the line that is thin."""
        loop = asyncio.get_running_loop()
        while data := await source.read(1 << 16):
            if slow:
                loop.call_later(self.seconds, self._deliver, target, data, waits)
                continue
            if not waits.is_set():
                waits.set()
                self.trips += 1
            target.write(data)
        if slow:
            await asyncio.sleep(self.seconds)
        target.close()

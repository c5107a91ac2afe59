"""Engines that people already run on this machine, found without a word being sent to them."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from backend.engines.addresses import is_loopback

_CONNECT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LocalServer:
    """Something listens where this program usually does; what it is, is only asked once an admin adds it."""

    name: str
    url: str


KNOWN = (LocalServer("Ollama", "http://127.0.0.1:11434"), LocalServer("LM Studio", "http://127.0.0.1:1234"))


def free(servers: Iterable[LocalServer], taken: Iterable[str]) -> tuple[LocalServer, ...]:
    """Those whose port is not that of an address in `taken`."""
    ports = {port for url in taken if (port := _local_port(url))}
    return tuple(server for server in servers if _local_port(server.url) not in ports)


async def find(servers: Sequence[LocalServer]) -> tuple[LocalServer, ...]:
    """Those that listen."""
    listening = await asyncio.gather(*(_listens(server.url) for server in servers))
    return tuple(server for server, up in zip(servers, listening, strict=True) if up)


async def _listens(url: str) -> bool:
    """Only the connection is made, and closed again."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


def _local_port(url: str) -> int | None:
    parts = urlsplit(url)
    return parts.port if is_loopback(parts.hostname or "") else None

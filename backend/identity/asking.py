"""Asking a provider over HTTP: five seconds, no redirects, small replies, and no address that a guard forbids.

A provider may live on the Internet or in the building, so there is no list of where it may. But link-local addresses
and the metadata services of clouds are refused however a name gets there, our own database and Parley itself too, and
what is sent has to be encrypted, except to this machine.
"""

import errno
import ipaddress
import json
import socket
from collections.abc import Mapping
from ipaddress import IPv6Address
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from backend.core.settings import Settings
from backend.engines.addresses import is_forbidden, is_loopback, resolve_name
from backend.identity.problems import ProviderAway

SECONDS: Final = 5.0
MAX_BYTES: Final = 512 * 1024


class _Guard(AbstractResolver):
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await resolve_name(host)
        if not found or any(is_forbidden(ip) for ip in found):
            raise PermissionError(errno.EACCES, "an address that Parley may not connect to")
        families = [socket.AF_INET6 if isinstance(ip, IPv6Address) else socket.AF_INET for ip in found]
        return [
            ResolveResult(hostname=host, host=str(ip), port=port, family=of_ip, proto=0, flags=socket.AI_NUMERICHOST)
            for ip, of_ip in zip(found, families, strict=True)
            if family in (socket.AF_UNSPEC, of_ip)
        ]

    async def close(self) -> None:
        """It holds nothing."""


class Asking:
    """`async with Asking(settings) as asking`. Failures are a `ProviderAway`; one that the provider means is data."""

    def __init__(self, settings: Settings, *, seconds: float = SECONDS) -> None:
        self._own = {(settings.host, settings.port)}
        self.seconds = seconds
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=_Guard(), limit_per_host=20),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._http is not None
        await self._http.close()

    async def get(self, url: str, *, bearer: str = "") -> dict[str, Any]:
        headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
        status, body = await self._ask("GET", url, headers=headers)
        if status != 200:
            raise ProviderAway(f"{_place(url)} answered {status}")
        return body

    async def post(
        self, url: str, form: Mapping[str, str], *, basic: tuple[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        headers = {"authorization": aiohttp.encode_basic_auth(*basic)} if basic else {}
        return await self._ask("POST", url, data=form, headers=headers)

    async def _ask(self, method: str, url: str, **options: Any) -> tuple[int, dict[str, Any]]:
        assert self._http is not None
        self._check(url)
        options["headers"] |= {"accept": "application/json"}
        options["timeout"] = aiohttp.ClientTimeout(total=self.seconds)
        try:
            async with self._http.request(method, url, allow_redirects=False, **options) as reply:
                body = await reply.content.read(MAX_BYTES + 1)
                while not reply.content.at_eof() and len(body) <= MAX_BYTES:
                    body += await reply.content.read(MAX_BYTES + 1 - len(body))
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise ProviderAway(f"{_place(url)} cannot be asked: {type(error).__name__}") from None
        if len(body) > MAX_BYTES:
            raise ProviderAway(f"{_place(url)} sent more than {MAX_BYTES} bytes")
        return reply.status, _object(body, url, reply.status)

    def _check(self, url: str) -> None:
        if wrong := wrong_address(url):
            raise ProviderAway(f"an address that is not asked: {wrong}")
        parts = urlsplit(url)
        host = parts.hostname or ""
        try:
            literal = ipaddress.ip_address(host)
        except ValueError:
            literal = None
        if literal is not None and is_forbidden(literal):  # the resolver is asked for names alone
            raise ProviderAway("an address that Parley may not connect to")
        if (host, parts.port) in self._own or (is_loopback(host) and ("127.0.0.1", parts.port) in self._own):
            raise ProviderAway("the address is that of Parley itself")


def wrong_address(url: str) -> str:
    """What is wrong with an address of a provider, in a few words, or nothing."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "it cannot be read"
    odd = "\\" in url or not url.isprintable() or " " in url or "@" in parts.netloc or port == 0
    if odd or not parts.hostname or parts.scheme not in ("http", "https") or parts.fragment:
        return "it cannot be read"
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        return "it begins with http://"
    return ""


def _object(body: bytes, url: str, status: int) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProviderAway(f"{_place(url)} answered {status} with something that is no JSON object")
    return found


def _place(url: str) -> str:
    """For the log: without the query."""
    return url.partition("?")[0][:300]

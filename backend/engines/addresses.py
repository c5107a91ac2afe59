"""Where an engine may live: only where the deployment says so, whatever a name resolves to.

This is the guard against server-side request forgery. Engines live on private networks, so a list of forbidden private
ranges cannot work: `PARLEY_ENGINE_ALLOWED` lists what may be reached, and nothing in the pages widens it. A few
addresses are refused even when listed: link-local ones and the metadata services of clouds hand out credentials, and no
engine lives there.

An address has one plain form. What any parser could read differently from another (user names, backslashes, `127.1`,
`0x7f.1`, percent signs) is refused rather than interpreted.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeAlias
from urllib.parse import urlsplit

from sqlalchemy.engine import make_url

from backend.core.errors import BadInput
from backend.core.i18n import _
from backend.core.settings import Settings

IP: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[IP]]]

_RESOLVE_SECONDS = 3.0
_MAX_LENGTH = 500
_PORTS = {"http": 80, "https": 443}

_FORM = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?(?P<path>(?:/[a-z0-9._~-]*)*)",
    re.IGNORECASE | re.ASCII,
)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)  # as the last label: the system would read an IPv4 address

_NEVER: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "::/128",
        "169.254.0.0/16",
        "fe80::/10",
        "224.0.0.0/4",
        "ff00::/8",
        "240.0.0.0/4",
        # Metadata services outside the link-local range: Alibaba, Azure, Oracle, AWS and Google over IPv6
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
        "fd00:ec2::254/128",
        "fd20:ce::254/128",
    )
)
_IPV4_AT_THE_END = tuple(ipaddress.IPv6Network(text) for text in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48"))
_LOOPBACK: tuple[Network, ...] = (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"))


@dataclass(frozen=True, slots=True)
class Address:
    """An engine's address in its plain form; that of a bare host without `/v1`."""

    scheme: str
    host: str  # lower case; an IPv6 address without brackets
    port: int
    path: str

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


@dataclass(frozen=True, slots=True)
class AllowList:
    """What the deployment lets engines be reached at. A port of None is every port."""

    names: frozenset[tuple[str, int | None]]
    networks: tuple[tuple[Network, int | None], ...]
    own: tuple[tuple[str, int], ...] = ()  # the database and Parley itself: never an engine

    def names_host(self, address: Address) -> bool:
        return (address.host, None) in self.names or (address.host, address.port) in self.names

    def names_port(self, address: Address) -> bool:
        """Whether the deployment meant this very server, so that nothing is explored by asking how it is."""
        return (address.host, address.port) in self.names or any(
            only == address.port and network.num_addresses == 1 and str(network.network_address) == address.host
            for network, only in self.networks
        )

    def allows(self, address: Address, found: Sequence[IP]) -> bool:
        """Whether every address that the host stands for may be reached."""
        return bool(found) and all(
            not is_forbidden(ip) and (self.names_host(address) or self._covers(ip, address.port)) for ip in found
        )

    def _covers(self, ip: IP, port: int) -> bool:
        spellings = {ip, _as_connected(ip)}
        return any(
            only in (None, port) and any(spelling in network for spelling in spellings)
            for network, only in self.networks
        )


def allow_list(settings: Settings) -> AllowList:
    """Raises BadInput where an entry of `PARLEY_ENGINE_ALLOWED` cannot be read."""
    names: set[tuple[str, int | None]] = set()
    networks: list[tuple[Network, int | None]] = []
    for entry in settings.engine_allowed or _default_entries(settings):
        host, port = _entry(entry)
        if isinstance(host, str):
            names.add((host, port))
        else:
            networks.append((host, port))
    return AllowList(frozenset(names), tuple(networks), tuple(_own(settings)))


def parse(text: str) -> Address:
    """Raises BadInput with a sentence for the field `url`."""
    form = _FORM.fullmatch(text.strip(" "))
    if form is None or len(text) > _MAX_LENGTH:
        raise _refused(_("Write the address like http://gpu-1:8000, without a user name."))
    scheme, host = form["scheme"].lower(), form["host"].lower()
    port = int(form["port"] or _PORTS[scheme])
    path = form["path"].rstrip("/")
    if path == "/v1":  # what the client adds to a bare host; after any other path it has to be written
        path = ""
    if not 0 < port <= 65535:
        raise _refused(_("A port is a number from 1 to 65535."))
    if "//" in path or any(segment in (".", "..") for segment in path.split("/")):
        raise _refused(_("Write the address like http://gpu-1:8000, without a user name."))
    if host.startswith("["):
        return Address(scheme, _literal(host[1:-1]), port, path)
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return Address(scheme, _literal(host), port, path)
    if len(host) > 253 or not all(_LABEL.fullmatch(label) and len(label) <= 63 for label in labels):
        raise _refused(_("“{host}” is not the name of a machine.").format(host=host))
    return Address(scheme, host, port, path)


async def check(address: Address, allowed: AllowList, resolve: Resolve | None = None) -> tuple[IP, ...]:
    """The addresses that were tested, all of which may be reached. Raises BadInput for the field `url`.

    Every refusal reads the same, whether the name exists, where it points and whether anything listens there: the
    answer must not help to explore a network.
    """
    found = await _look_up(address.host, resolve or resolve_name)
    if not found and allowed.names_host(address):
        raise _refused(_("There is no machine named “{host}” at the moment.").format(host=address.host))
    if not allowed.allows(address, found) or await _is_own(address, allowed, found, resolve or resolve_name):
        raise _refused(
            _("Parley may not connect to this address. PARLEY_ENGINE_ALLOWED lists what the deployment allows.")
        )
    return tuple(found)


async def resolve_name(host: str) -> Sequence[IP]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [ipaddress.ip_address(where[0]) for *_rest, where in found]


def is_outside(found: Iterable[IP]) -> bool:
    """Whether one of these lies on the public Internet."""
    return any(_as_connected(ip).is_global for ip in found)


async def is_on_site(url: str, resolve: Resolve | None = None) -> bool:
    """Whether no address of this engine lies on the public Internet; a name nobody knows counts as on site."""
    found = await _look_up(urlsplit(url).hostname or "", resolve or resolve_name)
    return not is_outside(found)


def is_forbidden(ip: IP) -> bool:
    """Whether nothing may be reached there, listed or not, also when `ip` only wraps such an address."""
    return any(each in network for each in (ip, *_inside(ip)) for network in _NEVER)


def origin(url: str) -> str:
    """Scheme, host and port: to whom a key is sent."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or _PORTS.get(parts.scheme)}"


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _refused(sentence: str) -> BadInput:
    return BadInput(sentence, fields={"url": sentence})


def _literal(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise _refused(_("Write numbers of an address in full, like 127.0.0.1.")) from None


def _as_connected(ip: IP) -> IP:
    """The system connects `::ffff:10.0.0.1` over IPv4."""
    return ip.ipv4_mapped or ip if isinstance(ip, IPv6Address) else ip


def _inside(ip: IP) -> Iterable[IPv4Address]:
    """IPv4 addresses that a gateway or the system would take out of an IPv6 one."""
    if not isinstance(ip, IPv6Address):
        return
    if ip.ipv4_mapped:
        yield ip.ipv4_mapped
    if ip.sixtofour:
        yield ip.sixtofour
    if ip.teredo:
        yield from ip.teredo
    last = int(ip) & 0xFFFF_FFFF
    if any(ip in network for network in _IPV4_AT_THE_END) and last > 1:
        yield IPv4Address(last)
    if int(ip) >> 32 & 0xFDFF_FFFF == 0x5EFE:  # ISATAP
        yield IPv4Address(last)


async def _look_up(host: str, resolve: Resolve) -> Sequence[IP]:
    try:
        return [ipaddress.ip_address(host)]
    except ValueError:
        pass
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            return await resolve(host)
    except (OSError, UnicodeError):  # a time-out is an OSError too
        return []


async def _is_own(address: Address, allowed: AllowList, found: Sequence[IP], resolve: Resolve) -> bool:
    """Whether this is our own database or Parley itself, by whatever name."""
    for host, port in allowed.own:
        if port != address.port:
            continue
        ours = {_as_connected(ip) for ip in await _look_up(host, resolve)}
        if host == address.host or any(_same_machine(_as_connected(ip), ours) for ip in found):
            return True
    return False


def _same_machine(ip: IP, ours: set[IP]) -> bool:
    return ip in ours or (ip.is_loopback and any(our.is_loopback or our.is_unspecified for our in ours))


def _default_entries(settings: Settings) -> list[str]:
    hosts = [urlsplit(engine.url).hostname or "" for engine in settings.engines]
    return [*(str(network) for network in _LOOPBACK), *(host for host in hosts if host)]


def _own(settings: Settings) -> Iterable[tuple[str, int]]:
    yield settings.host, settings.port
    if settings.database_url:
        database = make_url(settings.database_url)
        if database.host:
            yield database.host.lower(), database.port or 5432


def _entry(entry: str) -> tuple[str | Network, int | None]:
    """`host`, `host:port`, `10.0.0.5:8000`, `[::1]:8000` or `10.0.0.0/8`."""
    text = entry.strip().lower()
    try:
        return ipaddress.ip_network(text), None
    except ValueError:
        pass
    host, colon, digits = text.rpartition(":")
    if not colon:
        host = text
    try:
        address = parse(f"http://{host}" + (f":{digits}" if colon else ""))
        if address.path or (colon and not host):
            raise _refused(text)
    except BadInput:
        raise BadInput(
            _(
                "PARLEY_ENGINE_ALLOWED: “{entry}” is none of host, host:port, address or network like 10.0.0.0/8."
            ).format(entry=entry)
        ) from None
    port = address.port if colon else None
    try:
        return ipaddress.ip_network(address.host), port
    except ValueError:
        return address.host, port

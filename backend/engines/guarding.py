"""The guard of `addresses.py` at the moment of connecting: a name that points elsewhere by then leads nowhere."""

import errno
import socket
from ipaddress import IPv6Address

from aiohttp.abc import AbstractResolver, ResolveResult

from backend.core.errors import BadInput
from backend.engines import addresses
from backend.engines.addresses import Address, AllowList, Resolve


class GuardedResolver(AbstractResolver):
    """Hands out only addresses that have just been tested, so what is connected to is what was tested."""

    def __init__(self, allowed: AllowList, resolve: Resolve | None = None) -> None:
        self._allowed = allowed
        self._resolve = resolve

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        try:
            found = await addresses.check(Address("http", host.lower(), port, ""), self._allowed, self._resolve)
        except BadInput as refused:
            raise PermissionError(errno.EACCES, str(refused)) from refused
        families = [socket.AF_INET6 if isinstance(ip, IPv6Address) else socket.AF_INET for ip in found]
        return [
            ResolveResult(hostname=host, host=str(ip), port=port, family=of_ip, proto=0, flags=socket.AI_NUMERICHOST)
            for ip, of_ip in zip(found, families, strict=True)
            if family in (socket.AF_UNSPEC, of_ip)
        ]

    async def close(self) -> None:
        """It holds nothing."""

"""What was looked up for a secret, a cookie's or a program's, remembered for a few seconds.

What is remembered is dropped the moment it may not be so any more, in whichever process that happens: the transaction
that changes it says so on the bus. While the bus cannot be heard nothing is remembered. Whoever holds on to something,
a stream or a call, sees that it became doubtful, and asks again.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Generic, TypeVar
from uuid import UUID
from weakref import WeakSet

from backend.core.bus import Bus
from backend.core.clock import now
from backend.core.security import digest

LONGEST_SECONDS = 5.0


@dataclass(eq=False)
class Remembered:
    """Something of a person that held when it was looked up; `doubtful` once that may not be so any more."""

    person_id: UUID
    until: float
    doubtful: bool = field(default=False, kw_only=True)


Kind = TypeVar("Kind", bound=Remembered)


class Remembering(Generic[Kind]):
    """Of this process. Whoever makes one listens to what is said on the bus, and calls `drop`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._remembered: dict[bytes, Kind] = {}  # by the digest of the secret, in the order of being looked up
        self._given: WeakSet[Kind] = WeakSet()  # whoever holds one has to hear that it may have ended
        self._drops = 0

    def __len__(self) -> int:
        return len(self._remembered)

    async def find(self, secret: str, look_up: Callable[[], Awaitable[Kind | None]]) -> Kind | None:
        """What is remembered costs no SQL; else what `look_up` finds."""
        key = digest(secret)
        known = self._remembered.get(key)
        if known is not None and self._bus.connected and monotonic() < known.until:
            return known
        drops = self._drops
        found = await look_up()
        if found is None:
            return None
        self._given.add(found)
        if drops != self._drops:
            found.doubtful = True  # something ended while the row was read, and nobody can tell which came first
        elif self._bus.connected:
            self._remember(key, found)
        return found

    def drop(self, person_id: UUID | None = None, *, is_doubtful: bool = True) -> None:
        """Look up anew, with the next request, what is theirs; without a person everybody's."""
        self._drops += 1
        for key, known in tuple(self._remembered.items()):
            if person_id in (None, known.person_id):
                del self._remembered[key]
        if is_doubtful:
            for known in self._given:
                known.doubtful = known.doubtful or person_id in (None, known.person_id)

    def _remember(self, key: bytes, found: Kind) -> None:
        self._remembered.pop(key, None)
        self._remembered[key] = found
        moment = monotonic()
        while (oldest := next(iter(self._remembered))) != key and self._remembered[oldest].until <= moment:
            del self._remembered[oldest]


def until(end: datetime | None) -> float:
    """For how long it may be remembered what ends then: a few seconds, and not longer than it lasts."""
    left = (end - now()).total_seconds() if end else LONGEST_SECONDS
    return monotonic() + min(LONGEST_SECONDS, left)

"""Who is behind an API key, remembered for a few seconds: a program that asks often asks the database seldom.

As with sessions (`web/logins.py`), what is remembered is dropped the moment a key is revoked or its person changes, in
whichever process that happens, and nothing is remembered while the bus cannot be heard.
"""

from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from uuid import UUID
from weakref import WeakSet

from starlette.datastructures import Headers

from backend.accounts import sessions as logins
from backend.core.bus import Bus, Payload
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.i18n import _
from backend.core.security import digest
from backend.keys import service as keys
from backend.keys.models import ApiKey
from web.api.errors import InvalidKey

LONGEST_SECONDS = 5.0


@dataclass(slots=True, eq=False, weakref_slot=True)
class Caller:
    """A key that worked when it was looked up, and in whose name; `doubtful` once that may not be so any more."""

    person_id: UUID
    key_id: UUID
    remembered_until: float
    doubtful: bool = False


class Callers:
    """Looks keys up for the requests of this process."""

    def __init__(self, db: Sessions, bus: Bus) -> None:
        self._db = db
        self._bus = bus
        self._remembered: dict[bytes, Caller] = {}  # by the digest of the key, in the order of being looked up
        self._given: WeakSet[Caller] = WeakSet()  # whoever holds one has to hear that it may have ended
        self._drops = 0
        bus.on(logins.TOPIC, self._person_changed)
        bus.on(keys.TOPIC, self._revoked)
        bus.on_reconnect(self._doubt)

    def __len__(self) -> int:
        return len(self._remembered)

    async def of(self, headers: Headers) -> Caller:
        """Raises InvalidKey. Only this one header is looked at: a cookie says nothing here, nor does the address."""
        given = headers.getlist("authorization")
        if not given:
            raise InvalidKey(_("No API key was sent. Send yours as “Authorization: Bearer pk-parley-…”."))
        scheme, _space, secret = given[0].partition(" ")
        caller = None
        if len(given) == 1 and scheme.lower() == "bearer":
            caller = await self.find(secret.strip())
        if caller is None:
            raise InvalidKey(_("This API key does not work: it is wrong, has expired, or was revoked."))
        return caller

    async def find(self, secret: str) -> Caller | None:
        """None for a key that does not work. A remembered one costs no SQL, and neither does what cannot be a key."""
        if not keys.is_well_formed(secret):
            return None
        key = digest(secret)
        caller = self._remembered.get(key)
        if caller is not None and self._bus.connected and monotonic() < caller.remembered_until:
            return caller
        drops = self._drops
        async with self._db.as_worker() as session:
            row = await keys.find(session, secret)
        if row is None:
            return None
        caller = Caller(row.owner_id, row.id, monotonic() + _seconds_left(row, now()))
        self._given.add(caller)
        if drops != self._drops:
            caller.doubtful = True  # something ended while the row was read, and nobody can tell which came first
        elif self._bus.connected:
            self._remember(key, caller)
        return caller

    def _remember(self, key: bytes, caller: Caller) -> None:
        self._remembered.pop(key, None)
        self._remembered[key] = caller
        moment = monotonic()
        while (oldest := next(iter(self._remembered))) != key and self._remembered[oldest].remembered_until <= moment:
            del self._remembered[oldest]

    def _person_changed(self, message: Payload) -> None:
        self._doubt(UUID(message["user_id"]))

    def _revoked(self, message: Payload) -> None:
        self._doubt(UUID(message["owner_id"]))

    def _doubt(self, person_id: UUID | None = None) -> None:
        """Look up anew, with the next request, whose keys these are; without a person everybody's."""
        self._drops += 1
        for key, caller in tuple(self._remembered.items()):
            if person_id in (None, caller.person_id):
                del self._remembered[key]
        for caller in self._given:
            caller.doubtful = caller.doubtful or person_id in (None, caller.person_id)


def _seconds_left(row: ApiKey, moment: datetime) -> float:
    """Not longer than the key itself."""
    left = (row.expires_at - moment).total_seconds() if row.expires_at else LONGEST_SECONDS
    return min(LONGEST_SECONDS, left)

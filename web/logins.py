"""Who is behind a cookie, remembered for a few seconds: a page, its stream and its polls ask the database once.

What is remembered is dropped the moment a session ends or a person changes, in whichever process that happens: the
transaction that changes it says so on the bus (`backend/accounts/sessions.py`). While the bus cannot be heard nothing
is remembered.
"""

from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from uuid import UUID
from weakref import WeakSet

from backend.accounts import sessions
from backend.accounts.models import LoginSession
from backend.accounts.sessions import Lifetime
from backend.core.bus import Bus, Payload
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.security import digest
from web.streaming import OpenStreams
from web.viewer import Viewer

LONGEST_SECONDS = 5.0


@dataclass(slots=True, eq=False, weakref_slot=True)
class Login:
    """A browser that is signed in, without its row; `ended` once that may not be so any more."""

    viewer: Viewer
    time_zone: str | None
    remembered_until: float
    ended: bool = False


class Logins:
    """Looks sessions up for the requests of this process."""

    def __init__(self, db: Sessions, bus: Bus, streams: OpenStreams) -> None:
        self._db = db
        self._bus = bus
        self._streams = streams
        self._remembered: dict[bytes, Login] = {}  # by the digest of the token, in the order of being looked up
        self._given: WeakSet[Login] = WeakSet()  # whoever holds one has to hear that it ended
        self._drops = 0
        bus.on(sessions.TOPIC, self._changed)
        bus.on_reconnect(self._forget_all)

    def __len__(self) -> int:
        return len(self._remembered)

    async def find(self, token: str, lifetime: Lifetime) -> Login | None:
        """The session of this token; None when it ended, idled out or never was. A remembered one costs no SQL."""
        key = digest(token)
        login = self._remembered.get(key)
        if login is not None and self._bus.connected and monotonic() < login.remembered_until:
            return login
        drops = self._drops
        async with self._db.begin() as session:
            found = await sessions.find(session, token, lifetime)
        if found is None:
            return None
        login = Login(Viewer.of(found), found.time_zone, monotonic() + _seconds_left(found, lifetime, now()))
        self._given.add(login)
        if drops != self._drops:
            login.ended = True  # perhaps: something ended while the row was read, and nobody can tell which came first
        elif self._bus.connected:
            self._remember(key, login)
        return login

    def _remember(self, key: bytes, login: Login) -> None:
        self._remembered.pop(key, None)
        self._remembered[key] = login
        moment = monotonic()
        while (oldest := next(iter(self._remembered))) != key and self._remembered[oldest].remembered_until <= moment:
            del self._remembered[oldest]

    def _changed(self, message: Payload) -> None:
        self._drops += 1
        user_id, ended = UUID(message["user_id"]), message["ended"]
        for key, login in tuple(self._remembered.items()):
            if login.viewer.id == user_id:
                del self._remembered[key]
        if ended:
            for login in self._given:
                login.ended = login.ended or login.viewer.id == user_id
            self._streams.end_all_of(user_id)

    def _forget_all(self) -> None:
        """Whatever ended while the bus was away was not heard: all have to show that they may still read."""
        self._drops += 1
        self._remembered.clear()
        for login in self._given:
            login.ended = True
        self._streams.end_all()


def _seconds_left(row: LoginSession, lifetime: Lifetime, moment: datetime) -> float:
    """Not longer than the session itself would last without another click."""
    end = min(row.expires_at, row.last_seen_at + lifetime.idle)
    return min(LONGEST_SECONDS, (end - moment).total_seconds())

"""Who is behind a cookie, remembered for a few seconds: a page, its stream and its polls ask the database once.

Whatever ends a session or changes a person says so on the bus (`backend/accounts/sessions.py`).
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from backend.accounts import sessions
from backend.accounts.sessions import Lifetime
from backend.core.bus import Bus, Payload
from backend.core.clock import now
from backend.core.db import Sessions
from web.remembering import Remembered, Remembering, until
from web.streaming import OpenStreams
from web.viewer import Viewer


@dataclass(eq=False)
class Login(Remembered):
    """A browser that is signed in, without its row."""

    viewer: Viewer
    time_zone: str | None
    session_id: UUID
    authenticated_at: datetime

    @property
    def is_fresh(self) -> bool:
        """Whether dangerous pages may take it without asking again."""
        return self.authenticated_at > now() - sessions.FRESH_FOR


class Logins:
    """Looks sessions up for the requests of this process."""

    def __init__(self, db: Sessions, bus: Bus, streams: OpenStreams) -> None:
        self._db = db
        self._streams = streams
        self._known = Remembering[Login](bus)
        bus.on(sessions.TOPIC, self._changed)
        bus.on_reconnect(self._silence_ended)

    def __len__(self) -> int:
        return len(self._known)

    async def find(self, token: str, lifetime: Lifetime) -> Login | None:
        """The session of this token; None when it ended, idled out or never was."""

        async def look_up() -> Login | None:
            async with self._db.begin() as session:
                row = await sessions.find(session, token, lifetime)
            if row is None:
                return None
            viewer, end = Viewer.of(row), min(row.expires_at, row.last_seen_at + lifetime.idle)
            return Login(viewer.id, until(end), viewer, row.time_zone, row.id, row.authenticated_at)

        return await self._known.find(token, look_up)

    def _changed(self, message: Payload) -> None:
        user_id, ended = UUID(message["user_id"]), message["ended"]
        self._known.drop(user_id, is_doubtful=ended)
        if ended:
            self._streams.end_all_of(user_id)

    def _silence_ended(self) -> None:
        """Whatever ended while the bus was away was not heard: all have to show that they may still read."""
        self._known.drop()
        self._streams.end_all()

"""Who is behind an API key, remembered for a few seconds: a program that asks often asks the database seldom.

Whatever ends a key or changes its person says so on the bus: `backend/keys/service.py`, `backend/accounts/sessions.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from starlette.datastructures import Headers

from backend.accounts import sessions as logins
from backend.core.bus import Bus
from backend.core.db import Sessions
from backend.core.i18n import _
from backend.keys import service as keys
from backend.keys.models import ApiKey
from web.api.errors import InvalidKey
from web.remembering import Remembered, Remembering, until


@dataclass(eq=False)
class Caller(Remembered):
    """A key that works, in whose name, and for what."""

    key_id: UUID
    scopes: frozenset[str]
    model_ids: frozenset[UUID] | None  # None: all that its person may use

    def is_for(self, model_id: UUID) -> bool:
        return self.model_ids is None or model_id in self.model_ids


class Callers:
    """Looks keys up for the requests of this process."""

    def __init__(self, db: Sessions, bus: Bus) -> None:
        self._db = db
        self._known = Remembering[Caller](bus)
        self._on_doubt: list[Callable[[UUID | None], None]] = []
        bus.on(logins.TOPIC, lambda message: self._doubt(UUID(message["user_id"])))
        bus.on(keys.TOPIC, lambda message: self._doubt(UUID(message["owner_id"])))
        bus.on_reconnect(self._doubt)

    def __len__(self) -> int:
        return len(self._known)

    def on_doubt(self, callback: Callable[[UUID | None], None]) -> None:
        """Called with a person whose keys may have ended; with None it may be everybody's."""
        self._on_doubt.append(callback)

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
        """None for a key that does not work. What cannot be one costs no SQL."""
        if not keys.is_well_formed(secret):
            return None

        async def look_up() -> Caller | None:
            async with self._db.as_worker() as session:
                row = await keys.find(session, secret)
            return _caller(row) if row else None

        return await self._known.find(secret, look_up)

    def _doubt(self, person_id: UUID | None = None) -> None:
        self._known.drop(person_id)
        for callback in self._on_doubt:
            callback(person_id)


def _caller(row: ApiKey) -> Caller:
    models = None if row.model_ids is None else frozenset(row.model_ids)
    return Caller(row.owner_id, until(row.expires_at), row.id, frozenset(row.scopes), models)

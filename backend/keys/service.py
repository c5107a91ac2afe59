"""Making, finding and revoking keys. A key is 256 random bits behind a prefix, shown once; of it a digest is kept.

Every process remembers for some seconds which keys work (`web/api/callers.py`), so a revocation says so on the bus in
its own transaction. What is true of a key's person is said where it changes (`backend/accounts/sessions.py`).
"""

import re
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts import queries as people
from backend.audit import service as audit
from backend.audit.service import Action, Target
from backend.core.bus import notify
from backend.core.clock import now
from backend.core.errors import BadInput, Conflict, NotFound
from backend.core.i18n import _
from backend.core.security import digest, new_token
from backend.core.text import one_line
from backend.keys import queries
from backend.keys.models import ApiKey, Scope

TOPIC = "keys"  # {"owner_id": …}: one of theirs was revoked

PREFIX = "pk-parley-"
"""By which a scanner for secrets knows a key that was left in a repository."""

MOST = 20  # for each person
MOST_MODELS = 100  # that one key can be limited to

LIFETIMES = {"30": timedelta(days=30), "90": timedelta(days=90), "365": timedelta(days=365), "": None}
"""By what the form says; the last one has no end."""

_FORM = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]{43}")
_HINT = 4  # characters by which a person knows a key again
_TOUCH_EVERY = timedelta(minutes=1)


class Made(NamedTuple):
    key: ApiKey
    secret: str  # the only copy


async def make(
    session: AsyncSession,
    owner_id: UUID,
    name: str,
    lifetime: timedelta | None,
    *,
    scopes: Collection[Scope] = frozenset(Scope),
    model_ids: Collection[UUID] | None = None,
) -> Made:
    """For some models only, or for all that its owner may use. Raises BadInput with a sentence per field, Conflict for
    one key too many."""
    name = one_line(name, 80)
    wrong = {} if name else {"name": _("Please enter a name.")}
    if not scopes:
        wrong["scopes"] = _("A key has to be for something.")
    if model_ids is not None and not 0 < len(model_ids) <= MOST_MODELS:
        wrong["models"] = _("Choose at least one model, or all of them.")
    if wrong:
        raise BadInput(_("Please check the fields below."), fields=wrong)
    await session.scalar(people.held(owner_id))  # two at once count one after the other
    kept = await session.scalar(select(func.count()).select_from(queries.kept_by(owner_id).order_by(None).subquery()))
    if (kept or 0) >= MOST:
        raise Conflict(_("You have {count} keys, and more are not possible. Revoke one first.").format(count=kept))
    secret = PREFIX + new_token()
    key = ApiKey(
        owner_id=owner_id,
        name=name,
        digest=digest(secret),
        hint=secret[-_HINT:],
        scopes=[scope for scope in Scope if scope in scopes],
        model_ids=None if model_ids is None else sorted(model_ids),
        expires_at=now() + lifetime if lifetime else None,
    )
    session.add(key)
    await session.flush()
    await audit.record(session, Action.KEY_MADE, _target(key), after={"owner": owner_id, "expires": key.expires_at})
    return Made(key, secret)


async def revoke(session: AsyncSession, owner_id: UUID, key_id: UUID) -> ApiKey:
    """It works nowhere from the commit on, and what it asked for ends. Raises NotFound, also for somebody else's."""
    key = await session.scalar(queries.kept_by(owner_id).where(ApiKey.id == key_id))
    if key is None:
        raise NotFound(_("There is no such key."))
    key.revoked_at = now()
    await audit.record(session, Action.KEY_REVOKED, _target(key), before={"owner": owner_id})
    await notify(session, TOPIC, {"owner_id": str(owner_id)})
    return key


def _target(key: ApiKey) -> Target:
    return Target("key", key.id, key.name)


def is_well_formed(secret: str) -> bool:
    """Whether it could be one of ours: whatever else is sent in its place costs no statement."""
    return _FORM.fullmatch(secret) is not None


async def find(session: AsyncSession, secret: str) -> ApiKey | None:
    """The working key that `secret` is, in a session of a worker; that it was used is noted about once a minute."""
    moment = now()
    key = await session.scalar(queries.working(moment).where(ApiKey.digest == digest(secret)))
    if key is not None and (key.last_used_at is None or key.last_used_at <= moment - _TOUCH_EVERY):
        not_yet = or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at <= moment - _TOUCH_EVERY)
        await session.execute(update(ApiKey).where(ApiKey.id == key.id, not_yet).values(last_used_at=moment))
    return key


async def still_working(session: AsyncSession, key_ids: Iterable[UUID]) -> set[UUID]:
    """Those of `key_ids` that work, in a session of a worker."""
    found = await session.scalars(queries.working(now()).where(ApiKey.id.in_(list(key_ids))))
    return {key.id for key in found}

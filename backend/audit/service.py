"""Writing down what was done, in the transaction that does it: no record, no change.

`record` only notes; the rows are written as the last thing before the commit, with two statements for however many
records there are. So the one lock that orders the chain is held for the shortest time, and nobody who has it waits for
a row that somebody else holds. What a savepoint took back is not recorded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, Uuid, bindparam, delete, insert, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session as SyncSession

from backend.audit import chain
from backend.audit.acting import actor_of
from backend.audit.models import MAX_NAME, AuditEvent, AuditName
from backend.core.clock import now
from backend.core.db import before_commit
from backend.core.locks import key_of
from backend.core.text import one_line

LOCK: Final = "audit"

_BEGIN: Final = text("SELECT number, mac FROM audit_begin(:lock, :people)").bindparams(
    bindparam("lock", type_=BigInteger), bindparam("people", type_=ARRAY(Uuid))
)
"""Takes the lock, notes how the people are called now, and tells where the chain ends."""


class Action(StrEnum):
    """What was done: `<kind of thing>.<verb>`."""

    SIGNED_IN = "session.opened"
    SIGN_IN_FAILED = "session.refused"
    SIGNED_OUT = "session.closed"
    SESSION_ENDED = "session.ended"

    PERSON_ADDED = "person.added"
    PERSON_CHANGED = "person.changed"
    ROLE_CHANGED = "person.role_changed"
    PERSON_DISABLED = "person.disabled"
    PERSON_ENABLED = "person.enabled"
    LINK_MADE = "person.link_made"
    PASSWORD_SET = "person.password_set"  # noqa: S105 - the name of an action
    SECOND_FACTOR_ADDED = "person.second_factor_added"
    SECOND_FACTOR_REMOVED = "person.second_factor_removed"
    RECOVERY_CODES_MADE = "person.recovery_codes_made"
    RECOVERY_CODE_USED = "person.recovery_code_used"
    PASSKEY_ADDED = "person.passkey_added"
    PASSKEY_REMOVED = "person.passkey_removed"

    GROUP_ADDED = "group.added"
    GROUP_CHANGED = "group.changed"
    GROUP_REMOVED = "group.removed"
    MEMBER_ADDED = "group.member_added"
    MEMBER_REMOVED = "group.member_removed"

    ENGINE_ADDED = "engine.added"
    ENGINE_CHANGED = "engine.changed"
    ENGINE_ENABLED = "engine.enabled"
    ENGINE_DISABLED = "engine.disabled"
    ENGINE_DRAINED = "engine.drained"
    ENGINE_UNDRAINED = "engine.undrained"
    ENGINE_REMOVED = "engine.removed"
    ENGINE_LOAD = "engine.load_asked"
    ENGINE_UNLOAD = "engine.unload_asked"

    MODEL_CHANGED = "model.changed"
    MODEL_MOVED = "model.moved"
    MODEL_PUBLISHED = "model.published"
    MODEL_UNPUBLISHED = "model.unpublished"
    MODEL_LEFT = "model.left_engine"
    MODEL_PINNED = "model.pinned"
    MODEL_UNPINNED = "model.unpinned"
    DEFAULT_CHOSEN = "model.default_chosen"
    TRIAL_BEGUN = "model.trial_begun"
    TRIAL_CHANGED = "model.trial_changed"
    TRIAL_PROMOTED = "model.trial_promoted"
    TRIAL_ROLLED_BACK = "model.trial_rolled_back"
    TRIAL_RESTORED = "model.trial_restored"

    KEY_MADE = "key.made"
    KEY_REVOKED = "key.revoked"

    BENCH_STARTED = "bench.started"
    BENCH_CANCELLED = "bench.cancelled"
    BENCH_DELETED = "bench.deleted"

    COMPANY_NAMED = "settings.company_named"

    AUDIT_EXPORTED = "audit.exported"
    AUDIT_SHORTENED = "audit.shortened"

    PERSON_ERASED = "person.erased"
    DATA_EXPORTED = "person.exported"

    SIGNED_OUT_BY_PROVIDER = "session.ended_by_provider"
    PERSON_PROVISIONED = "person.provisioned"
    IDENTITY_LINKED = "person.identity_linked"
    IDENTITY_UNLINKED = "person.identity_unlinked"
    PROVIDER_ADDED = "provider.added"
    PROVIDER_CHANGED = "provider.changed"
    PROVIDER_REMOVED = "provider.removed"

    POLICY_CHANGED = "policy.changed"
    SIGN_IN_RULES_CHANGED = "policy.sign_in_changed"


@dataclass(frozen=True, slots=True)
class Target:
    """What it was done to. A person is named by id alone: their name lives where it can be erased."""

    kind: str
    id: UUID | None = None
    name: str = ""  # of what is not a person


def person(person_id: UUID) -> Target:
    return Target("person", person_id)


async def record(
    session: AsyncSession,
    action: Action,
    target: Target | None = None,
    *,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
) -> None:
    """Never give it chat text, secrets, names or addresses of people; `person` in what it is given is the id of one.

    Raises what the database raises (as the
    transaction is about to be committed): then nothing was done."""
    chain.keys()
    actor, target = actor_of(session), target or Target("")
    values = {
        "via": actor.via,
        "actor_id": actor.person_id,
        "address": one_line(actor.address, 64),
        "action": str(action),
        "target_kind": target.kind,
        "target_id": target.id,
        "target_name": one_line(target.name, MAX_NAME),
        "before": chain.storable(before),
        "after": chain.storable(after),
    }
    before_commit(session, _write, values)


def changes(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    """`before` and `after` for `record`, with only what differs; empty where nothing does."""
    differing = [name for name in after if before.get(name) != after[name]]
    if not differing:
        return {}
    return {
        "before": {name: before.get(name) for name in differing},
        "after": {name: after[name] for name in differing},
    }


def _write(session: SyncSession, records: list[dict[str, Any]]) -> None:
    """With what the transaction itself has done to people: who was just added has a name already."""
    session.flush()
    connection, keys = session.connection(), chain.keys()
    head = {"lock": key_of(LOCK), "people": list({person_id for record in records for person_id in _people(record)})}
    number, previous = connection.execute(_BEGIN, head).one()
    for record in records:
        number += 1
        record |= {"number": number, "at": now(), "key_id": keys.current}
        previous = record["mac"] = keys.mac(previous, record)
    connection.execute(insert(AuditEvent), records)


def _people(record: dict[str, Any]) -> Iterator[UUID]:
    """Who is in a record: who did it, and whom it was about."""
    if record["actor_id"]:
        yield record["actor_id"]
    if record["target_kind"] == "person" and record["target_id"]:
        yield record["target_id"]
    for side in ("before", "after"):
        if "person" in (record[side] or {}):
            yield UUID(record[side]["person"])


async def forget_name(session: AsyncSession, person_id: UUID) -> None:
    """What they did stays in the chain, under an id that leads to nobody."""
    await session.execute(delete(AuditName).where(AuditName.person_id == person_id))

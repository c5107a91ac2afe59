"""Selects over what was recorded."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, Select, or_, select
from sqlalchemy.orm import aliased

from backend.audit.models import AuditAnchor, AuditEvent, AuditName

actor_name, target_person = aliased(AuditName), aliased(AuditName)

#: An event, and how its actor and its target are called, if they are people who were not erased.
Named = Select[AuditEvent, AuditName, AuditName]

NEWEST_FIRST: Final = AuditEvent.number.desc()


@dataclass(frozen=True)
class Filter:
    """What somebody looks for; nothing set is everything."""

    person_id: UUID | None = None  # who did it, or to whom it was done
    action: str = ""  # `person.added`, or `person` for all of the kind
    target_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None
    words: str = ""  # in names, addresses and actions


def events(wanted: Filter) -> Named:
    query = select(AuditEvent, actor_name, target_person)
    query = query.outerjoin(actor_name, actor_name.person_id == AuditEvent.actor_id)
    query = query.outerjoin(target_person, target_person.person_id == AuditEvent.target_id)
    return query.where(*_conditions(wanted))


def _conditions(wanted: Filter) -> Sequence[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.person_id:
        in_it = (side["person"].astext == str(wanted.person_id) for side in (AuditEvent.before, AuditEvent.after))
        found.append(or_(AuditEvent.actor_id == wanted.person_id, AuditEvent.target_id == wanted.person_id, *in_it))
    if wanted.action:
        kind = AuditEvent.action.startswith(f"{wanted.action}.", autoescape=True)
        found.append(AuditEvent.action == wanted.action if "." in wanted.action else kind)
    if wanted.target_id:
        found.append(AuditEvent.target_id == wanted.target_id)
    if wanted.since:
        found.append(AuditEvent.at >= wanted.since)
    if wanted.until:
        found.append(AuditEvent.at < wanted.until)
    if wanted.words:
        searched = (
            AuditEvent.action,
            AuditEvent.target_name,
            AuditEvent.address,
            *(column for names in (actor_name, target_person) for column in (names.name, names.email)),
        )
        found.append(or_(*(column.icontains(wanted.words, autoescape=True) for column in searched)))
    return found


def actions() -> Select[str]:
    return select(AuditEvent.action).distinct().order_by(AuditEvent.action)


def newest() -> Select[AuditEvent]:
    return select(AuditEvent).order_by(NEWEST_FIRST).limit(1)


def anchors() -> Select[AuditAnchor]:
    return select(AuditAnchor).order_by(AuditAnchor.number.desc())

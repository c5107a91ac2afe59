"""What was recorded, as lines for another system: JSONL with everything in it, CSV for a table, syslog for a SIEM.

Oldest first, in batches of one short transaction each, so that a slow reader holds nothing; and up to the record that
says who took it along.
"""

import csv
import io
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from enum import StrEnum
from typing import Any, Final

import orjson
from sqlalchemy import Row

from backend.audit import queries, verifying
from backend.audit.acting import Actor, act_as
from backend.audit.models import AuditEvent, AuditName
from backend.audit.queries import Filter
from backend.audit.service import Action, record
from backend.core.db import Sessions

_AT_ONCE = 500

COLUMNS: Final = (
    "number", "at", "via", "actor_id", "actor_name", "actor_email", "address", "action", "target_kind", "target_id",
    "target_name", "target_email", "before", "after", "key_id", "mac",
)  # fmt: skip


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    SYSLOG = "syslog"


MEDIA_TYPES: Final = {
    Format.JSONL: "application/jsonl",
    Format.CSV: "text/csv; charset=utf-8",
    Format.SYSLOG: "text/plain; charset=utf-8",
}

Found = Row[AuditEvent, AuditName, AuditName]


@dataclass(frozen=True)
class Wanted:
    format: Format
    filter: Filter = field(default_factory=Filter)
    host: str = "-"  # by which a SIEM knows us


async def begin(sessions: Sessions, wanted: Wanted, actor: Actor) -> int:
    """Record that it is taken along; up to which record it goes."""
    async with sessions.begin() as session:
        act_as(session, actor)
        up_to = (await verifying.head(session)).number
        asked = {name: value for name, value in vars(wanted.filter).items() if value}
        words = asked.pop("words", None)  # perhaps somebody's name
        told = asked | {"format": wanted.format} | ({"words": True} if words else {})
        await record(session, Action.AUDIT_EXPORTED, after=told)
    return up_to


async def lines(sessions: Sessions, wanted: Wanted, up_to: int) -> AsyncIterator[str]:
    if wanted.format is Format.CSV:
        yield _csv([COLUMNS])
    last = 0
    while True:
        query = queries.events(wanted.filter).where(AuditEvent.number > last, AuditEvent.number <= up_to)
        async with sessions.begin() as session:
            rows = (await session.execute(query.order_by(AuditEvent.number).limit(_AT_ONCE))).all()
        if not rows:
            return
        yield _written(rows, wanted)
        last = rows[-1][0].number


def _written(rows: Sequence[Found], wanted: Wanted) -> str:
    match wanted.format:
        case Format.JSONL:
            return "".join(orjson.dumps(as_values(row)).decode() + "\n" for row in rows)
        case Format.CSV:
            return _csv([[_cell(value) for value in as_values(row).values()] for row in rows])
        case Format.SYSLOG:
            return "".join(syslog_line(as_values(row), wanted.host) + "\n" for row in rows)


def as_values(row: Found) -> dict[str, Any]:
    """With the names of people as they are known now; with key and seal, so that somebody else can verify it."""
    event: AuditEvent = row[0]
    actor: AuditName | None = row[1]
    target: AuditName | None = row[2]
    person = event.target_kind == "person"
    values = (
        event.number, event.at.astimezone(UTC).isoformat(timespec="microseconds"), event.via, event.actor_id,
        actor.name if actor else "", actor.email if actor else "", event.address, event.action,
        event.target_kind, event.target_id, (target.name if target else "") if person else event.target_name,
        target.email if target and person else "", event.before, event.after, event.key_id.hex(), event.mac.hex(),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _csv(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _cell(value: object) -> str:
    """What a spreadsheet would take for a formula begins with an apostrophe, which makes it a text."""
    if value is None:
        return ""
    text = orjson.dumps(value).decode() if isinstance(value, dict) else str(value)
    return f"'{text}" if text.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text


_LOG_AUDIT_INFO: Final = 13 * 8 + 6  # facility and severity of RFC 5424
_ENTERPRISE: Final = "parley@32473"  # the number that is free for examples: we have none of our own
_IN_DATA: Final = ("via", "actor_id", "actor_name", "actor_email", "address", "target_kind", "target_id", "target_name")


def syslog_line(values: dict[str, Any], host: str) -> str:
    """RFC 5424; before and after are the message, as JSON."""
    data = {"number": values["number"]} | {name: values[name] for name in _IN_DATA if values[name]}
    written = " ".join(f'{name}="{_escaped(str(value))}"' for name, value in data.items())
    message = orjson.dumps({side: values[side] for side in ("before", "after") if values[side]}).decode()
    moment = values["at"].replace("+00:00", "Z")
    header = f"<{_LOG_AUDIT_INFO}>1 {moment} {host or '-'} parley - {values['action'][:32]}"
    return f"{header} [{_ENTERPRISE} {written}] {message}"


def _escaped(value: str) -> str:
    for character in ("\\", '"', "]"):
        value = value.replace(character, f"\\{character}")
    return " ".join(value.split())

"""Whether the chain is as it was written: finds what was edited, removed, moved, cut off or put back from a backup.

The end of a chain cannot prove that nothing followed it. For that its head is told to the outside once an hour, in the
log of whoever runs Parley, and `verify` takes the last one that was seen there.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Self

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from backend.audit import queries
from backend.audit.chain import START, Keys
from backend.audit.models import AuditEvent
from backend.core.errors import BadInput

_AT_ONCE = 2_000
_MOST_FAULTS = 20
_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Head:
    """Where a chain ends; `str()` is what the log and the command line say."""

    number: int
    mac: bytes

    def __str__(self) -> str:
        return f"{self.number}:{self.mac.hex()}"

    @classmethod
    def parse(cls, said: str) -> Self:
        """Raises BadInput."""
        found = _HEAD.fullmatch(said.strip())
        if not found:
            raise BadInput("A head is written as NUMBER:64 hexadecimal digits, as `parley audit head` prints it.")
        return cls(int(found[1]), bytes.fromhex(found[2]))


@dataclass(slots=True)
class Verified:
    """What was found; good if there is no fault."""

    first: int = 0  # 0 where there are no records
    head: Head = Head(0, START)
    count: int = 0
    faults: list[str] = field(default_factory=list)

    def blame(self, sentence: str) -> None:
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(sentence)


async def head(session: AsyncSession) -> Head:
    newest = await session.scalar(queries.newest()) or await session.scalar(queries.anchors().limit(1))
    return Head(newest.number, newest.mac) if newest else Head(0, START)


async def verify(session: AsyncSession, keys: Keys, known: Head | None = None) -> Verified:
    """In a session in which nothing was done yet: everything is read as it was at one moment."""
    await session.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    found = Verified()
    found.head = await _beginning(session, keys, found)
    seen = known is None or known == found.head
    async for event in _everything(session):
        found.first = found.first or event.number
        found.count += 1
        _check(event, keys, found)
        found.head = Head(event.number, event.mac)
        if known and event.number == known.number:
            seen = event.mac == known.mac
    if known and not seen:
        found.blame(_lost(known, found))
    return found


async def _beginning(session: AsyncSession, keys: Keys, found: Verified) -> Head:
    """What the first record has to follow: nothing, or the youngest anchor."""
    anchor = await session.scalar(queries.anchors().limit(1))
    if anchor is None:
        return Head(0, START)
    if not keys.signed_anchor(anchor.key_id, anchor.signature, anchor.number, anchor.mac):
        found.blame(f"The anchor at record {anchor.number} was not made by this deployment.")
    return Head(anchor.number, anchor.mac)


def _check(event: AuditEvent, keys: Keys, found: Verified) -> None:
    """One that is wrong is told once: the next is compared with what is stored of it."""
    last = found.head
    if event.number > last.number + 1:
        missing = f"{last.number + 1} to {event.number - 1}" if event.number > last.number + 2 else f"{last.number + 1}"
        found.blame(f"Missing: record {missing}.")
    elif event.number <= last.number:
        found.blame(f"Record {event.number} should have been removed with those before it.")
    try:
        holds = keys.holds(event.key_id, event.mac, last.mac, as_record(event))
    except KeyError:
        found.blame(f"Record {event.number} was made with a secret that is not among PARLEY_SECRET_KEY.")
        return
    if not holds and event.number == last.number + 1:
        found.blame(f"Record {event.number} was changed, or does not follow the one before it.")


def as_record(event: AuditEvent) -> dict[str, Any]:
    return {column.key: getattr(event, column.key) for column in AuditEvent.__table__.columns}


def _lost(known: Head, found: Verified) -> str:
    if found.head.number < known.number:
        return f"The end is missing: record {known.number} was there, and the last one is now {found.head.number}."
    return f"Record {known.number} is not the one that was there: this is another history, as after an old backup."


async def _everything(session: AsyncSession) -> AsyncIterator[AuditEvent]:
    last = -1
    while True:
        query = select(AuditEvent).where(AuditEvent.number > last).order_by(AuditEvent.number).limit(_AT_ONCE)
        rows = (await session.scalars(query)).all()
        for row in rows:
            yield row
        if len(rows) < _AT_ONCE:
            return
        last = rows[-1].number
        session.expunge_all()

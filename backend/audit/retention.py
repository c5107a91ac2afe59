"""Keeping the audit: its head told to the log every hour, its oldest part removed when a deployment wants that.

Only the beginning of the chain can be removed. Where it begins from then on is said by a signed anchor, and the removal
is a record itself.
"""

import logging
from datetime import datetime, timedelta

from sqlalchemy import delete, exists, func, or_, select, text

from backend.audit import chain, service, verifying
from backend.audit.models import AuditEvent, AuditName
from backend.audit.service import Action
from backend.core import locks, stored
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.locks import only_one

log = logging.getLogger(__name__)

TELL_EVERY = timedelta(hours=1)
_AT_ONCE = 20_000  # records that one transaction removes

_TOLD = "audit head told at"


async def keep(db: Sessions, days: int) -> None:
    """What is due now, however many processes ask for it. 0 days is for ever."""
    await tell_head(db)
    if days:
        while await shorten(db, now() - timedelta(days=days)) == _AT_ONCE:
            pass


async def tell_head(db: Sessions) -> None:
    """To the log, once an hour over all processes: an anchor outside of the database."""
    async with only_one(db, "telling the head of the audit") as session:
        if session is None:
            return
        told = await stored.read(session, _TOLD)
        # A minute less, so that a loop of one hour does not skip every other turn.
        if told and datetime.fromisoformat(told) > now() - TELL_EVERY + timedelta(minutes=1):
            return
        await stored.write(session, _TOLD, now().isoformat())
        head = await verifying.head(session)
    log.info("head of the audit: %s", head)


async def shorten(db: Sessions, before: datetime) -> int:
    """Remove records that are older, and names that no record leads to any more; how many records it were."""
    async with db.begin() as session:
        await locks.hold(session, service.LOCK)
        younger = select(func.min(AuditEvent.number)).where(AuditEvent.at >= before).scalar_subquery()
        first = select(func.min(AuditEvent.number)).scalar_subquery()
        last = select(AuditEvent.number, AuditEvent.mac).where(
            AuditEvent.at < before,
            or_(younger.is_(None), AuditEvent.number < younger),
            AuditEvent.number < first + _AT_ONCE,
        )
        row = (await session.execute(last.order_by(AuditEvent.number.desc()).limit(1))).one_or_none()
        if row is None:
            return 0
        keys = chain.keys()
        removed = await session.scalar(
            text("SELECT audit_forget(:number, :mac, :at, :key_id, :signature)"),
            {
                "number": row.number,
                "mac": row.mac,
                "at": now(),
                "key_id": keys.current,
                "signature": keys.sign_anchor(row.number, row.mac),
            },
        )
        led_to = or_(AuditEvent.actor_id == AuditName.person_id, AuditEvent.target_id == AuditName.person_id)
        await session.execute(delete(AuditName).where(~exists().where(led_to)))
        await service.record(session, Action.AUDIT_SHORTENED, after={"up_to": row.number, "records": removed})
    return int(removed or 0)

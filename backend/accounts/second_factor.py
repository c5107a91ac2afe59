"""The second factor: a code from an app on the person's telephone (TOTP, RFC 6238), or a recovery code.

The secret that app and server share is sealed, bound to its person's row. A code is good for the half minute it is
shown and the one before and after, once. Ten recovery codes stand in for a lost telephone; of them digests are stored.
"""

import base64
import hmac
import logging
import re
import secrets
from datetime import datetime
from urllib.parse import quote, urlencode
from uuid import UUID

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.models import RecoveryCode, SecondFactor, User
from backend.audit import service as audit
from backend.audit.service import Action
from backend.core.clock import now
from backend.core.errors import Conflict
from backend.core.i18n import _
from backend.core.security import Sealer, Unreadable, digest

log = logging.getLogger(__name__)

STEP_SECONDS = 30
RECOVERY_CODES = 10
_DIGITS = 6
_SECRET_BYTES = 20
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # without those that are taken for one another
_GROUPS, _GROUP = 4, 4


def code_at(secret: bytes, step: int) -> str:
    """RFC 4226: what an app shows in this half minute."""
    mac = hmac.digest(secret, step.to_bytes(8, "big"), "sha1")
    offset = mac[-1] & 15
    number = int.from_bytes(mac[offset : offset + 4], "big") & 0x7FFFFFFF
    return str(number % 10**_DIGITS).zfill(_DIGITS)


def step_of(moment: datetime) -> int:
    return int(moment.timestamp()) // STEP_SECONDS


def matching_step(secret: bytes, code: str, moment: datetime, last: int | None) -> int | None:
    """The half minute for which this is the code, unless that one or a later one was used; all are compared."""
    around = step_of(moment)
    found = None
    for step in (around - 1, around, around + 1):
        is_right = hmac.compare_digest(code_at(secret, step).encode(), code.encode("utf-8", "replace"))
        if is_right and (last is None or step > last):
            found = step
    return found


def address_for_app(secret: str, *, email: str, company: str) -> str:
    """What the picture says to the app."""
    issuer = f"Parley {company}".strip()
    asked = urlencode({"secret": secret, "issuer": issuer, "digits": _DIGITS, "period": STEP_SECONDS}, quote_via=quote)
    return f"otpauth://totp/{quote(f'{issuer}:{email}', safe='')}?{asked}"


async def is_set(session: AsyncSession, person_id: UUID) -> bool:
    confirmed = select(SecondFactor.user_id).where(
        SecondFactor.user_id == person_id, SecondFactor.confirmed_at.is_not(None)
    )
    return await session.scalar(confirmed) is not None


async def begin(session: AsyncSession, sealer: Sealer, person_id: UUID) -> str:
    """The secret to enter into the app: the same one until a code of it has been right. Raises Conflict after that."""
    secret = base64.b32encode(secrets.token_bytes(_SECRET_BYTES)).decode()
    new = insert(SecondFactor).values(user_id=person_id, sealed=sealer.seal(secret, _place(person_id)))
    await session.execute(new.on_conflict_do_nothing())
    row = await _held(session, person_id)
    if row is None or row.confirmed_at is not None:
        raise Conflict(_("There is a second factor already. Remove it before you add another one."))
    try:
        return sealer.open(row.sealed, _place(person_id))
    except Unreadable:  # sealed with a secret that is gone, and never used
        row.sealed = sealer.seal(secret, _place(person_id))
        return secret


async def confirm(session: AsyncSession, sealer: Sealer, person: User, code: str) -> list[str] | None:
    """From now on it is asked for; the recovery codes, or None where the code is wrong."""
    row = await _held(session, person.id)
    if row is None or row.confirmed_at is not None or not _takes(row, sealer, code):
        return None
    row.confirmed_at = now()
    await audit.record(session, Action.SECOND_FACTOR_ADDED, audit.person(person.id))
    return await new_recovery_codes(session, person)


async def check(session: AsyncSession, sealer: Sealer, person: User, code: str) -> bool:
    """Whether the code is right, of the app or for recovery; it is used up by that."""
    row = await _held(session, person.id)
    if row is None or row.confirmed_at is None:
        return False
    return _takes(row, sealer, code) or await _takes_recovery_code(session, person, code)


async def remove(session: AsyncSession, person: User) -> bool:
    """False where there was none."""
    await session.execute(delete(RecoveryCode).where(RecoveryCode.user_id == person.id))
    gone = delete(SecondFactor).where(SecondFactor.user_id == person.id).returning(SecondFactor.confirmed_at)
    was_set = await session.scalar(gone) is not None
    if was_set:
        await audit.record(session, Action.SECOND_FACTOR_REMOVED, audit.person(person.id))
    return was_set


async def new_recovery_codes(session: AsyncSession, person: User) -> list[str]:
    """Shown once; earlier ones stop working."""
    await session.execute(delete(RecoveryCode).where(RecoveryCode.user_id == person.id))
    codes = [_new_code() for _number in range(RECOVERY_CODES)]
    session.add_all([RecoveryCode(user_id=person.id, digest=_digest(person.id, code)) for code in codes])
    await audit.record(session, Action.RECOVERY_CODES_MADE, audit.person(person.id))
    return codes


async def recovery_codes_left(session: AsyncSession, person_id: UUID) -> int:
    unused = select(func.count()).where(RecoveryCode.user_id == person_id, RecoveryCode.used_at.is_(None))
    return await session.scalar(unused) or 0


def _takes(row: SecondFactor, sealer: Sealer, code: str) -> bool:
    """Sealed anew each time, so that an old master secret is needed no longer than until everybody has come by."""
    try:
        secret = sealer.open(row.sealed, _place(row.user_id))
    except Unreadable:
        log.warning("a second factor cannot be opened: it was sealed with another secret key")
        return False
    step = matching_step(base64.b32decode(secret), re.sub(r"\s", "", code), now(), row.last_step)
    if step is None:
        return False
    row.last_step = step
    row.sealed = sealer.seal(secret, _place(row.user_id))
    return True


async def _takes_recovery_code(session: AsyncSession, person: User, code: str) -> bool:
    used = await session.scalar(
        update(RecoveryCode)
        .where(
            RecoveryCode.user_id == person.id,
            RecoveryCode.digest == _digest(person.id, code),
            RecoveryCode.used_at.is_(None),
        )
        .values(used_at=now())
        .returning(RecoveryCode.id)
    )
    if used is None:
        return False
    await audit.record(session, Action.RECOVERY_CODE_USED, audit.person(person.id))
    return True


async def _held(session: AsyncSession, person_id: UUID) -> SecondFactor | None:
    """Nobody else uses a code of theirs meanwhile."""
    row = select(SecondFactor).where(SecondFactor.user_id == person_id).with_for_update()
    return await session.scalar(row.execution_options(populate_existing=True))


def _new_code() -> str:
    return "-".join("".join(secrets.choice(_LETTERS) for _letter in range(_GROUP)) for _group in range(_GROUPS))


def _digest(person_id: UUID, code: str) -> bytes:
    """However it was typed; two people may have the same one."""
    return digest(f"{person_id} {re.sub(r'[^a-z0-9]', '', code.lower())}")


def _place(person_id: UUID) -> str:
    return f"second_factors|{person_id}|sealed"

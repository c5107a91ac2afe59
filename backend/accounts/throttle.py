"""Slows down guessing at one account, without ever locking it for longer than a quarter of an hour.

A try is counted before the password is looked at and forgiven when it was right, so that a hundred tries sent at the
same moment count as a hundred. Addresses that belong to nobody are counted alike.
"""

from datetime import timedelta

from sqlalchemy import case, delete, func, literal, or_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.models import SignInThrottle, normal_email
from backend.core.clock import now
from backend.core.security import digest

FREE_TRIES = 5
LONGEST_WAIT = timedelta(minutes=15)
_FORGET_AFTER = timedelta(hours=24)
_DOUBLINGS = 10  # 2 to this power is above the longest wait; without a bound the power itself would overflow one day


async def admit(session: AsyncSession, email: str) -> bool:
    """Count one try; False while the account is being slowed down.

    After the free tries each further one has to wait twice as long as the one before: 2, 4, 8 … seconds.
    """
    moment = now()
    row = SignInThrottle
    failures = case((row.last_failure_at < moment - _FORGET_AFTER, 1), else_=row.failures + 1)
    seconds = func.least(LONGEST_WAIT.total_seconds(), func.power(2, func.least(_DOUBLINGS, failures - FREE_TRIES + 1)))
    try_counted = insert(row).values(account=_key(email), failures=1, last_failure_at=moment)
    try_counted = try_counted.on_conflict_do_update(
        index_elements=[row.account],
        set_={
            "failures": failures,
            "last_failure_at": moment,
            "blocked_until": case(
                (failures >= FREE_TRIES, literal(moment) + func.make_interval(0, 0, 0, 0, 0, 0, seconds)), else_=None
            ),
        },
        where=or_(row.blocked_until.is_(None), row.blocked_until <= moment),
    )
    return await session.scalar(try_counted.returning(row.failures)) is not None


async def forgive(session: AsyncSession, email: str) -> None:
    await session.execute(delete(SignInThrottle).where(SignInThrottle.account == _key(email)))


async def delete_old(session: AsyncSession) -> None:
    await session.execute(delete(SignInThrottle).where(SignInThrottle.last_failure_at < now() - _FORGET_AFTER))


def _key(email: str) -> bytes:
    return digest(normal_email(email))

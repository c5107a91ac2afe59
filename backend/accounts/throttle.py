"""Slows down guessing, and never locks anybody out: the rules count per account *and network*, so a stranger who
guesses at somebody's password does not slow them down where they sit, nor their office.

From one network (an IPv4 address, an IPv6 /64) an account may be tried five times a minute and twenty times an hour.
All networks together may try it a hundred times a day; after that each further try waits twice as long as the one
before. That last rule does not bind where its person signed in during the last months. No wait is longer than a
quarter of an hour.

A try is counted before the password is looked at and forgiven when it was right, so that a hundred tries sent at the
same moment count as a hundred. Addresses that belong to nobody are counted alike. Neither an address of a person nor
one of a network is stored, only digests.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network

from sqlalchemy import delete, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.models import SignInThrottle, normal_email
from backend.core import locks
from backend.core.clock import now
from backend.core.security import digest

PER_MINUTE = 5
PER_HOUR = 20
PER_DAY = 100
LONGEST_WAIT = timedelta(minutes=15)
_KNOWN_FOR = timedelta(days=90)
_DAY = timedelta(hours=24)
_DOUBLINGS = 10  # 2 to this power is above the longest wait


async def admit(session: AsyncSession, account: str, address: str) -> bool:
    """Count one try; False, and not counted, while this account is being slowed down for this network."""
    moment = now()
    here, everywhere = await _rows(session, account, address)
    knows_the_place = here.known_until is not None and here.known_until > moment
    waits = [_wait_here(here.recent, moment)]
    if not knows_the_place:
        waits.append(_wait_everywhere(everywhere, moment))
    if max(waits) > moment:
        return False
    here.recent = [*(each for each in here.recent if each > moment - timedelta(hours=1)), moment][-PER_HOUR:]
    everywhere.tries = everywhere.tries + 1 if everywhere.last_try_at > moment - _DAY else 1
    here.last_try_at = everywhere.last_try_at = moment
    return True


async def forgive(session: AsyncSession, account: str, address: str) -> None:
    """It was the right password: the tries from here are forgotten, and the place is known from now on."""
    here, everywhere = await _rows(session, account, address)
    everywhere.tries = max(0, everywhere.tries - len(here.recent))
    here.recent = []
    here.known_until = now() + _KNOWN_FOR


async def forget(session: AsyncSession, account: str) -> None:
    """Begin anew everywhere, for somebody who has a new password."""
    await locks.hold(session, _lock(account))
    await session.execute(delete(SignInThrottle).where(SignInThrottle.account == _account(account)))


async def delete_old(session: AsyncSession) -> None:
    moment = now()
    unknown = or_(SignInThrottle.known_until.is_(None), SignInThrottle.known_until < moment)
    await session.execute(delete(SignInThrottle).where(SignInThrottle.last_try_at < moment - _DAY, unknown))


def network_of(address: str) -> str:
    """Whom an address stands for: itself, and for IPv6 the network that one household or office is given."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ip_network((parsed, 64), strict=False))


def _wait_here(recent: Sequence[datetime], moment: datetime) -> datetime:
    """When the next try from this network is due."""
    due = moment
    if len(recent) >= PER_MINUTE:
        due = max(due, recent[-PER_MINUTE] + timedelta(minutes=1))
    if len(recent) >= PER_HOUR:
        due = max(due, min(recent[-PER_HOUR] + timedelta(hours=1), recent[-1] + LONGEST_WAIT))
    return due


def _wait_everywhere(row: SignInThrottle, moment: datetime) -> datetime:
    if row.tries < PER_DAY or row.last_try_at <= moment - _DAY:
        return moment
    seconds = 2 ** min(_DOUBLINGS, row.tries - PER_DAY + 1)
    return row.last_try_at + min(LONGEST_WAIT, timedelta(seconds=seconds))


async def _rows(session: AsyncSession, account: str, address: str) -> tuple[SignInThrottle, SignInThrottle]:
    """What is counted of this account from this network, and from all of them; nobody else counts meanwhile."""
    account_key = _account(account)
    network_key = digest(f"{normal_email(account)} from {network_of(address)}")
    await locks.hold(session, _lock(account))
    found = await session.scalars(
        select(SignInThrottle)
        .where(SignInThrottle.account == account_key, SignInThrottle.network.in_([network_key, _ALL]))
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    rows = {row.network: row for row in found}
    for key in {network_key, _ALL} - rows.keys():
        rows[key] = SignInThrottle(account=account_key, network=key, tries=0, recent=[], last_try_at=now())
        session.add(rows[key])
    return rows[network_key], rows[_ALL]


_ALL = b""


def _lock(account: str) -> str:
    return f"sign-in {_account(account).hex()}"


def _account(account: str) -> bytes:
    return digest(normal_email(account))

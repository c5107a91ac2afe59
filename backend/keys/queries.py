"""Selects over the keys of people's programs."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import Select, or_, select

from backend.accounts.models import User
from backend.keys.models import ApiKey


def kept_by(owner_id: UUID) -> Select[ApiKey]:
    """Those a person has not revoked, the newest first; some may have expired."""
    return select(ApiKey).where(ApiKey.owner_id == owner_id, ApiKey.revoked_at.is_(None)).order_by(ApiKey.id.desc())


def working(now: datetime) -> Select[ApiKey]:
    """Neither revoked nor expired, and its person not disabled: for one of our own loops, which sees all of them."""
    return (
        select(ApiKey)
        .join(User, User.id == ApiKey.owner_id)
        .where(
            ApiKey.revoked_at.is_(None),
            or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now),
            User.disabled_at.is_(None),
        )
    )

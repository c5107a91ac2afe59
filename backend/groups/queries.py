"""Selects over groups and their members."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Select, func, or_, select

from backend.accounts.models import User
from backend.groups.models import Group, GroupMember


def everything() -> Select[Group]:
    return select(Group).order_by(func.lower(Group.name), Group.id)


def group(group_id: UUID) -> Select[Group]:
    return select(Group).where(Group.id == group_id)


def memberships() -> Select[UUID, UUID]:
    """Of everybody: group and person."""
    return select(GroupMember.group_id, GroupMember.user_id)


def sizes() -> Select[UUID, int]:
    """How many members each group has; one without any is not among them."""
    return select(GroupMember.group_id, func.count()).group_by(GroupMember.group_id)


def members(group_id: UUID) -> Select[User]:
    belongs = select(GroupMember.user_id).where(GroupMember.group_id == group_id)
    return select(User).where(User.id.in_(belongs)).order_by(func.lower(User.name), User.id)


def members_among(group_id: UUID, people: Sequence[UUID]) -> Select[UUID]:
    return select(GroupMember.user_id).where(GroupMember.group_id == group_id, GroupMember.user_id.in_(people))


def people_like(words: str) -> Select[User]:
    """Whose name or address holds these words as they are written, whatever their case."""
    anywhere = or_(*(column.icontains(words, autoescape=True) for column in (User.name, User.email)))
    return select(User).where(anywhere).order_by(func.lower(User.name), User.id)

"""Selects over groups and their members."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import CompoundSelect, Select, func, or_, select, union

from backend.accounts.models import User
from backend.groups.models import Group, GroupMember, Origin


def everything() -> Select[Group]:
    return select(Group).order_by(func.lower(Group.name), Group.id)


def group(group_id: UUID) -> Select[Group]:
    return select(Group).where(Group.id == group_id)


def memberships() -> CompoundSelect[UUID, UUID]:
    """Of everybody: group and person. Who is in a group is in the one around it, too."""
    direct = select(GroupMember.group_id, GroupMember.user_id)
    around = select(Group.parent_id, GroupMember.user_id).join(Group, Group.id == GroupMember.group_id)
    return union(direct, around.where(Group.parent_id.is_not(None)))


def of_person(person_id: UUID) -> Select[Group, Origin]:
    """The groups somebody was put into, with who did it."""
    joined = select(Group, GroupMember.source).join(GroupMember, GroupMember.group_id == Group.id)
    return joined.where(GroupMember.user_id == person_id).order_by(func.lower(Group.name), Group.id)


def sizes() -> Select[UUID, int]:
    """How many members each group has; one without any is not among them."""
    return select(GroupMember.group_id, func.count()).group_by(GroupMember.group_id)


def members(group_id: UUID) -> Select[User, Origin]:
    """With who put them there; without those of groups within it."""
    joined = select(User, GroupMember.source).join(GroupMember, GroupMember.user_id == User.id)
    return joined.where(GroupMember.group_id == group_id).order_by(func.lower(User.name), User.id)


def members_among(group_id: UUID, people: Sequence[UUID]) -> Select[UUID, Origin]:
    return select(GroupMember.user_id, GroupMember.source).where(
        GroupMember.group_id == group_id, GroupMember.user_id.in_(people)
    )


def people_like(words: str) -> Select[User]:
    """Whose name or address holds these words as they are written, whatever their case."""
    anywhere = or_(*(column.icontains(words, autoescape=True) for column in (User.name, User.email)))
    return select(User).where(anywhere).order_by(func.lower(User.name), User.id)

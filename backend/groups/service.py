"""What admins change about groups. Every function runs in the caller's transaction, and tells all processes."""

from typing import Final
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.models import User
from backend.audit import service as audit
from backend.audit.service import Action, Target
from backend.core.bus import notify
from backend.core.db import broken
from backend.core.errors import BadInput, Conflict, NotFound
from backend.core.i18n import _
from backend.core.ids import new_id
from backend.core.text import one_line, whole
from backend.groups import queries
from backend.groups.models import Group, GroupMember

#: What the processes hear when groups or their members have changed.
CHANGED: Final = "groups"

#: A page lists them all, and a form has a box for each.
MOST_GROUPS = 50

MAX_NAME, MAX_WEIGHT = 80, 100


async def create(session: AsyncSession, name: str) -> Group:
    """Raises BadInput with a sentence for the field, Conflict when there are enough."""
    count = await session.scalar(select(func.count()).select_from(Group))
    if (count or 0) >= MOST_GROUPS:
        raise Conflict(_("There are {most} groups, and no more can be made.").format(most=MOST_GROUPS))
    group = Group(id=new_id(), name=_checked_name(name), weight=1)
    session.add(group)
    await _flush(session)
    await audit.record(session, Action.GROUP_ADDED, _target(group))
    return group


async def change(session: AsyncSession, group: Group, *, name: str, weight: str) -> None:
    """Raises BadInput with a sentence per field; nothing is changed then."""
    wrong = {}
    if not (line := one_line(name, MAX_NAME)):
        wrong["name"] = _("Please enter a name.")
    if not 1 <= (number := whole(weight)) <= MAX_WEIGHT:
        wrong["weight"] = _("Please enter a whole number from 1 to {most}.").format(most=MAX_WEIGHT)
    if wrong:
        raise BadInput(_("Please check the fields below."), fields=wrong)
    before = {"name": group.name, "weight": group.weight}
    group.name, group.weight = line, number
    await _flush(session)
    if told := audit.changes(before, {"name": line, "weight": number}):
        await audit.record(session, Action.GROUP_CHANGED, _target(group), **told)


async def remove(session: AsyncSession, group: Group) -> None:
    """Its members lose what they were allowed through it; they themselves stay."""
    gone = await session.scalar(delete(Group).where(Group.id == group.id).returning(Group.id))
    if gone is not None:
        await audit.record(session, Action.GROUP_REMOVED, _target(group))
    await notify(session, CHANGED, {})


async def add_member(session: AsyncSession, group: Group, person: User) -> None:
    """Somebody who is in it already stays in it."""
    member = insert(GroupMember).values(group_id=group.id, user_id=person.id).on_conflict_do_nothing()
    gone = NotFound(_("It was deleted in the meantime, so nothing was done."))
    with broken(fk_group_members_group_id=gone, fk_group_members_user_id=gone):
        added = await session.scalar(member.returning(GroupMember.user_id))
    if added is not None:
        await audit.record(session, Action.MEMBER_ADDED, _target(group), after={"person": person.id})
    await notify(session, CHANGED, {})


async def remove_member(session: AsyncSession, group: Group, person: User) -> None:
    """Somebody who is not in it was perhaps removed a moment ago."""
    member = delete(GroupMember).where(GroupMember.group_id == group.id, GroupMember.user_id == person.id)
    removed = await session.scalar(member.returning(GroupMember.user_id))
    if removed is not None:
        await audit.record(session, Action.MEMBER_REMOVED, _target(group), before={"person": person.id})
    await notify(session, CHANGED, {})


async def find(session: AsyncSession, group_id: UUID) -> Group:
    group = await session.scalar(queries.group(group_id))
    if group is None:
        raise NotFound(_("There is no such group."))
    return group


def _target(group: Group) -> Target:
    return Target("group", group.id, group.name)


def _checked_name(name: str) -> str:
    line = one_line(name, MAX_NAME)
    if not line:
        missing = _("Please enter a name.")
        raise BadInput(missing, fields={"name": missing})
    return line


async def _flush(session: AsyncSession) -> None:
    taken = _("There is already a group with this name.")
    with broken(uq_groups_name=BadInput(taken, fields={"name": taken})):
        await session.flush()
    await notify(session, CHANGED, {})

"""What admins change about groups. Every function runs in the caller's transaction, and tells all processes."""

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import delete, func, select, update
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
from backend.groups.models import Group, GroupMember, Origin
from backend.groups.rights import CHANGED, Right

__all__ = ["CHANGED"]  # what the processes hear when groups or their members have changed

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


async def allow(session: AsyncSession, group: Group, rights: Collection[Right]) -> None:
    """What its members may do, whatever everybody may."""
    allowed = [right.value for right in Right if right in rights]
    await _record(session, group, "rights", group.rights, allowed)
    group.rights = allowed
    await _flush(session)


async def put_into(session: AsyncSession, group: Group, parent: Group | None) -> None:
    """Its members count as members of `parent` from now on. Raises BadInput where it would be more than one level."""
    _require_by_hand(group)
    if parent is not None and parent.id == group.id:
        raise BadInput(itself := _("A group cannot lie in itself."), fields={"parent": itself})
    await _record(session, group, "parent", group.parent_id, parent.id if parent else None)
    group.parent_id = parent.id if parent else None
    deep = _("Groups lie one level deep: neither may that one lie in another, nor this one have groups in it.")
    with broken(fk_groups_parent=BadInput(deep, fields={"parent": deep})):
        await _flush(session)


async def remove(session: AsyncSession, group: Group) -> None:
    """Its members lose what they were allowed through it; they themselves stay, and so do groups in it."""
    _require_by_hand(group)
    await session.execute(update(Group).where(Group.parent_id == group.id).values(parent_id=None))
    gone = await session.scalar(delete(Group).where(Group.id == group.id).returning(Group.id))
    if gone is not None:
        await audit.record(session, Action.GROUP_REMOVED, _target(group))
    await notify(session, CHANGED, {})


async def add_member(session: AsyncSession, group: Group, person: User) -> None:
    """Somebody who is in it already stays in it."""
    _require_by_hand(group)
    member = insert(GroupMember).values(group_id=group.id, user_id=person.id).on_conflict_do_nothing()
    gone = NotFound(_("It was deleted in the meantime, so nothing was done."))
    with broken(fk_group_members_group_id=gone, fk_group_members_user_id=gone):
        added = await session.scalar(member.returning(GroupMember.user_id))
    if added is not None:
        await audit.record(session, Action.MEMBER_ADDED, _target(group), after={"person": person.id})
    await notify(session, CHANGED, {})


async def remove_member(session: AsyncSession, group: Group, person: User) -> None:
    """Somebody who is not in it was perhaps removed a moment ago."""
    row = await session.get(GroupMember, (group.id, person.id), with_for_update=True)
    if row is None:
        return
    if row.source is Origin.DIRECTORY:
        sentence = _("{name} was put into this group by the directory, and has to be taken out of it there.")
        raise Conflict(sentence.format(name=person.name))
    await session.delete(row)
    await session.flush()
    await audit.record(session, Action.MEMBER_REMOVED, _target(group), before={"person": person.id})
    await notify(session, CHANGED, {})


async def _record(session: AsyncSession, group: Group, what: str, before: object, after: object) -> None:
    if before != after:
        await audit.record(session, Action.GROUP_CHANGED, _target(group), before={what: before}, after={what: after})


def _require_by_hand(group: Group) -> None:
    """Raise Conflict for what the directory would put right again."""
    if group.source is Origin.DIRECTORY:
        raise Conflict(_("{name} comes from the directory: who is in it is said there.").format(name=group.name))


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

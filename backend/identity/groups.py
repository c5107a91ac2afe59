"""The groups of a person as a provider lists them, held against those here.

Only two sorts are touched: groups that the rules name, and groups that were made for this provider. A group that an
administrator made and the rules do not name is never joined, however the provider calls its own. Where the list could
not be had, nothing changes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.models import User
from backend.core import locks
from backend.core.errors import AppError
from backend.core.i18n import _
from backend.groups import service
from backend.groups.models import Group, GroupMember
from backend.identity import queries
from backend.identity.facts import Facts
from backend.identity.models import DirectoryGroup
from backend.identity.rules import Rules


@dataclass(frozen=True, slots=True)
class Plan:
    """What a sign-in would do; `new` are groups that are not there yet."""

    joins: tuple[Group, ...] = ()
    leaves: tuple[Group, ...] = ()
    stays: tuple[Group, ...] = ()
    new: tuple[tuple[str, str], ...] = ()  # as the provider calls it, and here
    problems: tuple[str, ...] = ()


async def plan(session: AsyncSession, facts: Facts, rules: Rules, person_id: UUID | None) -> Plan:
    if facts.groups is None:
        return Plan(problems=(facts.groups_problem,) if facts.groups_problem else ())
    made: dict[str, Group] = dict((await session.execute(queries.groups_of(facts.issuer))).all())
    mapped = dict(rules.group_map)
    named = {group.name: group for group in await session.scalars(queries.groups_named(mapped.values()))}
    managed = {group.id: group for group in (*made.values(), *named.values())}
    wanted: dict[UUID, Group] = {}
    new: list[tuple[str, str]] = []
    problems: list[str] = []
    for theirs in facts.groups:
        here = rules.group_here(theirs)
        if here is None:
            continue
        group = named.get(here) if theirs in mapped else made.get(theirs)
        if group is not None:
            wanted[group.id] = group
        elif theirs in mapped:
            problems.append(_("There is no group “{name}” here.").format(name=here))
        else:
            new.append((theirs, here))
    taken = {group.name for group in await session.scalars(queries.groups_named(here for _theirs, here in new))}
    problems += [
        _("There is a group “{name}” already that was not made for this provider, so nobody is put into it.").format(
            name=name
        )
        for name in sorted(taken)
    ]
    inside = await _inside(session, person_id, managed)
    return Plan(
        joins=_sorted(group for group in wanted.values() if group.id not in inside),
        leaves=_sorted(managed[group_id] for group_id in inside if group_id not in wanted),
        stays=_sorted(group for group in wanted.values() if group.id in inside),
        new=tuple((theirs, here) for theirs, here in new if here not in taken),
        problems=tuple(problems),
    )


async def apply(session: AsyncSession, facts: Facts, rules: Rules, person: User) -> Plan:
    """What was planned, as it is now: one at a time for each provider, or two would make the same group."""
    if facts.groups is None:
        return await plan(session, facts, rules, person.id)
    await locks.hold(session, f"directory groups|{facts.issuer}")
    planned = await plan(session, facts, rules, person.id)
    for group in planned.leaves:
        await service.remove_member(session, group, person)
    for group in planned.joins:
        await service.add_member(session, group, person)
    problems = list(planned.problems)
    for theirs, here in planned.new:
        try:
            async with session.begin_nested():
                group = await service.create(session, here)
                session.add(DirectoryGroup(group_id=group.id, origin=facts.issuer, external_name=theirs))
                await session.flush()
            await service.add_member(session, group, person)
        except AppError as error:  # there are enough, or somebody made one of this name a moment ago
            problems.append(str(error))
    return Plan(planned.joins, planned.leaves, planned.stays, planned.new, tuple(problems))


async def _inside(session: AsyncSession, person_id: UUID | None, groups: Iterable[UUID]) -> set[UUID]:
    if person_id is None:
        return set()
    mine = select(GroupMember.group_id).where(GroupMember.user_id == person_id, GroupMember.group_id.in_(list(groups)))
    return set(await session.scalars(mine))


def _sorted(groups: Iterable[Group]) -> tuple[Group, ...]:
    return tuple(sorted(groups, key=lambda group: group.name.lower()))

"""People together: names that are unique, weights within bounds, members who come and go."""

import pytest

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.errors import BadInput, Conflict
from backend.core.ids import new_id
from backend.groups import queries, service
from backend.groups.models import Group


async def a_group(db: Sessions, name: str = "Lab") -> Group:
    async with db.begin() as session:
        return await service.create(session, name)


async def members_of(db: Sessions, group: Group) -> list[str]:
    async with db.begin() as session:
        return [person.name for person in await session.scalars(queries.members(group.id))]


async def test_a_group_is_made_changed_and_deleted(db: Sessions, alice: User) -> None:
    lab = await a_group(db, "  The   lab ")
    async with db.begin() as session:
        group = await service.find(session, lab.id)
        await service.change(session, group, name="Laboratory", weight="3")
        await service.add_member(session, group, alice)

    async with db.begin() as session:
        (found,) = (await session.scalars(queries.everything())).all()
        await service.remove(session, found)

    assert lab.name == "The lab"
    assert (found.name, found.weight) == ("Laboratory", 3)
    async with db.begin() as session:
        assert (await session.scalars(queries.everything())).all() == []
        assert (await session.execute(queries.memberships())).all() == []


async def test_members_come_and_go_however_often_they_are_told_to(db: Sessions, alice: User, bob: User) -> None:
    lab = await a_group(db)
    for person in (bob, alice, alice):
        async with db.begin() as session:
            await service.add_member(session, lab, person)
    there = await members_of(db, lab)
    for _again in range(2):
        async with db.begin() as session:
            await service.remove_member(session, lab, alice)

    assert there == ["Alice Owner", "Bob Stranger"]
    assert await members_of(db, lab) == ["Bob Stranger"]


@pytest.mark.parametrize("words", ["ALICE", "owner", "alice@corp", "e o"])
async def test_people_are_found_by_any_part_of_name_or_address(
    db: Sessions, alice: User, bob: User, words: str
) -> None:
    async with db.begin() as session:
        assert [person.id for person in await session.scalars(queries.people_like(words))] == [alice.id]


@pytest.mark.parametrize("words", ["%", "_", "\\"])
async def test_a_wildcard_is_only_a_character(db: Sessions, alice: User, words: str) -> None:
    async with db.begin() as session:
        assert (await session.scalars(queries.people_like(words))).all() == []


@pytest.mark.parametrize("name", ["", " \u200b ", "Lab"])
async def test_a_name_is_needed_and_is_taken_once(db: Sessions, name: str) -> None:
    await a_group(db)

    with pytest.raises(BadInput) as caught:
        await a_group(db, name)

    assert caught.value.fields.keys() == {"name"}


@pytest.mark.parametrize("weight", ["0", "101", "-1", "1.5", "", "²", "9" * 5_000])
async def test_a_weight_is_a_number_from_one_to_a_hundred(db: Sessions, weight: str) -> None:
    lab = await a_group(db)

    with pytest.raises(BadInput) as caught:
        async with db.begin() as session:
            await service.change(session, lab, name="", weight=weight)

    assert caught.value.fields.keys() == {"name", "weight"}
    assert (lab.name, lab.weight) == ("Lab", 1)


async def test_there_are_only_so_many_groups(db: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_GROUPS", 1)
    await a_group(db)

    with pytest.raises(Conflict, match="no more can be made"):
        await a_group(db, "Another")


async def test_a_group_that_is_deleted_meanwhile_takes_nobody(db: Sessions, alice: User) -> None:
    gone = Group(id=new_id(), name="Gone", weight=1)

    with pytest.raises(Exception, match="deleted in the meantime"):
        async with db.begin() as session:
            await service.add_member(session, gone, alice)

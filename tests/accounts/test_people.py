"""Who is who, and that somebody can always administer."""

import asyncio
from uuid import uuid4

import pytest

from backend.accounts import queries, service
from backend.accounts.models import Purpose, Role, User
from backend.accounts.passwords import Passwords
from backend.accounts.service import EmailTaken
from backend.core.db import Sessions
from backend.core.errors import BadInput, Conflict, NotFound
from tests.accounts.conftest import link_for, reread, sessions_of
from tests.conftest import AddPerson, sign_in
from tests.site import CHEAP_PASSWORDS


async def test_a_person_is_added_under_one_spelling_of_their_address(db: Sessions) -> None:
    person = await _add(db, name="  Dora \n Example ", email=" Dora@Corp.Example\0 ")

    assert (person.name, person.email, person.role) == ("Dora Example", "dora@corp.example", Role.MEMBER)
    assert person.initials == "DE"


async def test_a_second_account_for_the_same_address_is_refused_with_its_name(db: Sessions, alice: User) -> None:
    with pytest.raises(EmailTaken, match=r"alice@corp\.example"):
        await _add(db, email="ALICE@corp.example")


@pytest.mark.parametrize(
    ("name", "email", "fields"),
    [
        ("", "dora@corp.example", {"name"}),
        (" \0\n ", "dora@corp.example", {"name"}),
        ("Dora", "", {"email"}),
        ("Dora", "dora", {"email"}),
        ("Dora", "do ra@corp.example", {"email"}),
        ("Dora", "dora@", {"email"}),
        ("Dora", "a@b@c", {"email"}),
        ("Dora", "x" * 250 + "@a.de", {"email"}),
        ("", "<dora@corp.example>", {"name", "email"}),
    ],
)
async def test_each_wrong_field_gets_its_own_sentence(db: Sessions, name: str, email: str, fields: set[str]) -> None:
    with pytest.raises(BadInput) as refused:
        await _add(db, name=name, email=email)

    assert refused.value.fields.keys() == fields


@pytest.mark.parametrize(("name", "initials"), [("Alice", "A"), ("Alice B. Owner", "AO"), ("李 明", "李明"), ("", "A")])
def test_the_round_mark_shows_one_or_two_letters(name: str, initials: str) -> None:
    assert User(name=name, email="alice@corp.example").initials == initials


async def test_a_change_of_role_signs_the_person_out(db: Sessions, alice: User) -> None:
    await sign_in(db, alice)

    await _change_role(db, alice, Role.ADMIN)

    assert (await reread(db, alice)).is_admin
    assert await sessions_of(db, alice) == 0


async def test_giving_somebody_the_role_they_have_changes_nothing(db: Sessions, alice: User) -> None:
    await sign_in(db, alice)

    await _change_role(db, alice, Role.MEMBER)

    assert await sessions_of(db, alice) == 1


async def test_a_disabled_person_is_signed_out_and_their_links_stop_working(db: Sessions, alice: User) -> None:
    await sign_in(db, alice)
    secret = await link_for(db, Purpose.RESET, alice)

    await _disable(db, alice)

    assert await sessions_of(db, alice) == 0
    assert not await _can_use(db, secret)
    assert not (await reread(db, alice)).is_active


async def test_an_enabled_person_is_back_but_not_signed_in(db: Sessions, alice: User) -> None:
    await sign_in(db, alice)
    await _disable(db, alice)

    async with db.begin() as session:
        await service.enable(session, await service.find_person(session, alice.id))

    assert (await reread(db, alice)).is_active
    assert await sessions_of(db, alice) == 0


async def test_disabling_twice_keeps_the_first_time(db: Sessions, alice: User) -> None:
    await _disable(db, alice)
    first = (await reread(db, alice)).disabled_at

    await _disable(db, alice)

    assert (await reread(db, alice)).disabled_at == first


async def test_a_person_nobody_knows_is_not_found(db: Sessions) -> None:
    async with db.begin() as session:
        with pytest.raises(NotFound):
            await service.find_person(session, uuid4())


async def test_everybody_is_listed_by_name(db: Sessions, carol: User, bob: User, alice: User) -> None:
    async with db.begin() as session:
        names = [person.name for person in await session.scalars(queries.everybody())]

    assert names == ["Alice Owner", "Bob Stranger", "Carol Admin"]


# Links


async def test_a_link_can_be_used_for_its_purpose_only(db: Sessions, alice: User) -> None:
    secret = await link_for(db, Purpose.RESET, alice)

    assert await _can_use(db, secret, Purpose.RESET, Purpose.INVITATION)
    assert not await _can_use(db, secret, Purpose.SETUP)


async def test_a_new_link_ends_the_ones_before_it(db: Sessions, alice: User, bob: User) -> None:
    old, of_bob, set_up = [
        await link_for(db, Purpose.RESET, alice),
        await link_for(db, Purpose.RESET, bob),
        await link_for(db, Purpose.SETUP),
    ]

    new = await link_for(db, Purpose.RESET, alice)

    assert [await _can_use(db, secret) for secret in (old, new, of_bob, set_up)] == [False, True, True, True]


async def test_a_new_set_up_link_ends_the_one_before_it(db: Sessions) -> None:
    old = await link_for(db, Purpose.SETUP)

    new = await link_for(db, Purpose.SETUP)

    assert [await _can_use(db, secret) for secret in (old, new)] == [False, True]


async def test_there_is_no_link_for_a_disabled_person(db: Sessions, alice: User) -> None:
    await _disable(db, alice)

    with pytest.raises(Conflict, match="disabled"):
        await link_for(db, Purpose.RESET, await reread(db, alice))


# The last administrator


@pytest.mark.parametrize("way_out", ["demote", "disable"])
async def test_the_only_administrator_cannot_go(db: Sessions, carol: User, alice: User, way_out: str) -> None:
    with pytest.raises(Conflict, match="Carol Admin is the only active administrator"):
        await _leave(db, carol, way_out)

    still = await reread(db, carol)
    assert still.is_admin
    assert still.is_active


@pytest.mark.parametrize("way_out", ["demote", "disable"])
@pytest.mark.parametrize("other", ["disabled", "invited"])
async def test_another_who_cannot_sign_in_does_not_count(
    db: Sessions, carol: User, add_person: AddPerson, way_out: str, other: str
) -> None:
    if other == "disabled":
        await _disable(db, await add_person("Erin Admin", Role.ADMIN))
    else:
        await _add(db, name="Erin", role=Role.ADMIN)

    with pytest.raises(Conflict):
        await _leave(db, carol, way_out)


@pytest.mark.parametrize("way_out", ["demote", "disable"])
async def test_one_of_two_can_go(db: Sessions, carol: User, add_person: AddPerson, way_out: str) -> None:
    await add_person("Erin Admin", Role.ADMIN)

    await _leave(db, carol, way_out)

    assert [admin.name for admin in await _admins(db)] == ["Erin Admin"]


async def test_an_administrator_who_cannot_sign_in_anyway_can_always_go(db: Sessions, carol: User) -> None:
    invited = await _add(db, name="Erin", role=Role.ADMIN)

    await _change_role(db, invited, Role.MEMBER)

    assert not (await reread(db, invited)).is_admin


@pytest.mark.parametrize("round_", range(10))
async def test_two_administrators_who_demote_each_other_at_the_same_moment_leave_one(
    db: Sessions, carol: User, add_person: AddPerson, round_: int
) -> None:
    erin = await add_person("Erin Admin", Role.ADMIN)
    both_looked = asyncio.Barrier(2)

    async def leave(person: User, way_out: str) -> None:
        async with db.begin() as session:
            found = await service.find_person(session, person.id)
            await both_looked.wait()
            if way_out == "demote":
                await service.change_role(session, found, Role.MEMBER)
            else:
                await service.disable(session, found)

    results = await asyncio.gather(
        leave(carol, "demote"), leave(erin, "disable" if round_ % 2 else "demote"), return_exceptions=True
    )

    assert [type(result) for result in results if result] == [Conflict]
    assert len(await _admins(db)) == 1


async def test_somebody_promoted_meanwhile_is_an_administrator_when_disabled(
    db: Sessions, carol: User, alice: User
) -> None:
    """Looked at as a member, promoted by somebody else, and then the only one left: the guard has to see it."""
    async with db.begin() as session:
        found = await service.find_person(session, alice.id)
        await _change_role(db, alice, Role.ADMIN)
        await _leave(db, carol, "demote")

        with pytest.raises(Conflict):
            await service.disable(session, found)


# Seeded by the deployment


async def test_the_deployment_can_name_the_first_administrator(db: Sessions) -> None:
    made = await _seed(db)

    assert made
    assert [(admin.email, admin.name) for admin in await _admins(db)] == [("root@corp.example", "root")]


async def test_it_is_asked_only_while_there_is_none(db: Sessions, carol: User) -> None:
    made = await _seed(db, password="x")

    assert not made
    assert [admin.email for admin in await _admins(db)] == [carol.email]


async def test_a_weak_password_of_the_deployment_is_refused_by_name(db: Sessions) -> None:
    with pytest.raises(BadInput, match=r"PARLEY_ADMIN_PASSWORD cannot be used\. This one has 5 characters"):
        await _seed(db, password="short")


async def test_four_processes_that_start_at_once_make_one(db: Sessions) -> None:
    made = await asyncio.gather(*[_seed(db) for _ in range(4)])

    assert sum(made) == 1
    assert len(await _admins(db)) == 1


async def _seed(db: Sessions, password: str = "correct horse battery") -> bool:
    return await service.seed_admin(db, Passwords(**CHEAP_PASSWORDS), "root@corp.example", password)


async def _add(db: Sessions, *, name: str = "Dora", email: str = "dora@corp.example", role: Role = Role.MEMBER) -> User:
    async with db.begin() as session:
        return await service.add_person(session, name=name, email=email, role=role)


async def _change_role(db: Sessions, person: User, role: Role) -> None:
    async with db.begin() as session:
        await service.change_role(session, await service.find_person(session, person.id), role)


async def _disable(db: Sessions, person: User) -> None:
    async with db.begin() as session:
        await service.disable(session, await service.find_person(session, person.id))


async def _leave(db: Sessions, person: User, way_out: str) -> None:
    if way_out == "demote":
        await _change_role(db, person, Role.MEMBER)
    else:
        await _disable(db, person)


async def _can_use(db: Sessions, secret: str, *purposes: Purpose) -> bool:
    async with db.begin() as session:
        return await service.find_link(session, secret, *(purposes or tuple(Purpose))) is not None


async def _admins(db: Sessions) -> list[User]:
    async with db.begin() as session:
        return list(await session.scalars(queries.active_admins()))

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

import pytest

from backend.accounts import service
from backend.accounts.models import Purpose, Role, User
from backend.core.db import Sessions
from backend.core.errors import BadInput, Conflict, NotFound
from backend.ops import people

ORIGIN = "https://chat.corp.example"

AddPerson = Callable[[str, Role], Awaitable[User]]


def secret_in(link: str) -> str:
    return parse_qs(urlsplit(link).query)["secret"][0]


async def test_the_first_link_makes_the_first_administrator(database: str, db: Sessions) -> None:
    link = await people.setup_link(database, ORIGIN)

    assert link is not None
    assert link.startswith(f"{ORIGIN}/setup?secret=")
    async with db.begin() as session:
        assert await service.find_link(session, secret_in(link), Purpose.SETUP) is not None


async def test_a_second_link_ends_the_first(database: str, db: Sessions) -> None:
    first = await people.setup_link(database, ORIGIN)

    await people.setup_link(database, ORIGIN)

    assert first is not None
    async with db.begin() as session:
        assert await service.find_link(session, secret_in(first), Purpose.SETUP) is None


async def test_there_is_no_first_link_once_there_is_an_administrator(database: str, carol: User) -> None:
    assert await people.setup_link(database, ORIGIN) is None


async def test_a_person_is_added_with_a_link(database: str, db: Sessions) -> None:
    link = await people.add(database, ORIGIN, email="Dora@corp.example", name="Dora", role=Role.ADMIN)

    assert link.startswith(f"{ORIGIN}/join?secret=")
    async with db.begin() as session:
        assert await service.find_link(session, secret_in(link), Purpose.INVITATION) is not None
    assert [line.split()[:2] for line in await people.listing(database)] == [["dora@corp.example", "admin"]]


async def test_nobody_is_added_twice_or_without_an_address(database: str, alice: User) -> None:
    with pytest.raises(Conflict):
        await people.add(database, ORIGIN, email=alice.email, name="", role=Role.MEMBER)
    with pytest.raises(BadInput):
        await people.add(database, ORIGIN, email="nobody", name="", role=Role.MEMBER)


async def test_somebody_locked_out_gets_a_link_for_a_new_password(database: str, db: Sessions, carol: User) -> None:
    link = await people.reset_password(database, ORIGIN, carol.email)

    async with db.begin() as session:
        assert await service.find_link(session, secret_in(link), Purpose.RESET) is not None


async def test_roles_and_access_can_be_changed(database: str, alice: User, carol: User) -> None:
    assert "admin" in await people.change_role(database, alice.email, Role.ADMIN)
    assert "disabled" in await people.disable(database, carol.email)
    assert "active" in await people.enable(database, carol.email)


async def test_the_last_administrator_stays_one(database: str, carol: User) -> None:
    with pytest.raises(Conflict):
        await people.change_role(database, carol.email, Role.MEMBER)
    with pytest.raises(Conflict):
        await people.disable(database, carol.email)


async def test_an_unknown_address_is_a_sentence(database: str) -> None:
    with pytest.raises(NotFound, match=r"no account for mallory@corp\.example"):
        await people.reset_password(database, ORIGIN, "mallory@corp.example")

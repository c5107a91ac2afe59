"""Administration: groups, their members, and what they begin with."""

import re

import pytest
from sqlalchemy import select

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.ids import new_id
from backend.groups.models import Group, GroupMember
from tests.conftest import OpenBrowser
from tests.site import Browser, Site
from tests.web.accounts.conftest import submit, text_of, value_of


@pytest.fixture
async def page(browser: OpenBrowser, carol: User, alice: User) -> Browser:
    return await browser(carol)


async def add(page: Browser, name: str = "Laboratory") -> str:
    """The address of the new group's page."""
    added = await submit(page, "/admin/groups", name=name)
    assert added.status_code == 303, text_of(added)
    return str(added.headers["location"])


async def test_a_group_is_made_filled_and_listed(page: Browser, alice: User) -> None:
    address = await add(page)

    found = await page.get(address, params={"q": "ALICE"})
    joined = await submit(page, f"{address}/members/{alice.id}/add")
    shown = await page.get(address, params={"q": "alice@"})
    listed = await page.get("/admin/groups")

    assert "Nobody is in it yet." in text_of(found)
    assert "Add Alice Owner to the group" in found.text
    assert joined.status_code == 303
    assert "Remove Alice Owner from the group" in shown.text
    assert "Add Alice Owner" not in shown.text
    assert "Laboratory 1 1" in text_of(listed)


async def test_rules_are_changed_and_wrong_ones_are_told_with_what_was_typed(page: Browser, site: Site) -> None:
    model = (await site.until_offered("fake-70b"))["fake-70b"]
    address = await add(page)
    await add(page, "Other")

    changed = await submit(page, address, name="Lab", weight="3", model=str(model))
    shown = await page.get(changed.headers["location"])
    wrong = await submit(page, address, name="Other", weight="3", model="")
    worse = await submit(page, address, name="Lab", weight="many", model="nonsense")

    assert "Saved." in text_of(shown)
    assert (value_of(shown, "name"), value_of(shown, "weight")) == ("Lab", "3")
    assert re.search(rf'<option value="{model}" selected>', shown.text)
    assert wrong.status_code == worse.status_code == 422
    assert "There is already a group with this name." in text_of(wrong)
    assert value_of(wrong, "name") == "Other"
    assert "from 1 to 100" in text_of(worse)
    assert "Lab 0 3" in text_of(await page.get("/admin/groups"))


async def test_a_nameless_group_is_refused(page: Browser) -> None:
    refused = await submit(page, "/admin/groups", name=" ")

    assert refused.status_code == 422
    assert "Please enter a name." in text_of(refused)


async def test_a_member_leaves_and_the_group_is_deleted(page: Browser, alice: User, db: Sessions) -> None:
    address = await add(page)
    await submit(page, f"{address}/members/{alice.id}/add")

    left = await submit(page, f"{address}/members/{alice.id}/remove")
    without = await page.get(address)
    removed = await submit(page, f"{address}/remove")

    assert left.status_code == removed.status_code == 303
    assert "Nobody is in it yet." in text_of(without)
    assert (await page.get(address)).status_code == 404
    async with db.begin() as session:
        assert (await session.scalars(select(Group))).all() == []


async def test_a_search_that_finds_nobody_says_so_and_shows_what_was_typed(page: Browser) -> None:
    address = await add(page)

    shown = await page.get(address, params={"q": "<b>zz%"})

    assert "Nobody here has “<b>zz%” in name or email." in text_of(shown)
    assert "<b>zz" not in shown.text


@pytest.mark.parametrize("path", ["", "/remove", "/members/{person}/add", "/members/{person}/remove"])
async def test_an_id_of_nothing_is_not_found(page: Browser, alice: User, path: str) -> None:
    assert (await submit(page, f"/admin/groups/{new_id()}{path.format(person=alice.id)}")).status_code == 404
    real = await add(page)
    if "person" in path:
        assert (await submit(page, real + path.format(person=new_id()))).status_code == 404


async def test_a_member_finds_nothing_here_and_changes_nothing(
    browser: OpenBrowser, page: Browser, alice: User, db: Sessions
) -> None:
    address = await add(page)
    stranger = await browser(alice)

    replies = [
        await stranger.get("/admin/groups"),
        await stranger.get(address),
        await submit(stranger, "/admin/groups", name="Mine"),
        await submit(stranger, address, name="Mine", weight="100"),
        await submit(stranger, f"{address}/members/{alice.id}/add"),
        await submit(stranger, f"{address}/remove"),
    ]

    assert {reply.status_code for reply in replies} == {404}
    async with db.begin() as session:
        assert [group.name for group in await session.scalars(select(Group))] == ["Laboratory"]
        assert (await session.scalars(select(GroupMember))).all() == []

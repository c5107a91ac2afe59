"""The links of people: an invitation sets the first password, a reset a new one."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from backend.accounts import service
from backend.accounts.models import OneTimeLink, Purpose, Role, User
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.settings import Settings
from backend.ops.people import add, reset_password
from tests.accounts.conftest import link_for, sessions_of
from tests.conftest import PASSWORD, OpenBrowser
from tests.web.accounts.conftest import NEW_PASSWORD, Rows, SignIn, open_link, submit, text_of, value_of


async def test_an_invited_person_chooses_a_password_and_is_in(
    browser: OpenBrowser, settings: Settings, database: str
) -> None:
    link = await add(database, settings.origin, email="dora@corp.example", name="Dora", role=Role.MEMBER)
    page = await browser(None)

    opened = await page.get(link.removeprefix(settings.origin))
    form = await page.get(opened.headers["location"])
    reply = await submit(page, "/join", password=NEW_PASSWORD, time_zone="Asia/Tokyo")
    start = await page.get("/")

    assert (opened.status_code, opened.headers["location"]) == (303, "/join")
    assert "Welcome, Dora" in text_of(form)
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    assert "link" not in page.http.cookies
    assert start.status_code == 200
    assert 'data-zone="Asia/Tokyo"' in start.text


async def test_a_reset_link_signs_out_everywhere_and_lets_in_with_the_new_password(
    browser: OpenBrowser, signed_in: SignIn, settings: Settings, database: str, alice: User
) -> None:
    elsewhere = await signed_in(alice)
    link = await reset_password(database, settings.origin, alice.email)
    page = await browser(None)

    form = await open_link(page, "/join", link.partition("secret=")[2])
    until_then = await elsewhere.get("/settings")
    reply = await submit(page, "/join", password=NEW_PASSWORD)

    assert "Choose a new password" in text_of(form)
    assert until_then.status_code == 200
    assert reply.status_code == 303
    assert (await page.get("/settings")).status_code == 200
    assert (await elsewhere.get("/settings")).status_code == 303
    old, new = [
        await submit(await browser(None), "/login", email=alice.email, password=tried)
        for tried in (PASSWORD, NEW_PASSWORD)
    ]
    assert (old.status_code, new.status_code) == (401, 303)


async def test_a_weak_password_is_told_why_and_the_link_still_works(
    browser: OpenBrowser, db: Sessions, alice: User, rows: Rows
) -> None:
    page = await browser(None)
    await open_link(page, "/join", await link_for(db, Purpose.RESET, alice))
    before = rows()

    weak = [await submit(page, "/join", password=password) for password in ("", "short", "aaaaaaaaaaaaaa")]

    assert [reply.status_code for reply in weak] == [422, 422, 422]
    assert "This one has 5 characters; at least 12 are needed." in text_of(weak[1])
    assert value_of(weak[1], "password") == ""
    assert rows() == before
    assert (await submit(page, "/join", password=NEW_PASSWORD)).status_code == 303


async def test_a_link_ends_with_its_use(browser: OpenBrowser, db: Sessions, alice: User, rows: Rows) -> None:
    secret = await link_for(db, Purpose.RESET, alice)
    page, late = await browser(None), await browser(None)
    await open_link(page, "/join", secret)
    await open_link(late, "/join", secret)
    await submit(page, "/join", password=NEW_PASSWORD)
    before = rows()

    shown, sent = await late.get("/join"), await submit(late, "/join", password="a third fine password")

    for reply in (shown, sent):
        assert reply.status_code == 410
        assert "ask an administrator for a new link" in text_of(reply)
    assert rows() == before


@pytest.mark.parametrize("why", ["expired", "disabled", "replaced", "never was", "a set-up link"])
async def test_a_link_that_cannot_be_used_changes_nothing(
    browser: OpenBrowser, db: Sessions, alice: User, rows: Rows, why: str
) -> None:
    secret = await link_for(db, Purpose.RESET, alice)
    if why == "a set-up link":
        secret = await link_for(db, Purpose.SETUP)
    page = await browser(None)
    await open_link(page, "/join", "never-was" if why == "never was" else secret)
    async with db.begin() as session:
        if why == "expired":
            await session.execute(update(OneTimeLink).values(expires_at=now() - timedelta(seconds=1)))
        if why == "disabled":
            await session.execute(update(User).values(disabled_at=now()))
        if why == "replaced":
            await service.make_link(session, Purpose.RESET, await service.find_person(session, alice.id))
    before = rows()

    shown, sent = await page.get("/join"), await submit(page, "/join", password=NEW_PASSWORD)

    assert (shown.status_code, sent.status_code) == (410, 410)
    assert rows() == before


async def test_without_a_link_there_is_nothing_to_join(browser: OpenBrowser) -> None:
    page = await browser(None)

    shown, sent = await page.get("/join"), await submit(page, "/join", password=NEW_PASSWORD)

    assert (shown.status_code, sent.status_code) == (410, 410)


async def test_a_link_opened_by_somebody_who_is_signed_in_ends_their_session_here(
    signed_in: SignIn, db: Sessions, alice: User, bob: User
) -> None:
    page = await signed_in(bob)

    await open_link(page, "/join", await link_for(db, Purpose.RESET, alice))
    await submit(page, "/join", password=NEW_PASSWORD)

    assert "Alice Owner" in (await page.get("/settings")).text
    assert await sessions_of(db, bob) == 0

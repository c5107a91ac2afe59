"""The first administrator: made by whoever holds the one-time link, and by nobody else."""

import asyncio
import json
import logging
import re
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from backend.accounts.models import OneTimeLink, Purpose, User
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.settings import Settings
from backend.ops.people import setup_link
from tests.accounts.conftest import link_for
from tests.conftest import OpenBrowser
from tests.site import Browser, Site
from tests.web.accounts.conftest import NEW_PASSWORD, Rows, open_link, submit, text_of, value_of
from web.policy import POLICY

FORM = {"name": "Ines Duarte", "email": "ines@corp.example", "company": "Fernhill Works", "password": NEW_PASSWORD}


async def test_the_link_from_the_command_line_makes_the_first_administrator(
    browser: OpenBrowser, db: Sessions, settings: Settings, database: str
) -> None:
    page = await browser(None)
    link = await setup_link(database, settings.origin)
    assert link is not None

    opened = await page.get(link.removeprefix(settings.origin))
    form = await page.get(opened.headers["location"])
    reply = await submit(page, "/setup", **FORM, time_zone="Europe/Berlin")
    start = await page.get("/")

    assert (opened.status_code, opened.headers["location"]) == (303, "/setup")
    assert "another 60 minutes" in text_of(form)
    assert "Database ready" in form.text
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    assert start.status_code == 200
    assert "Fernhill Works" in start.text
    async with db.begin() as session:
        admin = (await session.scalars(select(User))).one()
    assert (admin.name, admin.email, admin.is_admin) == ("Ines Duarte", "ines@corp.example", True)


async def test_the_company_is_on_the_pages_after_a_restart(settings: Settings, db: Sessions) -> None:
    async with Site(settings) as site, Browser(site) as page:
        await open_link(page, "/setup", await link_for(db, Purpose.SETUP))
        await submit(page, "/setup", **FORM)

    async with Site(settings) as site, Browser(site) as page:
        form = await page.get("/login")

    assert "The assistant of Fernhill Works." in text_of(form)


async def test_the_secret_leaves_the_address_at_once_and_is_kept_from_scripts(
    browser: OpenBrowser, db: Sessions
) -> None:
    secret = await link_for(db, Purpose.SETUP)

    reply = await (await browser(None)).get(f"/setup?secret={secret}")

    assert reply.headers["location"] == "/setup"
    assert reply.headers["referrer-policy"] == "same-origin"
    assert reply.headers["set-cookie"] == f"link={secret}; HttpOnly; Max-Age=3600; Path=/; SameSite=lax"


async def test_looking_at_the_link_does_not_use_it(browser: OpenBrowser, db: Sessions) -> None:
    secret = await link_for(db, Purpose.SETUP)
    page = await browser(None)
    for _ in range(3):
        await open_link(page, "/setup", secret)
        await page.get("/setup")

    reply = await submit(page, "/setup", **FORM)

    assert reply.status_code == 303


async def test_the_engine_that_was_found_is_shown(site: Site, browser: OpenBrowser, db: Sessions) -> None:
    await site.until_offered("fake-8b", "fake-70b")
    page = await browser(None)

    form = await open_link(page, "/setup", await link_for(db, Purpose.SETUP))

    assert "2 models are ready" in form.text


async def test_without_an_engine_the_page_says_so(settings: Settings, db: Sessions) -> None:
    async with Site(settings.model_copy(update={"engines": ()})) as site, Browser(site) as page:
        form = await open_link(page, "/setup", await link_for(db, Purpose.SETUP))

    assert "No engine with a model has answered yet" in form.text


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"password": "short"}, "This one has 5 characters; at least 15 are needed."),
        ({"password": ""}, "This one has 0 characters"),
        ({"email": "ines"}, "This does not look like an email address."),
        ({"name": " "}, "Please enter a name."),
        ({"company": "\0"}, "Please enter a name."),
    ],
)
async def test_a_wrong_field_is_told_and_everything_typed_is_kept_but_the_password(
    browser: OpenBrowser, db: Sessions, rows: Rows, wrong: dict[str, str], says: str
) -> None:
    page = await browser(None)
    await open_link(page, "/setup", await link_for(db, Purpose.SETUP))
    before = rows()
    typed = FORM | wrong

    reply = await submit(page, "/setup", **typed)

    assert reply.status_code == 422
    assert says in text_of(reply)
    for field in ("name", "email", "company"):
        assert value_of(reply, field).strip() == typed[field].strip(" \0")
    assert value_of(reply, "password") == ""
    assert NEW_PASSWORD not in reply.text
    assert rows() == before


async def test_an_address_that_is_taken_is_told_beside_the_field(
    browser: OpenBrowser, db: Sessions, alice: User
) -> None:
    page = await browser(None)
    await open_link(page, "/setup", await link_for(db, Purpose.SETUP))

    reply = await submit(page, "/setup", **FORM | {"email": alice.email})

    assert reply.status_code == 422
    assert "There is already an account for alice@corp.example." in text_of(reply)
    assert value_of(reply, "name") == "Ines Duarte"


async def test_the_link_works_once(browser: OpenBrowser, db: Sessions, rows: Rows) -> None:
    secret = await link_for(db, Purpose.SETUP)
    first, second, late = await browser(None), await browser(None), await browser(None)
    await open_link(first, "/setup", secret)
    await open_link(second, "/setup", secret)
    await submit(first, "/setup", **FORM)
    before = rows()

    replies = [
        await submit(second, "/setup", **FORM | {"email": "second@corp.example"}),
        await second.get("/setup"),
        await open_link(late, "/setup", secret),
    ]

    for reply in replies:
        assert reply.status_code == 410
        assert "This link no longer works" in text_of(reply)
        assert "parley setup-link" in text_of(reply)
    assert rows() == before


async def test_the_link_ends_after_an_hour(browser: OpenBrowser, db: Sessions, rows: Rows) -> None:
    page = await browser(None)
    await open_link(page, "/setup", await link_for(db, Purpose.SETUP))
    async with db.begin() as session:
        await session.execute(update(OneTimeLink).values(expires_at=now() - timedelta(seconds=1)))
    before = rows()

    shown, sent = await page.get("/setup"), await submit(page, "/setup", **FORM)

    assert (shown.status_code, sent.status_code) == (410, 410)
    assert rows() == before


@pytest.mark.parametrize("minutes", [1, 52])
async def test_the_page_says_how_long_the_link_works(browser: OpenBrowser, db: Sessions, minutes: int) -> None:
    page = await browser(None)
    secret = await link_for(db, Purpose.SETUP)
    async with db.begin() as session:
        await session.execute(update(OneTimeLink).values(expires_at=now() + timedelta(minutes=minutes)))

    form = await open_link(page, "/setup", secret)

    assert ("another minute." if minutes == 1 else "another 52 minutes.") in text_of(form)


async def test_a_secret_that_never_was_is_told_like_a_used_one(browser: OpenBrowser, db: Sessions, rows: Rows) -> None:
    await link_for(db, Purpose.SETUP)
    page = await browser(None)
    before = rows()

    for secret in ("", "nonsense", "%00", "%0d%0aset-cookie:x", "ü😀", "x" * 500, "a;b", "a b"):
        shown = await open_link(page, "/setup", secret)
        sent = await submit(page, "/setup", **FORM)

        assert (shown.status_code, sent.status_code) == (410, 410), secret
    assert rows() == before


async def test_nobody_without_the_secret_makes_an_account(browser: OpenBrowser, db: Sessions, rows: Rows) -> None:
    await link_for(db, Purpose.SETUP)
    page = await browser(None)
    before = rows()

    replies = {
        path: await submit(page, re.sub(r"\{\w+\}", _ANY_ID, path), **FORM, role="admin")
        for method, path in POLICY
        if method == "POST" and path.startswith(("/setup", "/join", "/settings", "/admin"))
    }

    assert {path: reply.status_code for path, reply in replies.items() if not 400 <= reply.status_code < 500} == {}
    assert rows() == before


async def test_thirty_set_ups_at_the_same_moment_make_one_administrator(
    browser: OpenBrowser, db: Sessions, rows: Rows
) -> None:
    page = await browser(None)
    await open_link(page, "/setup", await link_for(db, Purpose.SETUP))
    cookie = {"cookie": f"link={page.http.cookies['link']}"}

    replies = await asyncio.gather(
        *[page.post("/setup", FORM | {"email": f"admin{n}@corp.example"}, hx=False, headers=cookie) for n in range(30)]
    )

    assert sorted({reply.status_code for reply in replies} - {409, 410}) == [303]
    assert sum(reply.status_code == 303 for reply in replies) == 1
    assert len(rows()["users"]) == 1
    assert len(rows()["login_sessions"]) == 1


async def test_with_an_administrator_there_is_nothing_to_set_up(
    browser: OpenBrowser, db: Sessions, carol: User, rows: Rows
) -> None:
    page = await browser(None)
    await open_link(page, "/setup", await link_for(db, Purpose.SETUP))
    before = rows()

    reply = await submit(page, "/setup", **FORM)

    assert reply.status_code == 409
    assert "There is an administrator already." in text_of(reply)
    assert rows() == before


async def test_an_invitation_is_no_set_up_link(browser: OpenBrowser, db: Sessions, alice: User, rows: Rows) -> None:
    page = await browser(None)
    before_link = await link_for(db, Purpose.INVITATION, alice)
    before = rows()

    shown = await open_link(page, "/setup", before_link)
    sent = await submit(page, "/setup", **FORM)

    assert (shown.status_code, sent.status_code) == (410, 410)
    assert rows() == before


async def test_no_secret_and_no_password_gets_into_the_log(
    browser: OpenBrowser, db: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = await link_for(db, Purpose.SETUP)
    page = await browser(None)

    await open_link(page, "/setup", secret)
    await submit(page, "/setup", **FORM | {"password": "short-canary"})
    await submit(page, "/setup", **FORM)
    await submit(page, "/logout")
    await submit(page, "/login", email=FORM["email"], password="wrong-canary")

    # Of uvicorn's two loggers `parley serve` turns the one for accesses off; pytest listens to it all the same.
    others = ("httpx", "httpcore", "asyncio", "uvicorn.access")
    ours = [record for record in caplog.records if not record.name.startswith(others)]
    lines = json.dumps([vars(record) for record in ours], default=str)
    assert "/setup" in lines
    for canary in (secret, NEW_PASSWORD, "short-canary", "wrong-canary"):
        assert canary not in lines


_ANY_ID = "019a0000-0000-7000-8000-000000000000"

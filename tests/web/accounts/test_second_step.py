"""What comes after a right password: a second factor, a fresh sign-in, and no waiting for those who did nothing."""

import re

import pytest

from backend.accounts import rules
from backend.accounts.models import User
from backend.accounts.rules import Demand, Rules
from backend.core.db import Sessions
from backend.core.settings import Settings
from tests.accounts.conftest import sessions_of
from tests.conftest import PASSWORD, OpenBrowser, sign_in
from tests.second_factor import code_now, give_app
from tests.sessions import grow_old
from tests.site import Browser, Site
from tests.web.accounts.conftest import Rows, SignIn, submit, text_of, value_of
from web.policy import FRESH


async def test_somebody_with_an_app_enters_a_code_and_is_where_they_wanted_to_be(
    browser: OpenBrowser, db: Sessions, alice: User
) -> None:
    secret, _codes = await give_app(db, alice)
    page = await browser(None)

    asked = await submit(page, "/login", email=alice.email, password=PASSWORD, next="/settings/keys?x=1")
    form = await page.get(asked.headers["location"])
    wrong = await submit(page, "/login/second", code="000000", next=value_of(form, "next"))
    nowhere = await page.get("/settings")
    passed = await submit(page, "/login/second", code=await code_now(db, secret), next=value_of(wrong, "next"))

    assert (asked.status_code, wrong.status_code, nowhere.status_code) == (303, 401, 303)
    assert "This code is wrong" in text_of(wrong)
    assert passed.headers["location"] == "/settings/keys?x=1"
    assert "step" not in page.http.cookies
    assert (await page.get("/settings")).status_code == 200


async def test_without_the_first_half_there_is_no_second(browser: OpenBrowser, db: Sessions, alice: User) -> None:
    secret, codes = await give_app(db, alice)
    page = await browser(None)

    for cookie in ("", "step=made-up", "step=" + codes[0]):
        reply = await page.post(
            "/login/second", {"code": await code_now(db, secret)}, hx=False, headers={"cookie": cookie}
        )
        assert reply.status_code == 401
        assert "begin again" in text_of(reply)
    assert await sessions_of(db, alice) == 0


async def test_who_must_have_one_sees_the_key_and_then_the_recovery_codes_once(
    browser: OpenBrowser, db: Sessions, carol: User
) -> None:
    async with db.begin() as session:
        await rules.write(session, Rules(second_factor=Demand.ADMINS))
    page = await browser(None)

    asked = await submit(page, "/login", email=carol.email, password=PASSWORD)
    form = await page.get(asked.headers["location"])
    secret = re.sub(r"\s", "", re.search(r'id="app-secret">([A-Z2-7 ]+)<', form.text)[1])  # type: ignore[index]
    shown = await submit(page, "/login/second", code=await code_now(db, secret))

    assert "<svg" in form.text
    assert len(re.findall(r"<li><code>[a-z0-9-]{19}</code>", shown.text)) == 10
    assert (await page.get("/settings")).status_code == 200
    gone = await submit(page, "/settings/sign-in/app/remove")
    assert gone.status_code == 409
    assert "Your account needs a second factor" in text_of(gone)


async def test_what_the_deployment_says_counts_more_and_the_page_says_so(
    settings: Settings, db: Sessions, carol: User
) -> None:
    settings = settings.model_copy(update={"require_second_factor": "everybody"})
    async with Site(settings) as site, Browser(site, token=await sign_in(db, carol)) as admin, Browser(site) as page:
        shown = await admin.get("/admin/sign-in")
        asked = await submit(page, "/login", email=carol.email, password=PASSWORD)

    assert "PARLEY_REQUIRE_SECOND_FACTOR" in text_of(shown)
    assert asked.headers["location"] == "/login/second?next=/"


async def test_an_administrator_decides_who_needs_one(browser: OpenBrowser, db: Sessions, carol: User) -> None:
    page = await browser(carol)

    saved = await submit(page, "/admin/sign-in", second_factor="admins")
    odd = await submit(page, "/admin/sign-in", second_factor="some")

    assert (saved.status_code, odd.status_code) == (303, 422)
    async with db.begin() as session:
        assert (await rules.read(session)).second_factor is Demand.ADMINS


# A fresh sign-in


async def test_a_dangerous_page_asks_again_after_a_while_and_goes_on_from_there(
    signed_in: SignIn, site: Site, db: Sessions, carol: User
) -> None:
    page = await signed_in(carol)
    before = page.http.cookies["sid"]
    fresh = await page.get("/admin/sign-in")
    await grow_old(site.sessions, carol)

    asked = await page.get("/admin/sign-in?saved=1")
    form = await page.get(asked.headers["location"])
    reply = await submit(page, "/login", email=value_of(form, "email"), password=PASSWORD, next=value_of(form, "next"))

    assert fresh.status_code == 200
    assert asked.headers["location"] == "/login/again?next=/admin/sign-in%3Fsaved%3D1"
    assert reply.headers["location"] == "/admin/sign-in?saved=1"
    assert page.http.cookies["sid"] != before
    assert (await page.get("/admin/sign-in")).status_code == 200
    assert await sessions_of(db, carol) == 1


async def test_a_change_that_comes_too_late_is_not_made_and_can_be_sent_again(
    signed_in: SignIn, site: Site, db: Sessions, carol: User, rows: Rows
) -> None:
    page = await signed_in(carol)
    await grow_old(site.sessions, carol)
    before = rows()["users"]
    form = {"name": "Dora", "email": "dora@corp.example", "role": "member"}

    people = await page.get("/admin/people")
    late = await page.post("/admin/people", form, hx=False, headers={"referer": f"{page.http.base_url}/admin/people"})
    kept = rows()["users"]
    await submit(page, "/login", email=carol.email, password=PASSWORD)
    again = await page.post("/admin/people", form, hx=False)

    assert "confirm that it is you" in text_of(people)
    assert late.status_code == 403
    assert 'href="/login/again?next=/admin/people"' in late.text
    assert "reload this page" in text_of(late)
    assert [row[:5] for row in kept] == [row[:5] for row in before]
    assert again.status_code == 200


async def test_every_dangerous_route_asks(site: Site, browser: OpenBrowser, db: Sessions, carol: User) -> None:
    page = await browser(carol)
    await grow_old(site.sessions, carol)

    replies = {
        key: await (page.get(path) if key[0] == "GET" else submit(page, path))
        for key in FRESH
        for path in (re.sub(r"\{\w+\}", str(carol.id), key[1]),)
    }

    asked = {
        key: reply.headers["location"].startswith("/login/again") if key[0] == "GET" else reply.status_code == 403
        for key, reply in replies.items()
        if key[0] == "POST" or reply.status_code == 303
    }
    assert set(asked) == FRESH
    assert all(asked.values())


# Behind a proxy (ACC-05)


@pytest.fixture
def proxied(settings: Settings) -> Settings:
    return settings.model_copy(update={"trusted_proxies": ("127.0.0.1",)})


async def test_behind_a_proxy_a_stranger_slows_down_neither_the_person_nor_the_office(
    proxied: Settings, alice: User, bob: User
) -> None:
    async with Site(proxied) as site, Browser(site) as page:
        stranger = [await _try(page, alice, "wrong", "203.0.113.9") for _ in range(20)]
        right_too_late = await _try(page, alice, PASSWORD, "203.0.113.9")
        colleague = await _try(page, bob, PASSWORD, "203.0.113.9")
        herself = await _try(page, alice, PASSWORD, "198.51.100.7")

    assert set(stranger) == {401}
    assert (right_too_late, colleague, herself) == (401, 303, 303)


async def test_without_a_proxy_nobody_can_say_that_they_are_somebody_else(browser: OpenBrowser, alice: User) -> None:
    page = await browser(None)

    tries = [await _try(page, alice, "wrong", f"203.0.113.{number}") for number in range(5)]
    after = await _try(page, alice, PASSWORD, "198.51.100.7")

    assert (set(tries), after) == ({401}, 401)


async def _try(page: Browser, person: User, password: str, address: str) -> int:
    form = {"email": person.email, "password": password}
    return (await page.post("/login", form, hx=False, headers={"x-forwarded-for": address})).status_code

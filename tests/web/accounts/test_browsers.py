"""Where one is signed in, and what ends it (ACC-04)."""

from sqlalchemy import select

from backend.accounts import service
from backend.accounts.models import LoginSession, Role, User
from backend.core.db import Sessions
from backend.core.ids import new_id
from tests.accounts.conftest import sessions_of
from tests.conftest import PASSWORD, OpenBrowser
from tests.site import Browser, Site
from tests.web.accounts.conftest import SignIn, submit, text_of
from web.accounts.browsers import name_of

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
CHROME = "Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Mobile Safari/537.36"


def test_a_browser_has_the_name_its_owner_knows_it_by() -> None:
    assert name_of(FIREFOX) == "Firefox on Linux"
    assert name_of(CHROME) == "Chrome on Android"
    assert name_of(CHROME + " Edg/140.0") == "Edge on Android"
    assert name_of("curl/8") == "An unknown browser"


async def test_all_are_listed_and_this_one_is_marked_and_one_can_be_ended(
    browser: OpenBrowser, db: Sessions, alice: User, bob: User
) -> None:
    here, there, of_bob = await _signed_in(browser, alice), await _signed_in(browser, alice), await browser(bob)

    listed = text_of(await here.get("/settings/sessions"))
    ended = await submit(here, f"/settings/sessions/{await _newest(db, alice)}/end")

    assert listed.count("Firefox on Linux") == 2
    assert listed.count("This browser") == 1
    assert "from 127.0.0.1" in listed
    assert ended.headers["location"] == "/settings/sessions?ended=1"
    assert (await there.get("/settings")).status_code == 303
    assert (await here.get("/settings")).status_code == 200
    assert (await of_bob.get("/settings")).status_code == 200


async def test_all_others_end_or_all(browser: OpenBrowser, db: Sessions, alice: User) -> None:
    here, there = await _signed_in(browser, alice), await _signed_in(browser, alice)
    assert (await there.get("/settings")).status_code == 200

    await submit(here, "/settings/sessions/end-others")
    others = (await here.get("/settings")).status_code, (await there.get("/settings")).status_code
    everywhere = await submit(here, "/settings/sessions/end-all")

    assert others == (200, 303)
    assert everywhere.headers["location"] == "/login"
    assert await sessions_of(db, alice) == 0


async def test_the_browser_of_somebody_else_is_not_there(
    browser: OpenBrowser, db: Sessions, alice: User, bob: User
) -> None:
    page, of_bob = await browser(alice), await browser(bob)
    async with db.begin() as session:
        theirs = await session.scalar(select(LoginSession.id).where(LoginSession.user_id == bob.id))

    foreign, unknown = [await submit(page, f"/settings/sessions/{each}/end") for each in (theirs, new_id())]

    assert (foreign.status_code, unknown.status_code) == (404, 404)
    assert text_of(foreign) == text_of(unknown)
    assert (await of_bob.get("/settings")).status_code == 200


async def test_a_changed_role_and_a_closed_account_end_all_of_them_at_once(
    signed_in: SignIn, site: Site, alice: User, carol: User
) -> None:
    for change in (_promote, _disable):
        page = await signed_in(alice)
        assert (await page.get("/settings")).status_code == 200

        await change(site.sessions, alice)

        assert (await page.get("/settings")).status_code == 303


async def _signed_in(browser: OpenBrowser, person: User) -> Browser:
    page = await browser(None)
    form = {"email": person.email, "password": PASSWORD}
    await page.post("/login", form, hx=False, headers={"user-agent": FIREFOX})
    return page


async def _newest(db: Sessions, person: User) -> object:
    async with db.begin() as session:
        found = await session.scalars(select(LoginSession).where(LoginSession.user_id == person.id))
        return max(found, key=lambda row: row.created_at).id


async def _promote(db: Sessions, person: User) -> None:
    async with db.begin() as session:
        await service.change_role(session, await service.find_person(session, person.id), Role.ADMIN)


async def _disable(db: Sessions, person: User) -> None:
    async with db.begin() as session:
        await service.disable(session, await service.find_person(session, person.id))

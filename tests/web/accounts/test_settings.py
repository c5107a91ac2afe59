"""One's own settings."""

import asyncio

import pytest
from sqlalchemy import select, update

from backend.accounts.models import User
from backend.accounts.throttle import PER_MINUTE
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.settings import Settings
from backend.engines.models import DefaultModel
from tests.accounts.conftest import reread, sessions_of
from tests.conftest import PASSWORD, OpenBrowser, sign_in
from tests.site import Browser, Site
from tests.web.accounts.conftest import NEW_PASSWORD, Rows, SignIn, submit, text_of, value_of


async def test_name_and_time_zone_are_saved(browser: OpenBrowser, db: Sessions, alice: User) -> None:
    page = await browser(alice)

    reply = await submit(page, "/settings", name=" Alice \n Example ", time_zone="Asia/Tokyo")
    shown = await page.get(reply.headers["location"])

    assert reply.status_code == 303
    assert "Saved." in text_of(shown)
    assert value_of(shown, "name") == "Alice Example"
    assert '<option value="Asia/Tokyo" selected>' in shown.text
    assert 'data-zone="Asia/Tokyo"' in shown.text
    person = await reread(db, alice)
    assert (person.name, person.time_zone) == ("Alice Example", "Asia/Tokyo")


async def test_no_time_zone_is_the_one_of_the_browser(browser: OpenBrowser, db: Sessions, alice: User) -> None:
    page = await browser(alice)
    await submit(page, "/settings", name="Alice", time_zone="Asia/Tokyo")

    await submit(page, "/settings", name="Alice", time_zone="")

    assert (await reread(db, alice)).time_zone is None
    assert 'data-zone="Europe/Berlin"' in (await page.get("/settings")).text


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ({"name": ""}, "Please enter a name."),
        ({"name": " \0 "}, "Please enter a name."),
        ({"name": "Alice", "time_zone": "Mars/Base"}, "There is no such time zone."),
        ({"name": "Alice", "time_zone": "../../../etc/passwd"}, "There is no such time zone."),
        ({"name": "Alice", "time_zone": "Europe/\0Berlin"}, "There is no such time zone."),
    ],
)
async def test_a_wrong_field_is_told_and_nothing_is_saved(
    browser: OpenBrowser, alice: User, rows: Rows, typed: dict[str, str], says: str
) -> None:
    page = await browser(alice)
    before = rows()["users"]

    reply = await submit(page, "/settings", **typed)

    assert reply.status_code == 422
    assert says in text_of(reply)
    assert rows()["users"] == before


async def test_a_very_long_name_is_cut_at_a_word(browser: OpenBrowser, db: Sessions, alice: User) -> None:
    await submit(await browser(alice), "/settings", name="Alice " * 100)

    name = (await reread(db, alice)).name
    assert len(name) <= 100
    assert name.endswith("Alice…")


async def test_one_changes_oneself_whatever_else_is_sent(
    browser: OpenBrowser, db: Sessions, alice: User, bob: User
) -> None:
    page = await browser(bob)

    await submit(page, "/settings", name="Mallory", id=str(alice.id), user_id=str(alice.id), role="admin", email="x@y")

    assert (await reread(db, alice)).name == "Alice Owner"
    person = await reread(db, bob)
    assert (person.name, person.email, person.is_admin) == ("Mallory", "bob@corp.example", False)


@pytest.mark.parametrize("theme", ["light", "dark", "system"])
async def test_a_theme_is_kept_and_drawn_by_the_server(browser: OpenBrowser, alice: User, theme: str) -> None:
    page = await browser(alice)

    reply = await submit(page, "/settings/theme", theme=theme, next="/chat/7")
    shown = await page.get("/settings")

    assert (reply.status_code, reply.headers["location"]) == (303, "/chat/7")
    assert ('data-theme="' in shown.text) == (theme != "system")
    assert theme == "system" or f'<html lang="en" data-theme="{theme}">' in shown.text


async def test_a_theme_chosen_by_script_leaves_the_page_as_it_is(
    browser: OpenBrowser, db: Sessions, alice: User
) -> None:
    reply = await (await browser(alice)).post("/settings/theme", {"theme": "dark"}, hx=True)

    assert (reply.status_code, reply.text) == (204, "")
    assert not [name for name in reply.headers if name.startswith("hx-")]
    assert (await reread(db, alice)).theme == "dark"


@pytest.mark.parametrize("sent", [{}, {"theme": "pink"}, {"theme": ""}])
async def test_another_theme_is_refused(browser: OpenBrowser, alice: User, rows: Rows, sent: dict[str, str]) -> None:
    page = await browser(alice)
    before = rows()["users"]

    reply = await submit(page, "/settings/theme", **sent)

    assert reply.status_code == 422
    assert rows()["users"] == before


async def test_a_theme_leads_to_no_other_site(browser: OpenBrowser, alice: User) -> None:
    reply = await submit(await browser(alice), "/settings/theme", theme="dark", next="//evil.example")

    assert reply.headers["location"] == "/"


# The password


async def test_a_new_password_signs_out_everywhere_else_and_gives_this_browser_a_new_session(
    signed_in: SignIn, db: Sessions, alice: User
) -> None:
    here, elsewhere = await signed_in(alice), await signed_in(alice)
    old_token = here.http.cookies["sid"]

    reply = await submit(here, "/settings/password", current_password=PASSWORD, new_password=NEW_PASSWORD)
    shown = await here.get(reply.headers["location"])
    fragment = await elsewhere.get("/conversations", hx=True)
    page = await elsewhere.get("/settings")
    old_cookie = await elsewhere.get("/settings", headers={"cookie": f"sid={old_token}"})

    assert reply.status_code == 303
    assert "Your password is changed." in text_of(shown)
    assert here.http.cookies["sid"] != old_token
    assert (fragment.status_code, page.status_code, old_cookie.status_code) == (401, 303, 303)
    assert await sessions_of(db, alice) == 1


async def test_the_time_zone_of_the_browser_is_carried_over(
    signed_in: SignIn, browser: OpenBrowser, alice: User
) -> None:
    page = await browser(None)
    await submit(page, "/login", email=alice.email, password=PASSWORD, time_zone="Asia/Tokyo")

    await submit(page, "/settings/password", current_password=PASSWORD, new_password=NEW_PASSWORD)

    assert 'data-zone="Asia/Tokyo"' in (await page.get("/settings")).text


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ({"current_password": "wrong", "new_password": NEW_PASSWORD}, "This is not your password"),
        ({"new_password": NEW_PASSWORD}, "This is not your password"),
        ({"current_password": PASSWORD, "new_password": "short"}, "This one has 5 characters"),
        ({"current_password": PASSWORD}, "This one has 0 characters"),
    ],
)
async def test_a_wrong_old_or_a_weak_new_password_is_told_beside_its_field(
    browser: OpenBrowser, db: Sessions, alice: User, typed: dict[str, str], says: str
) -> None:
    elsewhere = await sign_in(db, alice)
    page = await browser(alice)

    reply = await submit(page, "/settings/password", **typed)

    assert reply.status_code == 422
    assert says in text_of(reply)
    assert NEW_PASSWORD not in reply.text
    assert PASSWORD not in reply.text
    assert (await page.get("/settings", headers={"cookie": f"sid={elsewhere}"})).status_code == 200
    assert (await reread(db, alice)).password_hash == alice.password_hash


async def test_who_found_an_open_browser_cannot_guess_the_password_there(
    browser: OpenBrowser, db: Sessions, alice: User
) -> None:
    page = await browser(alice)

    for guess in range(PER_MINUTE):
        await submit(page, "/settings/password", current_password=f"guess {guess}", new_password=NEW_PASSWORD)
    right = await submit(page, "/settings/password", current_password=PASSWORD, new_password=NEW_PASSWORD)

    assert right.status_code == 422
    assert (await reread(db, alice)).password_hash == alice.password_hash


async def test_many_changes_of_password_at_once_leave_connections_for_everybody_else(
    settings: Settings, db: Sessions, alice: User, bob: User
) -> None:
    """A hash is made while no connection is held: with two in all, somebody else's page still comes at once."""
    tokens = [await sign_in(db, alice), await sign_in(db, bob)]
    few = settings.model_copy(update={"database_connections": 2})
    async with Site(few) as site, Browser(site, token=tokens[0]) as page, Browser(site, token=tokens[1]) as other:
        hold, began = asyncio.Event(), asyncio.Event()
        hasher = site.state["passwords"]
        verify = hasher.verify

        async def slow(stored: str | None, password: str) -> bool:
            began.set()
            await hold.wait()
            return bool(await verify(stored, password))

        hasher.verify = slow
        changes = [
            asyncio.create_task(
                submit(page, "/settings/password", current_password=PASSWORD, new_password=NEW_PASSWORD)
            )
            for _ in range(4)
        ]
        await began.wait()

        shown = await asyncio.wait_for(other.get("/settings"), 2)
        hold.set()
        replies = await asyncio.gather(*changes)

    assert shown.status_code == 200
    assert sorted({reply.status_code for reply in replies} - {401, 422}) == [303]


async def test_a_disabled_person_is_locked_out_at_once(signed_in: SignIn, db: Sessions, alice: User) -> None:
    page = await signed_in(alice)

    async with db.begin() as session:
        await session.execute(update(User).where(User.id == alice.id).values(disabled_at=now()))

    assert (await page.get("/settings")).status_code == 303
    assert (await page.get("/conversations", hx=True)).status_code == 401
    assert (await submit(page, "/settings", name="Mallory")).status_code == 401
    assert (await reread(db, alice)).name == "Alice Owner"


async def test_the_settings_belong_to_somebody_signed_in(browser: OpenBrowser, rows: Rows, alice: User) -> None:
    page = await browser(None)
    before = rows()

    replies = [
        await page.get("/settings"),
        await submit(page, "/settings", name="Mallory"),
        await submit(page, "/settings/theme", theme="dark"),
        await submit(page, "/settings/password", current_password=PASSWORD, new_password=NEW_PASSWORD),
    ]

    assert [reply.status_code for reply in replies] == [303, 401, 401, 401]
    assert rows() == before


async def test_a_model_to_begin_with_is_chosen_and_given_back(
    browser: OpenBrowser, alice: User, site: Site, db: Sessions
) -> None:
    models = await site.until_offered("fake-8b", "fake-70b")
    page = await browser(alice)

    chosen = await submit(page, "/settings/model", model=str(models["fake-70b"]))
    shown = await page.get(chosen.headers["location"])
    refused = [await submit(page, "/settings/model", model=wrong) for wrong in (str(alice.id), "nonsense")]
    async with db.begin() as session:
        (own,) = (await session.scalars(select(DefaultModel))).all()
    await submit(page, "/settings/model", model="")
    given_back = await page.get("/settings")

    assert "Saved." in text_of(shown)
    assert f'<option value="{models["fake-70b"]}" selected>' in shown.text
    assert {reply.status_code for reply in refused} == {422}
    assert "This model is not here any more." in text_of(refused[0])
    assert (own.user_id, own.model_id) == (alice.id, models["fake-70b"])
    assert " selected>fake-70b" not in given_back.text

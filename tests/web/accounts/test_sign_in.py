"""Signing in and out, and what a session is worth."""

import asyncio
import re
from datetime import timedelta
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import delete, select, update

from backend.accounts import service
from backend.accounts.models import LoginSession, Role, SignInThrottle, User
from backend.accounts.throttle import PER_MINUTE
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.settings import Settings
from tests.accounts.conftest import sessions_of
from tests.conftest import PASSWORD, OpenBrowser, sign_in
from tests.site import Browser, Site
from tests.web.accounts.conftest import SignIn, submit, text_of, value_of


async def test_somebody_signs_in_and_is_taken_to_the_page_they_wanted(browser: OpenBrowser, alice: User) -> None:
    page = await browser(None)

    asked = await page.get("/settings?saved=profile")
    form = await page.get(asked.headers["location"])
    reply = await submit(
        page, "/login", email=alice.email, password=PASSWORD, next=value_of(form, "next"), time_zone="Asia/Tokyo"
    )
    wanted = await page.get(reply.headers["location"])

    assert asked.status_code == 303
    assert (reply.status_code, reply.headers["location"]) == (303, "/settings?saved=profile")
    assert "Alice Owner" in wanted.text


async def test_the_time_zone_of_the_browser_is_kept_with_the_session(
    browser: OpenBrowser, db: Sessions, alice: User
) -> None:
    await submit(await browser(None), "/login", email=alice.email, password=PASSWORD, time_zone="Asia/Tokyo")

    assert await _zone(db) == "Asia/Tokyo"


async def test_a_made_up_time_zone_is_none(browser: OpenBrowser, db: Sessions, alice: User) -> None:
    page = await browser(None)

    for made_up in ("", "Mars/Base", "../../etc/passwd", "a\0b", "x" * 5000):
        reply = await submit(page, "/login", email=alice.email, password=PASSWORD, time_zone=made_up)

        assert reply.status_code == 303, made_up
        assert await _zone(db) is None


async def test_unknown_wrong_disabled_invited_and_slowed_down_look_alike(
    browser: OpenBrowser, db: Sessions, alice: User, bob: User
) -> None:
    async with db.begin() as session:
        await session.execute(update(User).where(User.id == bob.id).values(disabled_at=now()))
        await service.add_person(session, name="Dora", email="dora@corp.example", role=Role.MEMBER)
    page = await browser(None)

    replies = [
        await submit(page, "/login", email="nobody@corp.example", password=PASSWORD),
        await submit(page, "/login", email=alice.email, password="wrong"),
        await submit(page, "/login", email=bob.email, password=PASSWORD),
        await submit(page, "/login", email="dora@corp.example", password=PASSWORD),
    ]
    for _ in range(PER_MINUTE):
        await submit(page, "/login", email=alice.email, password="wrong")
    replies.append(await submit(page, "/login", email=alice.email, password=PASSWORD))

    assert {reply.status_code for reply in replies} == {401}
    assert len({re.sub(r'value="[^"]*@corp.example"', "", reply.text) for reply in replies}) == 1
    assert "Email or password is wrong." in text_of(replies[0])
    assert all("set-cookie" not in reply.headers for reply in replies)


async def test_a_failed_try_keeps_the_address_and_the_way_but_not_the_password(
    browser: OpenBrowser, alice: User
) -> None:
    reply = await submit(await browser(None), "/login", email='a"<b>@x', password="my secret words", next="/settings")

    assert value_of(reply, "email") == 'a"<b>@x'
    assert value_of(reply, "next") == "/settings"
    assert "my secret words" not in reply.text


async def test_guesses_at_the_same_moment_are_counted_and_a_right_one_later_is_forgiven(
    browser: OpenBrowser, db: Sessions, alice: User
) -> None:
    page, counted = await browser(None), 0

    guesses = await asyncio.gather(
        *[submit(page, "/login", email=alice.email, password=f"guess {n}") for n in range(20)]
    )
    at_once = await submit(page, "/login", email=alice.email, password=PASSWORD)
    async with db.begin() as session:
        for row in await session.scalars(select(SignInThrottle)):
            row.recent = [each - timedelta(minutes=1) for each in row.recent]
            counted = row.tries if not row.network else counted
    later = await submit(page, "/login", email=alice.email, password=PASSWORD)

    assert {guess.status_code for guess in guesses} == {401}
    assert (counted, at_once.status_code, later.status_code) == (PER_MINUTE, 401, 303)
    async with db.begin() as session:
        assert {(row.tries, *row.recent) for row in await session.scalars(select(SignInThrottle))} == {(0,)}


async def test_one_account_being_guessed_at_does_not_keep_others_out(
    browser: OpenBrowser, alice: User, bob: User
) -> None:
    page = await browser(None)
    for _ in range(20):
        await submit(page, "/login", email=alice.email, password="wrong")

    reply = await submit(page, "/login", email=bob.email, password=PASSWORD)

    assert reply.status_code == 303


_ELSEWHERE = (
    "https://evil.example",
    "//evil.example",
    "///evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "/\t/evil.example",
    "\x01//evil.example",
    " //evil.example",
    "javascript:alert(1)",
    "http:evil.example",
    "evil.example",
    "//[",
    "/\r\nSet-Cookie: sid=x",
    "",
)


async def test_a_way_on_that_leads_elsewhere_leads_to_the_start_page(browser: OpenBrowser, alice: User) -> None:
    page, stranger = await browser(None), await browser(None)

    ways = {
        target: (
            value_of(await stranger.get("/login", params={"next": target}), "next"),
            value_of(await submit(stranger, "/login", email="nobody@x", password="wrong", next=target), "next"),
            _location(await submit(page, "/login", email=alice.email, password=PASSWORD, next=target)),
            _location(await page.get("/login", params={"next": target})),
        )
        for target in _ELSEWHERE
    }

    assert {target: way for target, way in ways.items() if set(way) != {"/"}} == {}


async def test_a_strange_path_of_ours_stays_on_our_side(browser: OpenBrowser, alice: User) -> None:
    reply = await submit(await browser(None), "/login", email=alice.email, password=PASSWORD, next="/%2f@ü?x=//y#z")

    location = urlsplit(reply.headers["location"])
    assert (location.scheme, location.netloc) == ("", "")


async def test_who_is_signed_in_needs_no_form(signed_in: SignIn, alice: User) -> None:
    page = await signed_in(alice)

    reply = await page.get("/login?next=/settings")

    assert (reply.status_code, reply.headers["location"]) == (303, "/settings")


async def test_where_nobody_is_administrator_the_page_says_how_to_make_one(browser: OpenBrowser) -> None:
    page = await browser(None)

    start = await page.get("/")
    form = await page.get(start.headers["location"])

    assert "Run “parley setup-link” on the server" in text_of(form)


async def test_once_there_is_one_the_page_says_nothing_of_it(browser: OpenBrowser, carol: User) -> None:
    form = await (await browser(None)).get("/login")

    assert "setup-link" not in form.text


# The cookie


async def test_over_http_the_cookie_is_kept_from_scripts_and_from_other_sites(
    browser: OpenBrowser, alice: User
) -> None:
    reply = await submit(await browser(None), "/login", email=alice.email, password=PASSWORD)

    name, attributes = _cookie(reply.headers.get_list("set-cookie"), "sid")
    assert name == "sid"
    assert attributes == {"httponly", "max-age=2592000", "path=/", "samesite=lax"}


async def test_over_https_it_is_secure_and_bound_to_the_host(settings: Settings, alice: User) -> None:
    async with Site(_https(settings)) as site, Browser(site) as page:
        reply = await submit(page, "/login", email=alice.email, password=PASSWORD)

    name, attributes = _cookie(reply.headers.get_list("set-cookie"), "sid")
    assert name == "__Host-sid"
    assert attributes == {"httponly", "max-age=2592000", "path=/", "samesite=lax", "secure"}


async def test_over_https_a_cookie_without_the_safe_name_is_nobody(
    settings: Settings, db: Sessions, alice: User
) -> None:
    token = await sign_in(db, alice)
    async with Site(_https(settings)) as site, Browser(site) as page:
        plain = await page.get("/settings", headers={"cookie": f"sid={token}"})
        bound = await page.get("/settings", headers={"cookie": f"__Host-sid={token}"})

    assert (plain.status_code, bound.status_code) == (303, 200)


async def test_a_session_id_planted_before_the_sign_in_is_worth_nothing_after_it(
    browser: OpenBrowser, db: Sessions, alice: User, bob: User
) -> None:
    planted = await sign_in(db, bob)
    page = await browser(None)

    reply = await page.post(
        "/login", {"email": alice.email, "password": PASSWORD}, hx=False, headers={"cookie": f"sid={planted}"}
    )

    token = reply.cookies["sid"]
    assert token != planted
    assert await sessions_of(db, bob) == 0
    assert await _status(await browser(None), planted) == 303
    assert await _status(await browser(None), token) == 200


@pytest.mark.parametrize(
    "cookie", ["sid=", "sid=nonsense", "sid=%00", 'sid="\\377"', "sid=" + "x" * 3000, "sid", "=;;"]
)
async def test_a_strange_cookie_is_nobody(browser: OpenBrowser, alice: User, cookie: str) -> None:
    page = await browser(None)

    reply = await page.get("/settings", headers={"cookie": cookie})
    form = await page.get("/login", headers={"cookie": cookie})

    assert (reply.status_code, form.status_code) == (303, 200)


# The end of a session


async def test_signing_out_ends_the_session_on_the_server_too(signed_in: SignIn, db: Sessions, alice: User) -> None:
    page = await signed_in(alice)
    copied = page.http.cookies["sid"]

    reply = await submit(page, "/logout")

    assert (reply.status_code, reply.headers["location"]) == (303, "/login")
    assert "sid" not in page.http.cookies
    assert reply.headers["clear-site-data"] == '"cache", "storage"'
    assert await sessions_of(db, alice) == 0
    assert await _status(page, copied) == 303


async def test_signing_out_in_one_browser_leaves_the_other(signed_in: SignIn, alice: User) -> None:
    one, other = await signed_in(alice), await signed_in(alice)

    await submit(one, "/logout")

    assert (await other.get("/settings")).status_code == 200


async def test_signing_out_without_a_session_is_no_fault(browser: OpenBrowser) -> None:
    reply = await submit(await browser(None), "/logout")

    assert (reply.status_code, reply.headers["location"]) == (303, "/login")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ({"public_url": "https://parley.corp.example"}, True),
        ({"public_url": "http://parley.corp.example", "host": "0.0.0.0", "insecure_http": True}, False),
    ],
)
async def test_the_browser_is_told_to_forget_where_it_listens(
    settings: Settings, address: dict[str, object], says: bool
) -> None:
    async with Site(settings.model_copy(update=address)) as site, Browser(site) as page:
        reply = await submit(page, "/logout")

    assert ("clear-site-data" in reply.headers) == says


async def test_no_page_is_kept_by_the_browser_so_back_shows_nothing_after_signing_out(
    signed_in: SignIn, alice: User
) -> None:
    page = await signed_in(alice)

    replies = [await page.get(path) for path in ("/", "/settings", "/login", "/nowhere")]

    for reply in replies:
        assert reply.headers["cache-control"] == "no-store"
        assert {"HX-Request", "Cookie"} <= set(reply.headers["vary"].replace(",", " ").split())


@pytest.mark.parametrize(
    "ended", [{"last_seen_at": timedelta(hours=-12)}, {"expires_at": timedelta(0)}], ids=["idle", "too old"]
)
async def test_a_session_that_idled_or_grew_old_leads_to_sign_in(
    signed_in: SignIn, db: Sessions, alice: User, ended: dict[str, timedelta]
) -> None:
    page, other = await signed_in(alice), await signed_in(alice)
    before = await other.get("/settings")

    async with db.begin() as session:
        await session.execute(update(LoginSession).values({name: now() + shift for name, shift in ended.items()}))
    after = await page.get("/settings")

    assert before.status_code == 200
    assert (after.status_code, after.headers["location"]) == (303, "/login?next=/settings")


async def test_a_lost_session_is_told_to_a_fragment_by_a_header_and_to_a_stream_by_its_status(
    browser: OpenBrowser, alice: User
) -> None:
    page = await browser(None)
    shown = {"hx-current-url": "http://127.0.0.1/chat/7"}

    fragment = await page.get("/conversations", hx=True, headers=shown)
    one = "00000000-0000-0000-0000-000000000000"
    stream = await page.get(f"/chat/{one}/messages/{one}/events", hx=True, headers=shown)
    send = await page.post("/chat", {"text": "One?"}, headers=shown)
    plain_send = await submit(page, "/chat", text="One?")

    assert (fragment.status_code, fragment.headers["hx-redirect"]) == (401, "/login?next=/chat/7")
    for reply in (stream, send):
        assert (reply.status_code, reply.headers["hx-trigger"]) == (401, "parley:signed-out")
        assert "hx-redirect" not in reply.headers
    assert plain_send.status_code == 401
    assert "You were signed out" in text_of(plain_send)


async def test_a_session_whose_row_is_gone_is_over(signed_in: SignIn, db: Sessions, alice: User) -> None:
    page = await signed_in(alice)

    async with db.begin() as session:
        await session.execute(delete(LoginSession))

    assert (await page.get("/settings")).status_code == 303


def _location(reply: httpx.Response) -> str:
    return reply.headers["location"]


async def _status(page: Browser, token: str) -> int:
    """What the settings answer to a browser with this token."""
    return (await page.get("/settings", headers={"cookie": f"sid={token}"})).status_code


async def _zone(db: Sessions) -> str | None:
    async with db.begin() as session:
        return (await session.scalars(select(LoginSession.time_zone))).one()


def _https(settings: Settings) -> Settings:
    return settings.model_copy(update={"public_url": "https://parley.corp.example"})


def _cookie(headers: list[str], ending: str) -> tuple[str, set[str]]:
    """The name and the attributes of the cookie whose name ends so."""
    (found,) = [header for header in headers if header.partition("=")[0].endswith(ending)]
    pair, *attributes = found.split("; ")
    return pair.partition("=")[0], {attribute.lower() for attribute in attributes}

"""Who may call what: the table, and that nothing gets past it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI
from sqlalchemy import update
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Host, Mount, Route

from backend.accounts.models import LoginSession, User
from backend.accounts.sessions import Lifetime
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.errors import AppError
from backend.core.ids import new_id
from backend.core.settings import Settings
from backend.main import create_app
from tests.conftest import OpenBrowser, sign_in
from tests.site import Browser
from tests.web.accounts.conftest import Rows
from web import policy
from web.policy import POLICY, Access, PolicyBroken

ADMINISTRATION = set(Access) - {Access.PUBLIC, Access.SIGNED_IN, Access.KEY}


def test_every_route_of_the_site_has_a_row_and_every_row_a_route(settings: Settings) -> None:
    app = create_app(settings)

    policy.check(app.routes)


def test_a_route_without_a_row_stops_the_start() -> None:
    routes = [*_routes(), Route("/backdoor", _hello)]

    with pytest.raises(PolicyBroken, match="/backdoor"):
        policy.check(routes)


def test_another_method_of_a_known_path_is_a_route_of_its_own() -> None:
    routes = [*_routes(), Route("/settings", _hello, methods=["DELETE"])]

    with pytest.raises(PolicyBroken, match=r"'DELETE', '/settings'"):
        policy.check(routes)


def test_a_row_without_a_route_stops_the_start() -> None:
    routes = [route for route in _routes() if getattr(route, "path", None) != "/settings"]

    with pytest.raises(PolicyBroken, match=r"without a route: .*'/settings'"):
        policy.check(routes)


def test_a_route_nobody_can_read_stops_the_start() -> None:
    routes = [*_routes(), Host("admin.corp.example", PlainTextResponse("hello"))]

    with pytest.raises(PolicyBroken, match="cannot tell"):
        policy.check(routes)


def test_asking_for_the_head_of_a_page_needs_no_row_of_its_own() -> None:
    routes = _routes()

    policy.check(routes)

    assert any("HEAD" in (getattr(route, "methods", None) or ()) for route in routes)


async def test_a_route_that_slipped_past_the_check_is_not_there(db: Sessions) -> None:
    async with _app(db) as client:
        known, unknown = await client.get("/login"), await client.get("/backdoor")

    assert (known.status_code, unknown.status_code) == (200, 404)
    assert "hello" not in unknown.text


async def test_where_anybody_may_come_nobody_is_looked_up(
    browser: OpenBrowser, db: Sessions, alice: User, rows: Rows
) -> None:
    token = await sign_in(db, alice)
    page = await browser(None)
    cookie = {"cookie": f"sid={token}"}
    async with db.begin() as session:
        await session.execute(update(LoginSession).values(last_seen_at=now() - timedelta(hours=1)))
    before = rows()["login_sessions"]

    await page.get("/healthz", headers=cookie)
    await page.post("/csp-report", headers=cookie, content=b"{}")

    assert rows()["login_sessions"] == before


async def test_strangers_get_to_sign_in_from_everywhere(browser: OpenBrowser, rows: Rows) -> None:
    page = await browser(None)
    before = rows()

    found = {key: _kind(await _call(page, key)) for key in _guarded(Access.SIGNED_IN, *ADMINISTRATION)}

    assert {key: kind for key, kind in found.items() if kind != "sign in"} == {}
    assert rows() == before


async def test_for_members_the_administration_is_not_there(
    browser: OpenBrowser, alice: User, carol: User, rows: Rows
) -> None:
    page = await browser(alice)
    before = rows()

    found = {key: await _call(page, key, person=carol) for key in _guarded(*ADMINISTRATION)}
    nowhere = await page.get("/admin/nowhere")

    assert {key: reply.status_code for key, reply in found.items() if reply.status_code != 404} == {}
    assert rows() == before
    assert _without_ids(found["GET", "/admin/people"]) == _without_ids(nowhere)


async def test_administrators_get_past_the_table(browser: OpenBrowser, carol: User) -> None:
    page = await browser(carol)

    found = {key: await _call(page, key) for key in _guarded(*ADMINISTRATION) if key[0] == "GET"}

    assert {key: _kind(reply) for key, reply in found.items() if not _is_past(key[1], reply)} == {}


def _is_past(path: str, reply: httpx.Response) -> bool:
    """The route itself answered; about an id that nothing has it says so in words of its own."""
    nothing_has_it = "{" in path and reply.status_code == 404 and "There is no page here." not in reply.text
    return nothing_has_it or _kind(reply) in ("page", "elsewhere")


# Requests from other sites

_HEADERS: list[dict[str, str]] = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
    {"sec-fetch-site": ""},
    {"sec-fetch-site": "cross-site", "origin": "{origin}"},
    {"sec-fetch-site": "cross-site", "authorization": "Bearer x"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "{origin}.evil.example"},
    {"referer": "{origin}/settings"},
    {},
]


# The sink of reports, and a provider's logout, which is signed and looks at no cookie.
_NO_AUTHORITY = ("/csp-report", "/login/backchannel/{slug}")


async def test_a_change_that_another_site_asks_for_is_refused_everywhere(
    browser: OpenBrowser, carol: User, rows: Rows, settings: Settings
) -> None:
    page = await browser(carol)
    del page.http.headers["sec-fetch-site"]
    before = rows()

    found = {
        (path, *headers.items()): (await _call(page, (method, path), person=carol, headers=sent)).status_code
        for headers in _HEADERS
        for sent in ({name: value.format(origin=settings.origin) for name, value in headers.items()},)
        for (method, path), access in POLICY.items()
        if method == "POST" and path not in _NO_AUTHORITY and access is not Access.KEY
    }

    assert {key: status for key, status in found.items() if status != 403} == {}
    assert rows() == before


async def test_no_other_site_can_ask_the_api_anything_in_a_persons_name(
    browser: OpenBrowser, carol: User, settings: Settings
) -> None:
    """A key is nothing that a browser sends by itself, so where a request comes from does not matter there."""
    page = await browser(carol)

    found = [
        await _call(page, key, headers=sent)
        for headers in (*_HEADERS, {"sec-fetch-site": "same-origin"})
        for sent in ({name: value.format(origin=settings.origin) for name, value in headers.items()},)
        for key in _guarded(Access.KEY)
    ]

    assert {reply.status_code for reply in found} == {401}
    assert not [reply for reply in found if "access-control-allow-origin" in reply.headers]


async def test_an_old_browser_that_says_only_its_origin_is_believed(
    browser: OpenBrowser, carol: User, settings: Settings
) -> None:
    page = await browser(carol)
    del page.http.headers["sec-fetch-site"]

    reply = await page.post("/settings", {"name": "Carol"}, hx=False, headers={"origin": settings.origin})

    assert reply.status_code == 303


async def test_a_link_from_another_site_arrives_signed_in(browser: OpenBrowser, alice: User) -> None:
    page = await browser(alice)

    reply = await page.get("/settings", headers={"sec-fetch-site": "cross-site"})

    assert reply.status_code == 200


def _guarded(*access: Access) -> list[tuple[str, str]]:
    return [key for key, needed in POLICY.items() if needed in access]


async def _call(
    page: Browser, key: tuple[str, str], *, person: User | None = None, headers: dict[str, str] | None = None
) -> httpx.Response:
    """The route with ids that fit its address, and a form that would be taken."""
    method, path = key
    ids = {"person_id": str(person.id)} if person else {}
    path = re.sub(r"\{(\w+)\}", lambda found: ids.get(found[1], str(new_id())), path)
    if method == "GET":
        return await page.get(path, headers=headers or {})
    form = {"name": "x", "email": "x@y", "role": "member", "theme": "dark", "password": "x", "new_password": "x"}
    form |= {"model": str(new_id()), "key": str(new_id()), "text": "One?", "title": "x"}
    return await page.post(path, form, hx=False, headers=headers or {})


def _kind(reply: httpx.Response) -> str:
    if reply.headers.get("location", "").startswith("/login"):
        return "sign in"
    if reply.status_code == 401 and ('href="/login"' in reply.text or "signed-out" in reply.headers["hx-trigger"]):
        return "sign in"
    return "elsewhere" if reply.status_code == 303 else "page" if reply.status_code == 200 else str(reply.status_code)


def _without_ids(reply: httpx.Response) -> str:
    return re.sub(r"<footer>.*?</footer>", "", reply.text, flags=re.DOTALL)


def _routes() -> list[BaseRoute]:
    """A route for each row of the table. To Starlette a GET route answers HEAD, too."""
    return [
        Mount(path, routes=[]) if path == "/static" else Route(path, _hello, methods=[method])
        for method, path in POLICY
    ]


async def _say(request: Request, error: Exception) -> PlainTextResponse:
    assert isinstance(error, AppError)
    return PlainTextResponse(str(error), error.status)


async def _hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


@asynccontextmanager
async def _app(db: Sessions) -> AsyncIterator[httpx.AsyncClient]:
    """A small site under the same table, one of whose routes has no row."""
    router = APIRouter()
    router.add_api_route("/login", _hello)
    router.add_api_route("/backdoor", _hello)
    state: dict[str, Any] = {"sessions": db, "lifetime": Lifetime(timedelta(1), timedelta(1))}

    app = FastAPI(dependencies=[Depends(policy.authorize)])
    app.include_router(router)
    app.add_exception_handler(AppError, _say)

    async def with_state(scope: Any, receive: Any, send: Any) -> None:
        await app(scope | {"state": dict(state)}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(with_state), base_url="http://test") as client:
        yield client

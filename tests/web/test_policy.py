"""Who may call which route, decided in one table before any route runs."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, Request
from sqlalchemy import text
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute

from backend.accounts.models import User
from backend.accounts.sessions import Lifetime
from backend.core.bus import Bus
from backend.core.db import Session, Sessions
from backend.core.errors import Conflict
from tests.conftest import sign_in
from tests.web.small import small_site
from web import policy
from web.logins import Logins
from web.policy import POLICY, Access, PolicyBroken
from web.streaming import OpenStreams

router = APIRouter()
ROWS = {
    ("GET", "/for-all"): Access.PUBLIC,
    ("POST", "/for-all"): Access.PUBLIC,
    ("GET", "/for-people"): Access.SIGNED_IN,
    ("POST", "/for-people"): Access.SIGNED_IN,
    ("GET", "/for-people/{thing}"): Access.SIGNED_IN,
    ("GET", "/refusing"): Access.SIGNED_IN,
    ("GET", "/for-admins"): Access.PEOPLE,
}


@router.api_route("/for-all", methods=["GET", "POST"])
@router.api_route("/for-people", methods=["GET", "HEAD", "POST"])
@router.get("/for-people/{thing}")
@router.get("/for-admins")
@router.get("/forgotten")
async def who(session: Session) -> Response:
    """Whom the database was told about."""
    return PlainTextResponse(await session.scalar(text("SELECT current_setting('parley.person', true)")) or "nobody")


@router.get("/refusing")
async def refusing(request: Request, session: Session) -> Response:
    raise Conflict("This has changed meanwhile.")


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, access in ROWS.items():
        monkeypatch.setitem(POLICY, key, access)


LIFETIME = Lifetime(timedelta(hours=12), timedelta(days=7))


@pytest.fixture
async def state(db: Sessions, database: str) -> AsyncIterator[dict[str, Any]]:
    async with Bus(database) as bus:
        yield {"sessions": db, "lifetime": LIFETIME, "logins": Logins(db, bus, OpenStreams())}


@pytest.fixture
async def client(state: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    async with small_site(router, dependencies=(policy.authorize,), **state) as client:
        client.headers["sec-fetch-site"] = "same-origin"
        yield client


async def test_a_route_runs_for_its_person(client: httpx.AsyncClient, db: Sessions, alice: User) -> None:
    client.cookies["sid"] = await sign_in(db, alice)

    first, remembered = await client.get("/for-people"), await client.get("/for-people")

    assert (first.status_code, first.text) == (200, str(alice.id))
    assert (remembered.status_code, remembered.text) == (200, str(alice.id))


async def test_anybody_may_come_where_the_table_says_so(client: httpx.AsyncClient) -> None:
    assert (await client.get("/for-all")).text == "nobody"
    assert (await client.post("/for-all")).text == "nobody"


@pytest.mark.parametrize("token", [None, "", "made-up", "\u00fc", "x" * 3_000])
async def test_who_is_not_signed_in_is_sent_to_sign_in_and_back(client: httpx.AsyncClient, token: str | None) -> None:
    headers = {} if token is None else {b"cookie": f"sid={token}".encode()}

    reply = await client.get("/for-people?page=2", headers=headers)

    assert (reply.status_code, reply.headers["location"]) == (303, "/login?next=/for-people%3Fpage%3D2")


async def test_a_send_without_a_session_changes_nothing_and_says_so(client: httpx.AsyncClient) -> None:
    page = await client.post("/for-people")
    fragment = await client.post("/for-people", headers={"hx-request": "true"})

    assert page.status_code == 401
    assert "so nothing was done" in page.text
    assert (fragment.status_code, fragment.headers["hx-trigger"]) == (401, "parley:signed-out")


async def test_a_member_does_not_learn_that_there_is_an_admin_page(
    client: httpx.AsyncClient, db: Sessions, alice: User, carol: User
) -> None:
    client.cookies["sid"] = await sign_in(db, alice)
    hidden, unknown = await client.get("/for-admins"), await client.get("/nowhere")
    client.cookies["sid"] = await sign_in(db, carol)
    shown = await client.get("/for-admins")

    assert (hidden.status_code, unknown.status_code, shown.status_code) == (404, 404, 200)
    assert "There is no page here." in hidden.text
    assert "There is no page here." in unknown.text


async def test_a_route_that_the_table_forgot_is_closed_to_everybody(
    client: httpx.AsyncClient, db: Sessions, carol: User
) -> None:
    client.cookies["sid"] = await sign_in(db, carol)

    assert (await client.get("/forgotten")).status_code == 404


async def test_head_is_allowed_where_get_is(client: httpx.AsyncClient, db: Sessions, alice: User) -> None:
    assert (await client.head("/for-people")).status_code == 303

    client.cookies["sid"] = await sign_in(db, alice)

    assert (await client.head("/for-people")).status_code == 200


async def test_the_table_holds_for_every_object_below_an_address(client: httpx.AsyncClient) -> None:
    assert (await client.get("/for-people/7")).status_code == 303


async def test_a_refusal_is_explained_to_its_person(client: httpx.AsyncClient, db: Sessions, alice: User) -> None:
    """The transaction is rolled back before the page is drawn, and the page still knows its reader's time zone."""
    client.cookies["sid"] = await sign_in(db, alice)

    reply = await client.get("/refusing")

    assert reply.status_code == 409
    assert "This has changed meanwhile." in reply.text


async def test_over_https_only_the_protected_cookie_counts(db: Sessions, alice: User, state: dict[str, Any]) -> None:
    """A neighbour on another name of the domain can set `sid`, but not `__Host-sid`."""
    token = await sign_in(db, alice)
    site = small_site(router, origin="https://chat.test", dependencies=(policy.authorize,), **state)
    async with site as client:
        plain = await client.get("/for-people", headers={"cookie": f"sid={token}"})
        protected = await client.get("/for-people", headers={"cookie": f"__Host-sid={token}"})

    assert (plain.status_code, protected.status_code) == (303, 200)


# The table and the routes


async def nothing(_request: Request) -> Response:
    return PlainTextResponse("")


def routes_of(table: dict[tuple[str, str], Access]) -> list[Route | Mount]:
    return [
        Mount(path, app=PlainTextResponse("")) if path == "/static" else Route(path, nothing, methods=[method])
        for method, path in table
    ]


def test_a_table_and_routes_that_match_may_start() -> None:
    policy.check(routes_of(POLICY))


def test_a_route_without_a_row_must_not_start() -> None:
    with pytest.raises(PolicyBroken, match=r"without a row: .*'DELETE', '/everything'"):
        policy.check([*routes_of(POLICY), Route("/everything", nothing, methods=["DELETE"])])


def test_a_row_without_a_route_must_not_start() -> None:
    """It would let in whatever is given that address later."""
    with pytest.raises(PolicyBroken, match=r"without a route: .*'GET', '/healthz'"):
        policy.check([route for route in routes_of(POLICY) if route.path != "/healthz"])


def test_a_kind_of_route_that_the_table_cannot_close_must_not_start() -> None:
    with pytest.raises(PolicyBroken, match="cannot tell"):
        policy.check([*routes_of(POLICY), WebSocketRoute("/socket", nothing)])


@pytest.mark.parametrize("path", [path for _method, path in POLICY if path.startswith("/admin")])
def test_administration_is_for_administrators(path: str) -> None:
    found = {access for (_method, row), access in POLICY.items() if row == path}

    assert found <= set(Access) - {Access.PUBLIC, Access.SIGNED_IN, Access.KEY}

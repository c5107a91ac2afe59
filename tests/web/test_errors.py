"""Failures as their readers meet them: a page, a toast, or a way back in."""

from collections.abc import AsyncIterator
from typing import Annotated
from uuid import UUID

import httpx
import psycopg
import pytest
from fastapi import APIRouter, Form
from hypothesis import given, settings, strategies as st
from sqlalchemy.exc import OperationalError, ProgrammingError, TimeoutError as PoolTimeout
from starlette.responses import Response

from backend.core import errors
from tests.web.small import Lines, log, small_site
from web.errors import safe_next

__all__ = ["log"]

router = APIRouter()
ERRORS: dict[str, Exception] = {
    "422": errors.BadInput("Please enter a title."),
    "401": errors.NotSignedIn("Please sign in."),
    "403": errors.Forbidden("This came from elsewhere."),
    "404": errors.NotFound("There is no conversation here."),
    "409": errors.Conflict("An answer is still being written <here>."),
    "413": errors.TooLarge("Too many bytes."),
    "429": errors.TooMany("Wait a minute.", retry_after=60),
    "503": errors.Unavailable("Parley is restarting.", retry_after=5),
    "database-gone": OperationalError("SELECT geheim", {}, psycopg.OperationalError("server closed the connection")),
    "pool-empty": PoolTimeout("QueuePool limit"),
    "wrong-statement": ProgrammingError("SELECT geheim", {}, psycopg.errors.UndefinedTable("no such table")),
}


@router.api_route("/raises/{kind}", methods=["GET", "POST"])
async def raises(kind: str) -> Response:
    raise ERRORS[kind]


@router.post("/things/{thing_id}")
async def change(thing_id: UUID, model: Annotated[UUID, Form()], key: Annotated[UUID, Form()]) -> Response:
    raise AssertionError("never reached")


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with small_site(router) as client:
        client.headers["sec-fetch-site"] = "same-origin"
        yield client


HX = {"hx-request": "true"}
KINDS = ("403", "404", "409", "413", "422", "429", "503")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_page_says_what_happened_and_offers_a_way_on(client: httpx.AsyncClient, kind: str) -> None:
    reply = await client.get(f"/raises/{kind}")

    assert reply.status_code == int(kind)
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert str(ERRORS[kind]).replace("<here>", "&lt;here&gt;") in reply.text
    assert f"Error {kind}" in reply.text
    assert '<a class="button primary" href="/">New chat</a>' in reply.text
    assert "<h1>Something went wrong</h1>" not in reply.text, "each expected failure has a heading of its own"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_fragment_becomes_a_toast(client: httpx.AsyncClient, kind: str) -> None:
    reply = await client.post(f"/raises/{kind}", headers=HX)

    assert reply.status_code == int(kind)
    assert (reply.headers["hx-retarget"], reply.headers["hx-reswap"]) == ("#toasts", "beforeend")
    assert str(ERRORS[kind]).replace("<here>", "&lt;here&gt;") in reply.text
    assert "<html" not in reply.text


@pytest.mark.parametrize(("kind", "seconds"), [("429", "60"), ("503", "5"), ("409", None)])
async def test_programs_are_told_when_to_come_back(client: httpx.AsyncClient, kind: str, seconds: str | None) -> None:
    page, toast = await client.get(f"/raises/{kind}"), await client.get(f"/raises/{kind}", headers=HX)

    assert page.headers.get("retry-after") == seconds
    assert toast.headers.get("retry-after") == seconds


# Signed out


async def test_a_page_sends_to_sign_in_and_back(client: httpx.AsyncClient) -> None:
    reply = await client.get("/raises/401?page=2&q=a b")

    assert reply.status_code == 303
    assert reply.headers["location"] == "/login?next=/raises/401%3Fpage%3D2%26q%3Da%2520b"


async def test_a_form_without_script_is_not_lost_in_a_redirect(client: httpx.AsyncClient) -> None:
    reply = await client.post("/raises/401")

    assert reply.status_code == 401
    assert "You were signed out meanwhile, so nothing was done." in reply.text
    assert '<a class="button primary" href="/login">Sign in</a>' in reply.text


@pytest.mark.parametrize(
    ("shown", "back"),
    [
        ("http://parley.test/chat/1?x=2", "/chat/1"),
        ("https://evil.example/chat/1", "/chat/1"),  # only a path is taken from it
        ("https://evil.example//evil.example", "/"),
        ("http://[", "/"),
        ("", "/"),
    ],
)
async def test_a_fragment_sends_the_whole_page_to_sign_in(client: httpx.AsyncClient, shown: str, back: str) -> None:
    """WEB-07: the sign-in page is never swapped into a part of another."""
    reply = await client.get("/raises/401", headers={**HX, "hx-current-url": shown})

    assert (reply.status_code, reply.headers["hx-redirect"], reply.text) == (401, f"/login?next={back}", "")


async def test_a_stream_is_told_and_never_redirected(client: httpx.AsyncClient) -> None:
    """WEB-06: the page shows the way in and stops asking."""
    reply = await client.get("/raises/401", headers={"accept": "text/event-stream"})

    assert (reply.status_code, reply.headers["hx-trigger"], reply.text) == (401, "parley:signed-out", "")


async def test_a_send_keeps_its_page(client: httpx.AsyncClient) -> None:
    reply = await client.post("/raises/401", headers=HX)

    assert (reply.status_code, reply.headers["hx-reswap"], reply.headers["hx-trigger"]) == (
        401,
        "none",
        "parley:signed-out",
    )


# What others raise


async def test_a_wrong_method_is_told_which_are_right(client: httpx.AsyncClient) -> None:
    reply = await client.get("/things/1")

    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
    assert "This address does not take that kind of request." in reply.text


@pytest.mark.parametrize("identity", ["1", "00000000-0000-0000-0000-00000000000g", "%00", "'--"])
async def test_an_id_that_is_none_is_simply_not_there(client: httpx.AsyncClient, identity: str) -> None:
    form = {"model": str(UUID(int=1)), "key": str(UUID(int=2))}

    reply = await client.post(f"/things/{identity}", data=form)

    assert reply.status_code == 404


async def test_a_form_that_is_incomplete_is_told_what_is_missing(client: httpx.AsyncClient) -> None:
    reply = await client.post(f"/things/{UUID(int=1)}", data={"model": "abc"})

    assert reply.status_code == 422
    assert "Something is missing or wrong: key, model." in reply.text


@pytest.mark.parametrize("kind", ["database-gone", "pool-empty"])
async def test_while_the_database_is_away_people_are_told(client: httpx.AsyncClient, log: Lines, kind: str) -> None:
    """DB-03: 503 with Retry-After, no statement and no traceback."""
    reply = await client.get(f"/raises/{kind}")

    assert (reply.status_code, reply.headers["retry-after"]) == (503, "5")
    assert "The database does not answer right now." in reply.text
    assert "geheim" not in reply.text + log.text
    assert "Traceback" not in log.text


async def test_a_statement_that_is_wrong_is_a_fault_of_ours(client: httpx.AsyncClient, log: Lines) -> None:
    reply = await client.get("/raises/wrong-statement")

    assert reply.status_code == 500
    assert "geheim" not in reply.text
    assert "UndefinedTable" in log.text


# The way back after signing in


@pytest.mark.parametrize("target", ["/", "/chat/1", "/chat/1?after=2#end", "/suche?q=ü ö"])
def test_the_way_back_is_kept(target: str) -> None:
    assert safe_next(target) == target


@pytest.mark.parametrize(
    "target",
    [
        "",
        "chat",
        "https://evil.example/",
        "//evil.example/",
        "///evil.example/",
        "/\\evil.example/",
        "\\\\evil.example/",
        "/\t/evil.example/",
        "/\n/evil.example/",
        " //evil.example/",
        "javascript:alert(1)",
        "//[",
        "/\u202emoc.live",
        "/\ud800",
    ],
)
def test_the_way_back_never_leads_elsewhere(target: str) -> None:
    assert safe_next(target) == "/"


@settings(deadline=None)
@given(st.text(st.one_of(st.sampled_from("/\\:.@?#[]\t\n e"), st.characters(codec=None))))
def test_a_browser_stays_with_us_wherever_it_is_sent(target: str) -> None:
    """As browsers read an address: white space at the ends, tabs and line breaks go, a backslash is a slash."""
    way = safe_next(target)

    read = way.strip(" \0").replace("\t", "").replace("\n", "").replace("\r", "").replace("\\", "/")
    assert read.startswith("/")
    assert not read.startswith("//")

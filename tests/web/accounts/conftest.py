"""People who come in by the front door."""

import re
from collections.abc import Awaitable, Callable, Iterator
from html import unescape
from typing import Any

import httpx
import psycopg
import pytest

from backend.accounts.models import User
from tests.conftest import PASSWORD, OpenBrowser
from tests.site import Browser

NEW_PASSWORD = "another fine password"

SignIn = Callable[[User], Awaitable[Browser]]
Rows = Callable[[], dict[str, list[Any]]]


@pytest.fixture
def signed_in(browser: OpenBrowser) -> SignIn:
    """`await signed_in(alice)`: through the sign-in page, so that the browser holds the cookie it was given."""

    async def by_the_page(person: User) -> Browser:
        page = await browser(None)
        reply = await submit(page, "/login", email=person.email, password=PASSWORD)
        assert reply.status_code == 303
        return page

    return by_the_page


@pytest.fixture
def rows(owner_url: str) -> Iterator[Rows]:
    """Everything that is stored about people, to compare before and after."""
    yield from stored_rows(owner_url)


def stored_rows(owner_url: str) -> Iterator[Rows]:
    tables = ("users", "login_sessions", "one_time_links", "settings")
    with psycopg.connect(owner_url, autocommit=True) as connection:
        yield lambda: {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in tables}


async def submit(page: Browser, path: str, /, **fields: str) -> httpx.Response:
    """Submit a plain form, as a browser without script does; it names the type also where no field is sent."""
    return await page.post(path, fields, hx=False, headers={"content-type": "application/x-www-form-urlencoded"})


async def open_link(page: Browser, path: str, secret: str) -> httpx.Response:
    """Open a one-time link and follow its redirect."""
    reply = await page.get(f"{path}?secret={secret}")
    return await page.get(reply.headers["location"]) if reply.status_code == 303 else reply


def text_of(reply: httpx.Response) -> str:
    """What a person reads on the page."""
    main = re.search(r"<main.*?</main>", reply.text, re.DOTALL)
    assert main, reply.text
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", main[0])).split())


def value_of(reply: httpx.Response, field: str) -> str:
    """What stands in a field of the page's form; an empty one has no value."""
    found = re.search(rf'<input[^>]*\bname="{field}"[^>]*>', reply.text)
    assert found, f"no field {field}"
    value = re.search(r'\bvalue="([^"]*)"', found[0])
    return unescape(value[1]) if value else ""

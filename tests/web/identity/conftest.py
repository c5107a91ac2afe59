"""A company sign-in: a provider that is set up here, and a browser that goes there and back."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from backend.identity import providers
from backend.identity.entrance import Doors
from backend.identity.models import IdentityProvider
from backend.identity.providers import Draft
from backend.identity.rules import Rules, Unknown
from tests.fakes.identity import CLIENT_ID, SECRET, FakeProvider
from tests.site import Browser, Site

OPEN = Rules(unknown=Unknown.CREATE)


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


SetUp = Callable[..., Awaitable[IdentityProvider]]


@pytest.fixture
def set_up(site: Site, provider: FakeProvider) -> SetUp:
    """`await set_up(link_by_email=True)`: the provider with these rules, switched on."""

    async def add(slug: str = "corp", *, enabled: bool = True, **rules: Any) -> IdentityProvider:
        draft = Draft(slug.title(), slug, provider.issuer, CLIENT_ID, SECRET, replace(OPEN, **rules))
        async with site.sessions.begin() as session:
            added = await providers.add(session, doors(site).secrets, draft)
            added.enabled = enabled
        return added

    return add


def doors(site: Site) -> Doors:
    found: Doors = site.state["doors"]
    return found


async def leave(page: Browser, path: str = "/login/with/corp") -> str:
    """Follow the link to the provider, and be signed in there: the address to which it sends the browser back."""
    reply = await page.get(path)
    assert reply.status_code == 303, reply.text
    async with httpx.AsyncClient(verify=False) as outside:
        there = await outside.get(reply.headers["location"])
    assert there.status_code == 303, there.text
    back: str = there.headers["location"]
    return back


async def come_back(page: Browser, address: str) -> httpx.Response:
    parts = urlsplit(address)
    return await page.get(f"{parts.path}?{parts.query}")


async def come_in(page: Browser, path: str = "/login/with/corp") -> httpx.Response:
    return await come_back(page, await leave(page, path))

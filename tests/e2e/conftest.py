"""A real Chromium in front of the whole site. Every page is watched: a script error, a broken policy or a request to
another host fails the test, whatever else it was about."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from uuid import UUID

import pytest
import pytest_asyncio
from playwright.async_api import Browser as Chromium, Locator, Page, Request, async_playwright, expect

from backend.accounts.models import User
from backend.core.db import Sessions
from tests.conftest import sign_in
from tests.fakes.engine import FakeEngine
from tests.site import Site

# Nothing here takes long, but a shared machine may stand still for some seconds.
expect.set_options(timeout=20_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/e2e/" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)


@dataclass
class Watch:
    """What went wrong on the pages of a test without anybody asking."""

    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def expect(self, *words: str) -> None:
        """Forget the errors that hold one of these words: the test caused them."""
        self.errors = [error for error in self.errors if not any(word in error for word in words)]


@pytest.fixture
def _function_scoped_runner(_session_scoped_runner: asyncio.Runner) -> asyncio.Runner:
    """One event loop for all of them, against pytest-asyncio's one for each: Playwright's own process belongs to the
    loop that started it, and takes as long to start as a page to open."""
    return _session_scoped_runner


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium(chromium_address: str) -> AsyncIterator[Chromium]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(chromium_address)
        yield browser
        await browser.close()


@pytest.fixture
def watch() -> Watch:
    return Watch()


OpenPage = Callable[..., Awaitable[Page]]


@pytest.fixture
async def open_page(chromium: Chromium, site: Site, db: Sessions, watch: Watch) -> AsyncIterator[OpenPage]:
    """`await open_page(alice)`: a signed-in browser at the start page; options are Playwright's for a context."""
    origin = site.settings.origin
    async with AsyncExitStack() as stack:

        async def open_for(person: User | None, path: str = "/", **options: object) -> Page:
            given = {"viewport": {"width": 1280, "height": 860}, "timezone_id": "Europe/Berlin"} | options
            context = await chromium.new_context(base_url=origin, **given)  # type: ignore[arg-type]
            stack.push_async_callback(context.close)
            context.set_default_timeout(10_000)
            if person is not None:
                await context.add_cookies([{"name": "sid", "value": await sign_in(db, person), "url": origin}])
            await context.grant_permissions(["clipboard-read", "clipboard-write"], origin=origin)
            context.on("page", lambda page: _listen(page, watch, origin))
            page = await context.new_page()
            await page.goto(path)
            return page

        yield open_for
    assert watch.errors == []
    assert watch.foreign == []


def _listen(page: Page, watch: Watch, origin: str) -> None:
    def request(one: Request) -> None:
        watch.requests.append(f"{one.method} {one.url}")
        if not one.url.startswith((origin, "data:", "blob:", "about:")):
            watch.foreign.append(one.url)

    page.on("request", request)
    page.on("pageerror", lambda error: watch.errors.append(str(error)))
    page.on("console", lambda said: watch.errors.append(said.text) if said.type == "error" else None)
    page.on("dialog", lambda dialog: watch.errors.append(f"a dialog: {dialog.message}"))


@dataclass
class Desk:
    """Alice in front of her browser."""

    page: Page
    site: Site
    engine: FakeEngine
    models: dict[str, UUID]

    @property
    def box(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message", exact=True)

    @property
    def answers(self) -> Locator:
        return self.page.locator("article.assistant")

    async def send(self, text: str) -> None:
        await self.box.fill(text)
        await self.box.press("Enter")

    async def ask(self, text: str) -> Locator:
        """Send, and wait until the answer is complete."""
        before = await self.answers.count()
        await self.send(text)
        await expect(self.answers).to_have_count(before + 1)
        answer = self.answers.nth(before)
        await expect(answer).not_to_have_attribute("aria-busy", "true", timeout=15_000)
        return answer


@pytest.fixture
async def desk(open_page: OpenPage, site: Site, engine: FakeEngine, alice: User) -> Desk:
    models = await site.until_offered("fake-8b", "fake-70b")
    return Desk(await open_page(alice), site, engine, models)

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.web.js.stage import Stage

expect.set_options(timeout=20_000)  # a machine that other tests keep busy may be slow


@pytest.fixture(scope="package")
def chromium(chromium_address: str) -> Iterator[Browser]:
    """Gone after the tests of this folder: while it is connected, no other event loop can run here."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(chromium_address)
        yield browser
        browser.close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as running:
        yield running
    assert running.violations == []


OpenTab = Callable[..., Page]


@pytest.fixture
def tab(chromium: Browser, stage: Stage) -> Iterator[OpenTab]:
    """`tab("/chat/c1")` opens a page; an exception in one of our scripts fails the test."""
    faults: list[str] = []
    contexts: dict[bool, BrowserContext] = {}

    def open_tab(path: str, *, touch: bool = False, before: str = "") -> Page:
        if touch not in contexts:
            contexts[touch] = chromium.new_context(
                base_url=stage.url,
                permissions=["clipboard-read", "clipboard-write"],
                viewport={"width": 390, "height": 844} if touch else {"width": 1280, "height": 800},
                has_touch=touch,
                is_mobile=touch,
            )
            contexts[touch].set_default_timeout(10_000)
        page = contexts[touch].new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        if before:
            page.add_init_script(before)
        page.goto(path)
        return page

    yield open_tab
    for context in contexts.values():
        context.close()
    assert faults == []

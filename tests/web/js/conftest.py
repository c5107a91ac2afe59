import os
import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.web.js.stage import Stage

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


expect.set_options(timeout=20_000)  # a machine that other tests keep busy may be slow


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One for each module, and gone after it: while it runs, no other event loop can run here."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not path:
        pytest.fail("There is no Chromium here. Install it: apt-get install chromium (or set CHROMIUM to its path).")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
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

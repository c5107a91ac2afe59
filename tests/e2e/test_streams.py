"""Streams in a real browser: cut, hidden, left, refused."""

import asyncio

import pytest
from playwright.async_api import Page, expect

from backend.accounts import sessions
from backend.accounts.models import User
from backend.core.db import Sessions
from tests.e2e.conftest import Desk, Watch
from tests.fakes.engine import Pause
from tests.fakes.script import Step

pytestmark = pytest.mark.long

# What is easily lost on the way: indents, empty lines, tables, a heading, fences.
PIECES = [
    "| a | b |", "\n", "|---|---|", "\n", "| 1 | 2 |", "\n\n", "###", " Title", "\n\n", "```py\n", "    x = 1", "\n\n",
    "\ty", "\n", "```", "\n\n", "- one\n", "- two\n", "  - three\n\n", "A last *word* & <b>tag</b>.",
]  # fmt: skip


async def test_the_live_page_equals_the_reloaded_one(desk: Desk) -> None:
    """WEB-01"""
    desk.engine.script = [piece for text in PIECES for piece in (text, Pause(0.03))]
    live = await desk.ask("Everything please")
    html = "document.querySelector('article.assistant .prose').innerHTML"
    await expect(live.get_by_role("button", name="Copy code")).to_be_visible()
    before = await desk.page.evaluate(html)

    await desk.page.reload()
    await expect(desk.answers.get_by_role("button", name="Copy code")).to_be_visible()

    assert await desk.page.evaluate(html) == before
    assert await desk.page.evaluate("document.querySelector('.code code').textContent") == "    x = 1\n\n\ty"
    await expect(desk.answers.get_by_role("heading", name="Title")).to_be_visible()
    await expect(desk.answers.get_by_role("cell", name="2")).to_be_visible()
    await expect(desk.answers).to_contain_text("A last word & <b>tag</b>.")


async def test_a_cut_connection_shows_each_word_once(desk: Desk, watch: Watch) -> None:
    """WEB-02"""
    words = [f"word{number} " for number in range(60)]
    script: list[Step] = []
    for number, word in enumerate(words):
        script += [word + ("\n\n" if number % 7 == 0 else ""), Pause(0.04)]
    desk.engine.script = script
    await desk.send("Sixty words")

    for shown in ("word10 ", "word30 ", "word31 "):
        await expect(desk.answers).to_contain_text(shown)
        desk.site.cut_connections()
    await expect(desk.answers).not_to_have_attribute("aria-busy", "true", timeout=15_000)

    text = " " + " ".join((await desk.answers.locator(".prose").inner_text()).split()) + " "
    assert [text.count(f" {word}") for word in words] == [1] * 60
    watch.expect("network error", "ERR_", "Failed to load")


async def test_nothing_is_asked_of_a_stream_that_is_over(desk: Desk, watch: Watch) -> None:
    """WEB-03: the cases say sixty seconds; a reconnect would come within the first."""
    await desk.ask("Hello")
    watch.requests.clear()

    await desk.page.wait_for_timeout(4000)

    assert [request for request in watch.requests if "/events" in request] == []


async def test_one_tab_holds_one_stream(desk: Desk) -> None:
    """WEB-04"""
    desk.engine.hold()
    addresses = []
    for number in range(5):
        await desk.page.goto("/")
        await desk.send(f"Question {number}")
        await expect(desk.answers).to_have_count(1)
        addresses.append(desk.page.url)

    for address in addresses:
        await desk.page.goto(address)
        await expect(desk.answers).to_have_count(1)
    await desk.page.wait_for_timeout(500)

    assert desk.site.open_streams == 1
    desk.engine.release()


async def test_eight_tabs_do_not_freeze_the_site(desk: Desk) -> None:
    """WEB-05: over HTTP/1.1 a browser has six connections."""
    desk.engine.hold()
    tabs: list[Page] = []
    for number in range(8):
        tab = await desk.page.context.new_page()
        tabs.append(tab)
        await tab.goto("/")
        if number < 6:
            await tab.get_by_role("textbox", name="Message", exact=True).fill(f"Question {number}")
            await tab.keyboard.press("Enter")
            await expect(tab.locator("article.assistant")).to_have_count(1)

    async with asyncio.timeout(20):  # a browser without a free connection would wait for ever
        await tabs[7].reload()
        await expect(tabs[7].get_by_role("textbox", name="Message", exact=True)).to_be_visible()
        box = tabs[7].get_by_role("textbox", name="Message", exact=True)
        await box.fill("Still usable?")
        await box.press("Enter")
        await expect(tabs[7].locator("article.you")).to_contain_text("Still usable?")
    desk.engine.release()
    await expect(tabs[7].locator("article.assistant")).not_to_have_attribute("aria-busy", "true", timeout=15_000)


async def test_a_revoked_session_is_not_hammered(desk: Desk, watch: Watch, db: Sessions, alice: User) -> None:
    """WEB-06: at once a way back in, and no more questions to the stream."""
    desk.engine.script = ("Well, ", asyncio.Event())
    await desk.send("Hello")
    await expect(desk.answers).to_contain_text("Well,")
    watch.requests.clear()

    async with db.begin() as session:
        await sessions.close_all_of(session, alice.id)  # which ends what is open, too
    await expect(desk.page.get_by_role("dialog", name="You were signed out")).to_be_visible(timeout=10_000)
    await desk.page.wait_for_timeout(3000)

    assert len([request for request in watch.requests if "/events" in request]) <= 3
    await expect(desk.answers).to_contain_text("Well,")
    watch.expect("401", "network error", "ERR_", "Failed to load")


async def test_a_hidden_tab_learns_of_the_end(desk: Desk) -> None:
    go_on = asyncio.Event()
    desk.engine.script = ("Half of ", go_on, "it.")
    await desk.send("Hello")
    await expect(desk.answers).to_contain_text("Half of")

    await _hide(desk.page, hidden=True)
    await desk.page.wait_for_timeout(300)
    assert desk.site.open_streams == 0
    go_on.set()
    await desk.page.wait_for_timeout(300)
    await _hide(desk.page, hidden=False)

    await expect(desk.answers).to_contain_text("Half of it.")
    await expect(desk.answers).not_to_have_attribute("aria-busy", "true")


async def _hide(page: Page, *, hidden: bool) -> None:
    """Chromium without a window has no hidden tabs, so the page is told that it is one."""
    state = "hidden" if hidden else "visible"
    await page.evaluate(
        "([hidden, state]) => {"
        " Object.defineProperty(document, 'hidden', {configurable: true, get: () => hidden});"
        " Object.defineProperty(document, 'visibilityState', {configurable: true, get: () => state});"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        [hidden, state],
    )


async def test_closing_the_tab_never_stops_an_answer(desk: Desk) -> None:
    """LIFE-03"""
    go_on = asyncio.Event()
    desk.engine.script = ("Half of ", go_on, "it.")
    await desk.send("Hello")
    await expect(desk.answers).to_contain_text("Half of")
    address = desk.page.url

    await desk.page.goto("about:blank")
    go_on.set()
    await desk.engine.until(lambda fake: fake.running == 0)
    await desk.page.goto(address)

    await expect(desk.answers).to_contain_text("Half of it.")
    await expect(desk.answers).not_to_contain_text("stopped")

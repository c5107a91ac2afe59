"""Every control of every page is pressed once, under the production policy."""

import pytest
from playwright.async_api import Page, TimeoutError as TooSlow

from backend.accounts.models import User
from tests.e2e.conftest import Desk, OpenPage, Watch

# Links lead to pages, and those are visited. What is in a menu is pressed, too.
KINDS = ("button", "summary", "select", "input[type=radio]")
CONTROLS = ", ".join(f"{kind}:visible, .menu {kind}" for kind in KINDS)


async def press_everything(page: Page, path: str) -> int:
    """Load `path` and press its first control, load it again and press the second, and so on; returns how many."""
    number = 0
    fresh = False
    while True:
        if not fresh:
            await page.goto("about:blank")  # whatever the last press began is over
            await page.goto(path)
            fresh = True
        controls = page.locator(CONTROLS)
        if number >= await controls.count():
            return number
        control = controls.nth(number)
        menu = await control.evaluate("button => button.closest('.menu')?.id")
        if menu and not await control.is_visible():
            await page.locator(f"[popovertarget={menu}]:visible").last.click()
        if (await control.text_content() or "").strip() != "Sign out":
            try:
                await control.click(timeout=1500)
            except TooSlow:
                await control.evaluate("element => element.click()")
            await page.wait_for_timeout(100)
            # A page that only opened a menu or changed a colour is as good as a new one.
            fresh = page.url.endswith(path) and not await page.locator("dialog[open], .notice:visible").count()
        number += 1


@pytest.mark.timeout(300)
async def test_a_member_presses_everything(desk: Desk, watch: Watch) -> None:
    """WEB-10: not one report of a broken policy, not one error in the console."""
    desk.engine.script = ("```py\nx = 1\n```\n\n| a |\n|---|\n| 1 |\n\n$$x$$ [a link](https://example.org/)",)
    await desk.ask("Everything")
    chat = desk.page.url

    pressed = await press_everything(desk.page, "/") + await press_everything(desk.page, chat)
    pressed += await press_everything(desk.page, "/settings")

    assert pressed > 15
    assert not [request for request in watch.requests if "csp-report" in request]
    watch.foreign = [address for address in watch.foreign if address != "https://example.org/"]
    watch.expect("404", "ERR_")  # the conversation is gone after "Delete conversation"


@pytest.mark.timeout(300)
async def test_an_administrator_presses_everything(open_page: OpenPage, carol: User, alice: User, watch: Watch) -> None:
    page = await open_page(carol)

    pressed = await press_everything(page, "/admin/people") + await press_everything(page, "/admin/engines")

    assert pressed > 10
    assert not [request for request in watch.requests if "csp-report" in request]
    watch.expect("409", "422")  # the last administrator, an empty form


async def test_the_policy_is_in_force(desk: Desk, watch: Watch) -> None:
    """The watch of these tests would see a violation."""
    await desk.page.evaluate(
        "document.body.append(Object.assign(document.createElement('style'), {textContent: 'x{}'}))"
    )
    await desk.page.wait_for_timeout(300)

    assert any("Content Security Policy" in error for error in watch.errors)
    watch.expect("Content Security Policy")

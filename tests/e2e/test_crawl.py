"""Every control of every page is pressed once, under the production policy."""

from contextlib import suppress

import pytest
from playwright.async_api import Error as BrowserError, Page, TimeoutError as TooSlow
from sqlalchemy import update

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.engines.models import Engine, Model, Source
from backend.engines.parameters import ADJUSTABLE
from backend.groups import service as groups
from tests.e2e.conftest import Desk, OpenPage, Watch
from tests.site import Site

pytestmark = pytest.mark.long

# Links lead to pages, and those are visited. What is in a menu is pressed, too.
KINDS = ("button:enabled:not(select button)", "summary", "select", "input[type=radio]")
CONTROLS = ", ".join(f"{kind}:visible, .menu {kind}" for kind in KINDS)
# The same button of another message or row is the same control.
KIND_OF = """
elements => elements.map(element => JSON.stringify([
  element.tagName, element.type, element.name, element.type === "radio" && element.value,
  element.getAttribute("aria-label") || element.textContent.trim(),
  element.getAttribute("popovertarget"), element.getAttribute("command"), Object.keys(element.dataset).join(),
  (element.form?.getAttribute("action") || "").replace(/(?<=\\/)(-|[0-9a-f-]{36})(?=\\/|$)/g, ""),
]))
"""


async def visit(page: Page, path: str) -> None:
    """Again where what was pressed last leads to another page only now."""
    while True:
        try:
            await page.goto(path, wait_until="domcontentloaded")
            return
        except BrowserError as error:
            if "interrupted by another navigation" not in error.message:
                raise


async def press_everything(page: Page, path: str, pressed: set[str]) -> None:
    """Press one control of each kind that `path` has and that was not pressed yet, also those that come up meanwhile.

    What deletes comes last, because it takes other controls with it.
    """
    fresh = False
    while True:
        if loaded := not fresh:
            await visit(page, path)
        controls = page.locator(CONTROLS)
        try:
            kinds = await controls.evaluate_all(KIND_OF)
        except BrowserError as error:
            if "most likely because of a navigation" not in error.message:
                raise
            continue
        left = [(number, kind) for number, kind in enumerate(kinds) if kind not in pressed]
        if not left and loaded:
            return
        fresh = False
        if not left:
            continue
        number, kind = min(left, key=lambda each: ("Delete" in each[1], each[0]))
        control = controls.nth(number)
        try:
            menu = await control.evaluate("button => button.closest('.menu')?.id", timeout=2000)
        except TooSlow:
            continue  # an answer ended meanwhile, and its Stop is gone
        pressed.add(kind)
        if menu and not await control.is_visible():
            await page.locator(f"[popovertarget={menu}]:visible").last.click()
        if "Sign out" not in kind:
            try:
                await control.click(timeout=500)
            except TooSlow:
                with suppress(TooSlow):  # gone
                    await control.evaluate("element => element.click()", timeout=2000)
            await page.wait_for_timeout(60)
        if await page.locator("dialog[open]").count():
            await page.keyboard.press("Escape")
        # A page that only opened a menu or changed a colour is as good as a new one.
        fresh = page.url.endswith(path) and not await page.locator("dialog[open], .notice:visible").count()


@pytest.mark.timeout(300)
async def test_a_member_presses_everything(desk: Desk, db: Sessions, watch: Watch) -> None:
    """WEB-10: not one report of a broken policy, not one error in the console."""
    async with db.begin() as session:
        await session.execute(update(Model).values(adjustable=[*ADJUSTABLE]))
    await desk.site.registry.reload()
    await desk.page.reload()
    desk.engine.script = ("```py\nx = 1\n```\n\n| a |\n|---|\n| 1 |\n\n$$x$$ [a link](https://example.org/)",)
    await desk.ask("Everything")
    chat = desk.page.url

    pressed: set[str] = set()
    for path in ("/", chat, "/settings", "/settings/keys"):
        await press_everything(desk.page, path, pressed)

    assert len(pressed) > 35
    assert not [request for request in watch.requests if "csp-report" in request]
    watch.foreign = [address for address in watch.foreign if address != "https://example.org/"]
    watch.expect("404", "ERR_")  # the conversation is gone after "Delete conversation"


@pytest.mark.timeout(300)
async def test_an_administrator_presses_everything(
    open_page: OpenPage, carol: User, alice: User, db: Sessions, site: Site, watch: Watch
) -> None:
    model = next(iter((await site.until_offered()).values()))
    async with db.begin() as session:
        group = await groups.create(session, "Lab")
        await groups.add_member(session, group, carol)
        spare = Engine(name="Spare", url="http://127.0.0.1:9", source=Source.DATABASE)  # nobody answers there
        session.add(spare)
    page = await open_page(carol)

    pressed: set[str] = set()
    of_models = ["engines", f"engines/{spare.id}", "models", f"models/{model}"]
    pages = [
        "people",
        f"people/{alice.id}",
        "sign-in",
        "sign-in/providers",
        "policy",
        "audit",
        *of_models,
        "groups",
        f"groups/{group.id}?q=alice",
    ]
    for path in pages:
        await press_everything(page, f"/admin/{path}", pressed)

    assert len(pressed) > 12
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

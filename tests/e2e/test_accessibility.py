"""Every page and state: no serious finding of axe, the promised names, and all of it by keyboard."""

import asyncio
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Page, expect

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.groups import service as groups
from backend.identity import providers
from backend.identity.rules import Rules
from tests.e2e.conftest import Desk, OpenPage, Watch
from tests.fakes.engine import FakeEngine, Thought, refusal
from tests.site import Site

RICH = (
    "## Title\n\n| a | b |\n|--:|---|\n| 1 | 2 |\n\n```py\nx = 1\n```\n\n- [x] done\n\n$$x^2$$\n\n"
    "Text[^1].\n\n[^1]: Note."
)


async def findings(page: Page) -> list[str]:
    """What axe calls serious or critical, a line each."""
    await page.evaluate(AXE_SCRIPT)
    results: dict[str, Any] = await page.evaluate("axe.run()")
    return [
        f"{violation['id']}: {node['html'][:200]}"
        for violation in results["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


async def test_every_page_and_state(desk: Desk, engine: FakeEngine) -> None:
    assert await findings(desk.page) == []  # nothing asked yet

    engine.plan((Thought("hm"), RICH), ("Half of ", asyncio.Event()), refusal(500, "no"))
    await desk.ask("Everything")
    assert await findings(desk.page) == []

    await desk.send("Slowly")
    await expect(desk.answers.last).to_contain_text("Half of")
    assert await findings(desk.page) == []  # while it streams

    await desk.page.keyboard.press("Escape")
    await expect(desk.answers.last).to_contain_text("You stopped")
    await desk.ask("Fail")
    assert await findings(desk.page) == []  # stopped and failed answers

    engine.plan(("Short.",))
    await desk.answers.last.get_by_role("button", name="Answer in another way").click()
    assert await findings(desk.page) == []  # a menu of a message
    await desk.page.get_by_role("button", name="Shorter").click()
    await expect(desk.answers.last).to_contain_text("Short.")
    await desk.page.get_by_role("button", name="Edit", exact=True).last.click()
    await expect(desk.page.get_by_role("textbox", name="Edit this question")).to_be_focused()
    assert await findings(desk.page) == []  # versions, and the editor
    await desk.page.keyboard.press("Escape")

    await desk.page.get_by_role("button", name="More", exact=True).click()
    await desk.page.get_by_role("button", name="Delete", exact=True).click()
    assert await findings(desk.page) == []  # a dialog


@pytest.mark.long
async def test_dark_and_on_a_phone(open_page: OpenPage, site: Site, alice: User, engine: FakeEngine) -> None:
    await site.until_offered("fake-8b")
    page = await open_page(alice, color_scheme="dark", viewport={"width": 360, "height": 740})
    engine.script = (RICH,)
    await page.get_by_role("textbox", name="Message", exact=True).fill("Everything")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator("article.assistant")).not_to_have_attribute("aria-busy", "true")

    assert await findings(page) == []
    await page.get_by_role("button", name="Open sidebar").click()
    assert await findings(page) == []


@pytest.mark.long
async def test_the_other_pages(open_page: OpenPage, carol: User, db: Sessions, site: Site, watch: Watch) -> None:
    model = next(iter((await site.until_offered()).values()))
    engine_id = site.registry.engines[0].id
    async with db.begin() as session:
        group = await groups.create(session, "Lab")
        await groups.add_member(session, group, carol)
        doors = site.state["doors"]
        draft = providers.Draft("Corp", "corp", "https://sso.corp.example", "parley", "", Rules())
        provider = await providers.add(session, doors.secrets, draft)
        provider.enabled = True
    admin, nobody = await open_page(carol, "/admin/people"), await open_page(None, "/login")

    assert await findings(nobody) == []
    of_models = ["engines", f"engines/{engine_id}", "models", f"models/{model}"]
    of_sign_in = ["sign-in", "sign-in/providers", "sign-in/providers/new", f"sign-in/providers/{provider.id}"]
    of_admins = ["people", *of_sign_in, "audit?q=a", *of_models, "groups", f"groups/{group.id}?q=a"]
    for path in (
        *(f"/admin/{page}" for page in of_admins),
        "/settings",
        "/settings/keys",
        "/settings/data",
        "/admin",
        "/admin/policy",
        f"/admin/people/{carol.id}",
        f"/admin/people/{carol.id}/erase",
        "/settings/sessions",
        "/settings/sign-in",
        "/settings/company",
        "/chat/00000000-0000-0000-0000-000000000000",
    ):
        await admin.goto(path)
        assert await findings(admin) == [], path
    watch.expect("404")


async def test_the_promised_names_are_there(desk: Desk, engine: FakeEngine) -> None:
    await desk.ask("Hello")
    engine.script = ("Half of ", asyncio.Event())
    await desk.send("Again")
    await expect(desk.answers.last).to_contain_text("Half of")
    page = desk.page

    await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    for name in ("Copy", "Edit", "Regenerate"):
        await expect(page.get_by_role("button", name=name, exact=True).first).to_be_attached()
    await expect(page.get_by_role("link", name="New chat", exact=True)).to_be_visible()
    await expect(page.get_by_role("combobox", name="Model", exact=True)).to_be_visible()
    await expect(page.get_by_role("navigation", name="Conversations", exact=True)).to_be_visible()
    log = page.get_by_role("log", name="Conversation", exact=True)
    await expect(log).to_have_attribute("aria-live", "off")
    await expect(log.get_by_role("article", name="You", exact=True)).to_have_count(2)
    await expect(log.get_by_role("article", name="fake-8b", exact=True)).to_have_count(2)
    await expect(log.locator("[aria-busy=true]")).to_have_count(1)
    await expect(page.locator("#announcer[role=status]")).to_have_count(1)


async def test_a_conversation_by_keyboard_alone(desk: Desk) -> None:
    page = desk.page
    await page.keyboard.type("Hello")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("there")
    await page.keyboard.press("Enter")
    await expect(desk.answers).not_to_have_attribute("aria-busy", "true")
    await expect(page.get_by_role("article", name="You")).to_contain_text("there")

    await page.keyboard.press("Alt+ArrowUp")
    await expect(desk.answers).to_be_focused()
    await page.keyboard.press("c")
    assert "Hello" in await page.evaluate("navigator.clipboard.readText()")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    await page.keyboard.press("Escape")
    await page.keyboard.press("Control+Shift+O")
    await expect(page.get_by_text("What are you working on?")).to_be_visible()
    await expect(desk.box).to_be_focused()


@pytest.mark.long
async def test_the_start_page_can_be_read_without_script(open_page: OpenPage, alice: User, engine: FakeEngine) -> None:
    page = await open_page(alice, java_script_enabled=False)

    await page.get_by_role("textbox", name="Message", exact=True).fill("Hello")
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_role("article", name="You")).to_contain_text("Hello")
    await engine.until(lambda fake: len(fake.requests) == 1 and fake.running == 0)
    await page.reload()
    await expect(page.locator("article.assistant")).to_contain_text("Hello")
    await page.get_by_role("button", name="Edit", exact=True).click()
    editor = page.locator("form", has=page.get_by_role("textbox", name="Edit this question"))
    await editor.get_by_role("textbox").fill("Hello again")
    await editor.get_by_role("button", name="Send").click()
    await expect(page.get_by_role("article", name="You")).to_contain_text("2/2")
    await page.get_by_role("link", name="Show all that can be done").click()

    await expect(page.get_by_role("button", name="Delete message")).not_to_have_count(0)
    await expect(page.get_by_role("article", name="You")).to_contain_text("Hello again")

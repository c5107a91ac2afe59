"""Who may use which model, and how it answers: said by an administrator at the keyboard, met by a member."""

import asyncio
from uuid import UUID

import pytest
from playwright.async_api import Page, expect

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.groups import service as groups
from tests.e2e.conftest import OpenPage
from tests.e2e.test_accessibility import findings
from tests.fakes.engine import FakeEngine
from tests.site import Site

pytestmark = pytest.mark.long


async def press(page: Page, name: str) -> None:
    """Find a button, or a box to tick, with the Tab key alone, and press it."""
    for _step in range(90):
        await page.keyboard.press("Tab")
        if await page.evaluate(
            "name => { const e = document.activeElement; return e.matches('button, [type=checkbox], [type=radio]')"
            " && (e.ariaLabel || e.labels?.[0]?.innerText || e.textContent).trim().startsWith(name) }",
            name,
        ):
            await page.keyboard.press("Space")
            return
    raise AssertionError(f"no Tab leads to “{name}”")


async def offered(page: Page) -> set[str]:
    await page.goto("/")
    options = page.locator('select[name="model"] option')
    return {(await option.locator("span").inner_text()).split()[0] for option in await options.all()}


async def until_offered(page: Page, *names: str) -> None:
    for _try in range(100):
        if await offered(page) == set(names):
            return
        await page.wait_for_timeout(50)
    raise AssertionError(await offered(page))


async def test_a_model_is_restricted_by_keyboard_and_its_settings_are_used(
    open_page: OpenPage, site: Site, db: Sessions, engine: FakeEngine, alice: User, carol: User
) -> None:
    models: dict[str, UUID] = await site.until_offered("fake-8b", "fake-70b")
    async with db.begin() as session:
        lab = await groups.create(session, "Lab")
    admin, member = await open_page(carol), await open_page(alice)
    await until_offered(member, "fake-8b", "fake-70b")

    await admin.goto(f"/admin/models/{models['fake-70b']}")
    await press(admin, "Temperature")
    await press(admin, "Longest answer")
    await press(admin, "Everybody")
    await admin.keyboard.press("ArrowDown")  # only the members of these groups
    await press(admin, "Lab")
    await press(admin, "Save model")
    await expect(admin.get_by_role("status").filter(has_text="Saved.")).to_be_visible()
    await until_offered(member, "fake-8b")
    await expect(member.get_by_role("button", name="Settings for answers")).to_be_hidden()

    await admin.goto(f"/admin/groups/{lab.id}")
    await admin.get_by_role("searchbox").fill("alice")
    await admin.keyboard.press("Enter")
    await expect(admin.get_by_role("button", name="Add Alice Owner to the group")).to_be_visible()
    await press(admin, "Add Alice Owner to the group")
    await expect(admin.get_by_role("button", name="Remove Alice Owner from the group")).to_be_visible()
    await until_offered(member, "fake-8b", "fake-70b")

    # Chosen with the keyboard, on a phone; what the model does not leave to people is not there.
    await member.set_viewport_size({"width": 360, "height": 740})
    await member.get_by_role("combobox", name="Model").select_option(str(models["fake-70b"]))
    button = member.get_by_role("button", name="Settings for answers")
    await button.press("Enter")
    await expect(member.get_by_label("Answer in JSON")).to_be_hidden()
    await member.get_by_label("Temperature").fill("0.3")
    assert await findings(member) == []
    await member.keyboard.press("Escape")
    box = member.get_by_role("textbox", name="Message", exact=True)
    await box.fill("Hello")
    await box.press("Enter")
    answer = member.locator("article.assistant")
    await expect(answer).not_to_have_attribute("aria-busy", "true")
    await answer.get_by_role("button", name="Regenerate").click()
    await expect(answer).to_contain_text("2/2")
    await answer.locator(".provenance summary").click()
    await expect(answer).to_contain_text("temperature 0.3")
    assert [question.body["temperature"] for question in engine.questions] == [0.3, 0.3]

    # Taken away again: the conversation says so, and what is being typed stays.
    await box.fill("Not sent yet")
    await admin.goto(f"/admin/groups/{lab.id}")
    await press(admin, "Remove Alice Owner from the group")
    await expect(admin.get_by_text("Nobody is in it yet.")).to_be_visible()
    async with asyncio.timeout(20):
        while len(site.registry.offers_for(alice.id)) > 1:
            await asyncio.sleep(0.01)
    await member.reload()
    await expect(member.get_by_text("“fake-70b” is not here any more.")).to_be_visible()
    await expect(box).to_have_value("Not sent yet")
    await expect(member.get_by_role("combobox", name="Model")).to_have_value(str(models["fake-8b"]))
    assert await findings(member) == []

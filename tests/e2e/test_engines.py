"""Engines, by an administrator who has no mouse."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, expect

from backend.accounts.models import User
from tests.e2e.conftest import OpenPage, Watch
from tests.e2e.test_accessibility import findings
from tests.fakes.engine import FakeEngine
from tests.site import Site

pytestmark = pytest.mark.long


@pytest.fixture
async def lab() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(models=["hazel"], api_key="sk-lab") as engine:
        yield engine


async def press(page: Page, name: str) -> None:
    """Find a button or a link with the Tab key alone, and press it."""
    for _step in range(90):
        await page.keyboard.press("Tab")
        if await page.evaluate(
            "name => { const e = document.activeElement; return e.matches('button, a')"
            " && (e.ariaLabel || e.textContent).trim() === name }",
            name,
        ):
            await page.keyboard.press("Enter")
            return
    raise AssertionError(f"no Tab leads to “{name}”")


async def test_an_engine_is_added_tested_drained_and_deleted_by_keyboard(
    open_page: OpenPage, site: Site, carol: User, lab: FakeEngine, watch: Watch
) -> None:
    await site.until_offered("fake-8b")
    page = await open_page(carol, "/admin/engines")
    await press(page, "Add engine")
    dialog = page.get_by_role("dialog", name="Add an engine")
    await dialog.get_by_label("Name").fill("Lab")
    await dialog.get_by_label("Address").fill(lab.url)
    await dialog.get_by_label("API key").fill("sk-wrong")
    await press(page, "Test connection")
    await expect(dialog.get_by_role("status")).to_contain_text("Enter the key that the engine was started with.")
    assert await findings(page) == []
    await dialog.get_by_label("API key").fill("sk-lab")
    await press(page, "Test connection")
    await expect(dialog.get_by_role("status")).to_contain_text("hazel: 32,768 tokens")
    assert await findings(page) == []
    await press(page, "Add engine")

    await expect(page.get_by_role("article", name="Lab")).to_contain_text("Healthy")
    await press(page, "Lab")
    await expect(page.get_by_role("heading", name="Lab", exact=True)).to_be_visible()
    await expect(page.get_by_role("img", name="KV cache")).to_be_visible(timeout=30_000)  # drawn while one looks
    await page.get_by_label("New API key").fill("sk-another")
    await press(page, "Test connection")
    await expect(page.get_by_role("status").filter(has_text="This does not work.")).to_contain_text("401")
    assert await findings(page) == []

    await press(page, "Drain")
    await expect(page.locator("#engine-now")).to_contain_text("It gets no new questions until you end the draining.")
    await page.set_viewport_size({"width": 360, "height": 740})
    assert await findings(page) == []
    await press(page, "Delete engine")
    await expect(page.get_by_role("dialog", name="Delete Lab?")).to_be_visible()
    assert await findings(page) == []
    await press(page, "Delete Lab")
    await expect(page).to_have_url(f"{site.settings.origin}/admin/engines")
    await expect(page.get_by_role("article", name="Lab")).to_have_count(0)
    await expect(page.get_by_role("article", name="fake")).to_be_visible()
    assert not [request for request in watch.requests if "csp-report" in request]

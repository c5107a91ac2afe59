"""A measurement and the arithmetic beside it, in a browser."""

import os
from pathlib import Path

import pytest
from playwright.async_api import expect

from backend.accounts.models import User
from tests.e2e.conftest import OpenPage
from tests.e2e.test_accessibility import findings
from tests.fakes.engine import FakeEngine
from tests.site import Site

pytestmark = pytest.mark.long

PICTURES = os.environ.get("BENCH_PICTURES")


async def test_an_administrator_measures_an_engine(
    open_page: OpenPage, carol: User, site: Site, engine: FakeEngine
) -> None:
    await site.until_offered("fake-8b", "fake-70b")
    engine.script, engine.itl = tuple(f"word{number} " for number in range(12)), 0.01
    engine.hold()
    page = await open_page(carol, "/admin/bench")
    assert await findings(page) == []

    await page.get_by_label("Model and engine").select_option(label="fake-8b · fake")
    await page.get_by_label("People at once").fill("4")
    await page.get_by_label("Turns").fill("1")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Measure fake-8b on fake?")).to_be_visible()
    assert await findings(page) == []  # the question whether to begin
    await _picture(page, "asked")

    await page.get_by_role("button", name="Measure now").click()
    await expect(page.get_by_text("Running.")).to_be_visible()
    assert await findings(page) == []  # while it runs
    engine.release()
    await expect(page.get_by_text("Complete", exact=True)).to_be_visible()  # without a reload
    await expect(page.get_by_role("img", name="fake-8b on fake")).to_be_visible()
    assert await findings(page) == []
    await _picture(page, "measured")

    await page.get_by_role("link", name="Capacity").click()
    await page.get_by_role("link", name="2 such GPUs").click()
    await expect(page.get_by_label("GPUs", exact=True)).to_have_value("2")
    assert await findings(page) == []
    await _picture(page, "capacity")


async def _picture(page: object, name: str) -> None:
    if PICTURES:
        await page.screenshot(path=Path(PICTURES) / f"{name}.png", full_page=True)  # type: ignore[attr-defined]

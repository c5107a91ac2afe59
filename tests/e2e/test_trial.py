"""A new revision, tried on people who rate it: by keyboard, on both sides."""

import asyncio
from collections.abc import Iterator

import pytest
from playwright.async_api import expect
from sqlalchemy import select

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.settings import EngineSetting, Settings
from backend.engines import publishing
from backend.engines.models import Deployment
from tests.e2e.conftest import Desk, OpenPage
from tests.e2e.test_accessibility import findings
from tests.e2e.test_models import press
from tests.fakes.engine import FakeEngine
from tests.site import Site

pytestmark = pytest.mark.long


@pytest.fixture
def other() -> Iterator[FakeEngine]:
    with FakeEngine(models=["fake-8b"]) as running:
        running.script = ("I am the new one.",)
        yield running


@pytest.fixture
def settings(settings: Settings, engine: FakeEngine, other: FakeEngine) -> Settings:
    engines = (EngineSetting(name="old", url=engine.url), EngineSetting(name="new", url=other.url))
    return settings.model_copy(update={"engines": engines})


@pytest.fixture
async def served_twice(site: Site, db: Sessions) -> None:
    await site.registry.first_look()
    async with db.begin() as session:
        for found in (await session.scalars(select(Deployment).where(Deployment.upstream_name == "fake-8b"))).all():
            await publishing.publish(session, found)
    async with asyncio.timeout(20):
        while not site.registry.offers or len(site.registry.offers[0].endpoints) < 2:
            await asyncio.sleep(0.01)


async def test_a_revision_is_tried_rated_and_promoted_by_keyboard(
    site: Site, served_twice: None, open_page: OpenPage, engine: FakeEngine, alice: User, carol: User
) -> None:
    model = site.registry.offers[0].id
    admin = await open_page(carol, f"/admin/models/{model}")

    await press(admin, "Try what is on new")
    share = admin.get_by_role("textbox", name="Share of new conversations")
    await expect(share).to_have_value("0")
    await share.fill("100")
    await press(admin, "Save trial")
    await expect(admin.get_by_role("textbox", name="Share of new conversations")).to_have_value("100")
    async with asyncio.timeout(20):
        while site.registry.offers[0].trial_share != 100:
            await asyncio.sleep(0.01)

    desk = Desk(await open_page(alice), site, engine, {"fake-8b": model})
    answer = await desk.ask("Who are you?")
    await expect(answer).to_contain_text("I am the new one.")
    await press(desk.page, "Good answer")
    good = answer.get_by_role("button", name="Good answer")
    await expect(good).to_have_attribute("aria-pressed", "true")
    await expect(good).to_be_focused()
    assert await findings(desk.page) == []

    await admin.reload()
    row = admin.get_by_role("region", name="Revisions compared").get_by_role("row", name="On trial")
    await expect(row.get_by_role("cell")).to_contain_text(["1", "1", "0", "0"])
    assert await findings(admin) == []
    await press(admin, "Promote")
    await expect(admin.get_by_text("The last trial has ended.")).to_be_visible()
    await expect(admin.get_by_role("button", name="Roll back")).to_have_count(0)

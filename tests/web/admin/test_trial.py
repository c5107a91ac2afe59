"""Administration: a new revision for some, then for all or for nobody."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import select

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.ids import new_id
from backend.core.settings import EngineSetting, Settings
from backend.engines import publishing
from backend.engines.models import Deployment, Engine, Model, Stage
from backend.groups import service as groups
from tests.conftest import OpenBrowser
from tests.fakes.engine import FakeEngine
from tests.site import Browser, Site
from tests.web.accounts.conftest import submit, text_of


@pytest.fixture
def other() -> Iterator[FakeEngine]:
    with FakeEngine(models=["fake-8b"]) as running:
        yield running


@pytest.fixture
def settings(settings: Settings, engine: FakeEngine, other: FakeEngine, tmp_path: Path) -> Settings:
    engines = (EngineSetting(name="old", url=engine.url), EngineSetting(name="new", url=other.url))
    return settings.model_copy(update={"engines": engines})


@pytest.fixture
async def page(browser: OpenBrowser, carol: User) -> Browser:
    return await browser(carol)


@pytest.fixture
async def model(site: Site, db: Sessions) -> UUID:
    """Published on both engines."""
    await site.registry.first_look()
    async with db.begin() as session:
        for found in (await session.scalars(select(Deployment).where(Deployment.upstream_name == "fake-8b"))).all():
            await publishing.publish(session, found)
    offered = await site.until_offered("fake-8b")
    async with asyncio.timeout(20):
        while len(site.registry.offers[0].endpoints) < 2:
            await asyncio.sleep(0.01)
    return offered["fake-8b"]


async def deployment(db: Sessions, engine: str) -> Deployment:
    async with db.begin() as session:
        at = (
            select(Deployment)
            .join(Deployment.engine)
            .where(Engine.name == engine, Deployment.upstream_name == "fake-8b")
        )
        return (await session.scalars(at)).one()


async def test_a_revision_is_tried_by_some_and_promoted(page: Browser, model: UUID, db: Sessions) -> None:
    async with db.begin() as session:
        lab = await groups.create(session, "Lab <1>")
    before = await page.get(f"/admin/models/{model}")

    begun = await submit(page, f"/admin/deployments/{(await deployment(db, 'new')).id}/try")
    given = await submit(page, f"/admin/models/{model}/trial", share="20", group=str(lab.id))
    shown = await page.get(f"/admin/models/{model}")
    promoted = await submit(page, f"/admin/models/{model}/promote")
    after = await page.get(f"/admin/models/{model}")

    assert "New revision" not in text_of(before)
    assert [each.status_code for each in (begun, given, promoted)] == [303] * 3
    assert 'value="20"' in shown.text
    assert f'<option value="{lab.id}" selected>Lab &lt;1&gt;</option>' in shown.text
    assert "On trial" in text_of(shown)
    assert "Roll back" in shown.text
    assert "Roll back" not in after.text
    assert "Replaced" in text_of(after)
    assert ((await deployment(db, "old")).stage, (await deployment(db, "new")).stage) == (Stage.FORMER, Stage.CURRENT)


async def test_a_trial_is_rolled_back_and_the_engine_taken_back_by_hand(
    page: Browser, model: UUID, db: Sessions
) -> None:
    new = (await deployment(db, "new")).id
    await submit(page, f"/admin/deployments/{new}/try")

    await submit(page, f"/admin/models/{model}/roll-back")
    rolled_back = (await deployment(db, "new")).stage
    await submit(page, f"/admin/deployments/{new}/restore")

    assert (rolled_back, (await deployment(db, "new")).stage) == (Stage.WITHDRAWN, Stage.CURRENT)


async def test_a_wrong_share_is_told_with_what_was_typed_and_changes_nothing(
    page: Browser, model: UUID, db: Sessions
) -> None:
    await submit(page, f"/admin/deployments/{(await deployment(db, 'new')).id}/try")

    refused = await submit(page, f"/admin/models/{model}/trial", share="150", group=str(new_id()))

    assert refused.status_code == 422
    assert 'value="150"' in refused.text
    assert "The share is a whole number from 0 to 100." in text_of(refused)
    assert "deleted in the meantime" in text_of(refused)
    async with db.begin() as session:
        assert (await session.get_one(Model, model)).trial_share == 0


async def test_the_last_current_one_stays_and_what_has_ended_is_told(page: Browser, model: UUID, db: Sessions) -> None:
    await submit(page, f"/admin/deployments/{(await deployment(db, 'new')).id}/try")

    only = await submit(page, f"/admin/deployments/{(await deployment(db, 'old')).id}/try")
    await submit(page, f"/admin/models/{model}/roll-back")
    again = await submit(page, f"/admin/models/{model}/promote")

    assert (only.status_code, again.status_code) == (409, 409)
    assert "only place" in text_of(only)
    assert "somebody has ended it" in text_of(again)


async def test_what_serves_no_model_and_what_is_not_there_is_told(page: Browser, model: UUID, db: Sessions) -> None:
    async with db.begin() as session:
        free = (await session.scalars(select(Deployment).where(Deployment.upstream_name == "fake-70b"))).one()
        free.model_id = None

    assert (await submit(page, f"/admin/deployments/{free.id}/try")).status_code == 409
    for path in ("models/{}/trial", "models/{}/promote", "models/{}/roll-back", "deployments/{}/restore"):
        assert (await submit(page, f"/admin/{path.format(new_id())}")).status_code == 404


async def test_an_engine_joins_on_trial_and_leaves_by_itself(page: Browser, model: UUID, db: Sessions) -> None:
    new = (await deployment(db, "new")).id

    left = await submit(page, f"/admin/deployments/{new}/leave")
    free = await deployment(db, "new")
    joined = await submit(page, f"/admin/deployments/{new}/publish", trial="1")
    on_trial = await deployment(db, "new")
    last = await submit(page, f"/admin/deployments/{(await deployment(db, 'old')).id}/leave")

    assert (left.status_code, free.model_id) == (303, None)
    assert joined.headers["location"] == f"/admin/models/{model}#trial"
    assert (on_trial.model_id, on_trial.stage) == (model, Stage.TRIAL)
    assert last.status_code == 409, "those who do not try it would have nothing"
    assert (await deployment(db, "old")).model_id == model


async def test_a_member_finds_nothing_here(browser: OpenBrowser, alice: User, model: UUID, db: Sessions) -> None:
    member = await browser(alice)

    refused = await submit(member, f"/admin/deployments/{(await deployment(db, 'new')).id}/try")

    assert refused.status_code == 404
    assert (await deployment(db, "new")).stage is Stage.CURRENT

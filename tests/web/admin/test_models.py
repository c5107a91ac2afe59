"""Administration: the models as people see them."""

import asyncio
import re
from uuid import UUID

import httpx
import pytest
from sqlalchemy import select

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.ids import new_id
from backend.engines.models import DefaultModel, Deployment, Model
from backend.groups import service as groups
from tests.conftest import OpenBrowser
from tests.fakes.engine import FakeEngine
from tests.site import Browser, Site
from tests.web.accounts.conftest import submit, text_of, value_of

FORM = {"name": "fake-8b", "who": "everybody"}


@pytest.fixture
async def models(site: Site) -> dict[str, UUID]:
    return await site.until_offered("fake-8b", "fake-70b")


@pytest.fixture
async def page(browser: OpenBrowser, carol: User) -> Browser:
    return await browser(carol)


async def save(page: Browser, model: UUID, **fields: str) -> httpx.Response:
    return await submit(page, f"/admin/models/{model}", **FORM | fields)


def order(shown: httpx.Response) -> list[str]:
    return re.findall(r"fake-\w+", " ".join(re.findall(r'<th scope="row">.*?</th>', shown.text, re.DOTALL)))


async def deployment_of(db: Sessions, model: UUID) -> UUID:
    async with db.begin() as session:
        return (await session.scalars(select(Deployment.id).where(Deployment.model_id == model))).one()


async def test_models_are_listed_with_whom_they_are_for_and_how_they_are(
    page: Browser, models: dict[str, UUID]
) -> None:
    await save(page, models["fake-8b"], description="For a start", color="plum")

    shown = await page.get("/admin/models")

    assert "fake-8b For a start Everybody Available" in text_of(shown)
    assert '<i class="mark plum">' in shown.text


async def test_a_model_moves_by_a_button(page: Browser, models: dict[str, UUID], site: Site) -> None:
    before = order(await page.get("/admin/models"))
    last = models[before[-1]]

    moved = await submit(page, f"/admin/models/{last}/move", to="up")
    shown = await page.get("/admin/models")

    assert moved.status_code == 303
    assert order(shown) == before[::-1]
    assert shown.text.count("disabled>") == 2, "neither above the first nor below the last is a place"
    async with asyncio.timeout(5):
        while [offer.name for offer in site.registry.offers] != before[::-1]:
            await asyncio.sleep(0.01)


async def test_what_is_saved_is_shown_again(page: Browser, models: dict[str, UUID], db: Sessions) -> None:
    async with db.begin() as session:
        lab = await groups.create(session, "Lab")
    wishes = {
        "name": "Linden",
        "system_prompt": "Be <kind>.",
        "temperature": "0.4",
        "max_tokens": "200",
        "thinking": "off",
        "adjust-json": "1",
        "who": "groups",
        f"group-{lab.id}": "1",
        "max_concurrent": "3",
        "maintenance_until": "2100-12-24T18:00",
        "fallback": str(models["fake-70b"]),
    }

    saved = await save(page, models["fake-8b"], **wishes)
    shown = await page.get(saved.headers["location"])

    assert saved.status_code == 303
    assert "Saved." in text_of(shown)
    for field in ("name", "temperature", "max_tokens", "max_concurrent", "maintenance_until"):
        assert value_of(shown, field) == wishes[field]
    assert "Be &lt;kind&gt;." in shown.text
    assert re.search(rf'name="group-{lab.id}" value="1" checked', shown.text)
    assert re.search(r'name="adjust-json" value="1" checked', shown.text)
    assert not re.search(r'name="adjust-thinking" value="1" checked', shown.text)
    assert "Maintenance until 24 December 2100, 18:00" in text_of(shown), "in the viewer's own time zone"
    assert "Linden Lab Maintenance" in text_of(await page.get("/admin/models"))


async def test_wrong_fields_are_told_one_by_one_with_what_was_typed(page: Browser, models: dict[str, UUID]) -> None:
    refused = await save(
        page, models["fake-8b"], name="fake-8b", temperature="hot", max_tokens="0", who="groups", description="Kept"
    )

    text = text_of(refused)
    assert refused.status_code == 422
    assert "The temperature is a number from 0 to 2." in text
    assert "This is a whole number from 1 to 1,000,000." in text
    assert "Choose at least one group, or let everybody use it." in text
    assert (value_of(refused, "temperature"), value_of(refused, "description")) == ("hot", "Kept")
    taken = await save(page, models["fake-8b"], name="fake-70b")
    assert "There is already a model with this name." in text_of(taken)
    assert value_of(taken, "name") == "fake-70b"
    assert "fake-8b" in text_of(await page.get("/admin/models"))


async def test_what_was_found_out_is_told_and_what_was_not_too(
    page: Browser, models: dict[str, UUID], db: Sessions
) -> None:
    async with db.begin() as session:
        deployment = (await session.scalars(select(Deployment).where(Deployment.model_id == models["fake-8b"]))).one()
        deployment.sees, deployment.thinks = True, None

    text = text_of(await page.get(f"/admin/models/{models['fake-8b']}"))

    assert "Reads up to 1,000,000 tokens" in text
    assert "Sees pictures Yes" in text
    assert "Writes its reasoning apart Not known yet" in text


async def test_a_pin_is_set_and_a_departure_from_it_is_a_warning(
    page: Browser, models: dict[str, UUID], db: Sessions, engine: FakeEngine
) -> None:
    address = f"/admin/models/{models['fake-8b']}"
    deployment = await deployment_of(db, models["fake-8b"])

    pinned = await submit(page, f"/admin/deployments/{deployment}/pin")
    as_pinned = await page.get(address)
    async with db.begin() as session:
        (await session.get_one(Deployment, deployment)).pinned_version = "0.1"
    other, listed = await page.get(address), await page.get("/admin/models")
    unpinned = await submit(page, f"/admin/deployments/{deployment}/unpin")

    assert pinned.headers["location"] == f"{address}#engines"
    assert "As pinned" in text_of(as_pinned)
    assert "Pin what is there now" not in text_of(as_pinned)
    assert "fake is not as pinned." in text_of(other)
    assert f"The version of the engine should be 0.1 and is {engine.version}." in text_of(other)
    assert "Not as pinned" in text_of(listed)
    assert unpinned.status_code == 303
    assert "No pin" in text_of(await page.get(address))


async def test_a_default_for_everybody_is_chosen_and_taken_back(
    page: Browser, models: dict[str, UUID], db: Sessions
) -> None:
    chosen = await submit(page, "/admin/models", model=str(models["fake-70b"]))
    shown = await page.get("/admin/models")
    refused = await submit(page, "/admin/models", model=str(new_id()))
    await submit(page, "/admin/models", model="")

    assert chosen.status_code == 303
    assert f'<option value="{models["fake-70b"]}" selected>' in shown.text
    assert refused.status_code == 422
    assert "This model is not here any more." in text_of(refused)
    async with db.begin() as session:
        assert (await session.scalars(select(DefaultModel))).all() == []


async def test_a_model_is_unpublished_and_published_again_from_its_page(page: Browser, models: dict[str, UUID]) -> None:
    address = f"/admin/models/{models['fake-8b']}"

    withdrawn = await submit(page, f"{address}/unpublish", next=address)
    shown = await page.get(withdrawn.headers["location"])
    back = await submit(page, f"{address}/publish")

    assert withdrawn.headers["location"] == back.headers["location"] == address
    assert "Not published" in text_of(shown)
    assert "Publish again" in text_of(shown)
    away = await submit(page, f"{address}/unpublish", next="https://elsewhere.example/")
    assert away.headers["location"] == "/"


@pytest.mark.parametrize("path", ["models/{}", "models/{}/move", "deployments/{}/pin", "deployments/{}/unpin"])
async def test_an_id_of_nothing_is_not_found(page: Browser, path: str) -> None:
    assert (await submit(page, "/admin/" + path.format(new_id()), to="up")).status_code == 404


async def test_a_member_finds_nothing_here_and_changes_nothing(
    browser: OpenBrowser, alice: User, models: dict[str, UUID], db: Sessions
) -> None:
    stranger = await browser(alice)
    address = f"/admin/models/{models['fake-8b']}"

    replies = [
        await stranger.get("/admin/models"),
        await stranger.get(address),
        await save(stranger, models["fake-8b"], name="Mine"),
        await submit(stranger, f"{address}/move", to="up"),
        await submit(stranger, "/admin/models", model=str(models["fake-8b"])),
        await submit(stranger, f"/admin/deployments/{await deployment_of(db, models['fake-8b'])}/pin"),
    ]

    assert {reply.status_code for reply in replies} == {404}
    async with db.begin() as session:
        assert {model.name for model in await session.scalars(select(Model))} == {"fake-8b", "fake-70b"}

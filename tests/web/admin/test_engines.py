"""Administration: where models run, and which of them people may use."""

import asyncio
import re
from collections.abc import AsyncIterator
from uuid import UUID

import httpx
import pytest
from sqlalchemy import select

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.ids import new_id
from backend.core.settings import Settings
from backend.engines.local import LocalServer
from backend.engines.models import Deployment, Engine, Model
from tests.conftest import OpenBrowser, sign_in
from tests.engines import strangers
from tests.fakes.engine import FakeEngine
from tests.site import Browser, Site
from tests.web.accounts.conftest import submit, text_of, value_of


@pytest.fixture
async def page(browser: OpenBrowser, carol: User, site: Site) -> Browser:
    await site.until_offered("fake-8b", "fake-70b")
    return await browser(carol)


@pytest.fixture
async def lab() -> AsyncIterator[FakeEngine]:
    """A second engine, which serves one model of the first and one of its own."""
    async with FakeEngine(models=["hazel", "fake-8b"], api_key="sk-lab") as engine:
        yield engine


async def add_lab(page: Browser, lab: FakeEngine, **changed: str) -> httpx.Response:
    return await submit(page, "/admin/engines", **{"name": "Lab", "url": lab.url, "api_key": "sk-lab", **changed})


async def until_shown(page: Browser, words: str) -> httpx.Response:
    async with asyncio.timeout(5):
        while True:
            shown = await page.get("/admin/engines")
            if words in text_of(shown):
                return shown
            await asyncio.sleep(0.02)


async def deployment_named(db: Sessions, name: str, engine: str = "Lab") -> UUID:
    of_engine = select(Deployment.id).join(Engine).where(Engine.name == engine, Deployment.upstream_name == name)
    async with db.begin() as session:
        return (await session.scalars(of_engine)).one()


async def engine_named(db: Sessions, name: str) -> UUID:
    async with db.begin() as session:
        return (await session.scalars(select(Engine.id).where(Engine.name == name))).one()


def buttons(shown: httpx.Response) -> set[str]:
    return set(re.findall(r'<button[^>]*aria-label="([^"]*)"', shown.text))


async def test_an_engine_of_the_deployment_is_shown_with_its_models(page: Browser) -> None:
    shown = await page.get("/admin/engines")

    text = text_of(shown)
    assert shown.status_code == 200
    assert "fake Healthy vLLM 0.32.0 http://127.0.0.1:" in text
    assert "Set by the deployment." in text
    assert "fake-8b 1,000,000 tokens Published" in text
    assert {"Unpublish fake-8b", "Unpublish fake-70b"} <= buttons(shown)
    assert "0 running, 0 waiting, KV cache 0 %" in text


async def test_an_engine_is_added_and_found_out(page: Browser, lab: FakeEngine) -> None:
    added = await add_lab(page, lab)
    shown = await until_shown(page, "Lab Healthy")

    assert (added.status_code, added.headers["location"]) == (303, "/admin/engines")
    text = text_of(shown)
    assert "vLLM 0.32.0" in text
    assert "Publish a model, so that people can choose it." in text
    assert "hazel 32,768 tokens Not published" in text
    assert "fake-8b 32,768 tokens Not published Joins the model of this name" in text
    assert "sk-lab" not in shown.text


async def test_the_list_asks_again_until_a_new_engine_was_looked_at(page: Browser) -> None:
    with strangers.silent() as url:
        await submit(page, "/admin/engines", name="Lab", url=url)
        fresh = await page.get("/admin/engines", hx=True)
        shown = await until_shown(page, "Lab Not reachable")

    assert fresh.text.lstrip().startswith('<section class="engines"')
    assert "Not looked at yet" in fresh.text
    assert 'hx-trigger="every 1s"' in fresh.text
    assert 'hx-trigger="every 5s"' in shown.text
    assert "No engine answers at this address. Since " in text_of(shown)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": " "}, "Please enter a name."),
        ({"name": "fake"}, "There is already an engine with this name."),
        ({"url": "gpu-1"}, "Write the address like http://gpu-1:8000, without a user name."),
        ({"url": "http://169.254.169.254/"}, "Parley may not connect to this address."),
        ({"url": "http://[::ffff:a9fe:a9fe]/"}, "Parley may not connect to this address."),
        ({"url": "http://2130706433/"}, "Write numbers of an address in full"),
        ({"api_key": "two words"}, "This is not an API key"),
    ],
)
async def test_a_wrong_field_is_told_with_what_was_typed(
    page: Browser, lab: FakeEngine, wrong: dict[str, str], words: str
) -> None:
    refused = await add_lab(page, lab, **wrong)

    assert refused.status_code == 422
    assert words in text_of(refused)
    assert "data-open" in refused.text
    assert value_of(refused, "url") == wrong.get("url", lab.url)
    assert 'value="sk-lab"' not in refused.text
    assert "two words" not in refused.text


async def test_our_own_database_and_pages_cannot_be_an_engine(page: Browser, settings: Settings) -> None:
    refused = await submit(page, "/admin/engines", name="Us", url=f"http://127.0.0.1:{settings.port}")

    assert "Parley may not connect to this address." in text_of(refused)


async def test_a_published_model_can_be_chosen_and_a_withdrawn_one_cannot(
    page: Browser, lab: FakeEngine, db: Sessions, site: Site
) -> None:
    await add_lab(page, lab)
    await until_shown(page, "hazel")

    published = await submit(page, f"/admin/deployments/{await deployment_named(db, 'hazel')}/publish")
    offered = await site.until_offered("hazel")
    withdrawn = await submit(page, f"/admin/models/{offered['hazel']}/unpublish")
    async with asyncio.timeout(5):
        while site.registry.offer(offered["hazel"]):
            await asyncio.sleep(0.01)

    assert published.status_code == withdrawn.status_code == 303
    assert "hazel 32,768 tokens Not published" in text_of(await page.get("/admin/engines"))


async def test_an_engine_joins_a_model_that_is_there(page: Browser, lab: FakeEngine, db: Sessions, site: Site) -> None:
    await add_lab(page, lab)
    await until_shown(page, "Joins the model of this name")

    await submit(page, f"/admin/deployments/{await deployment_named(db, 'fake-8b')}/publish")
    await until_shown(page, "fake-8b 32,768 tokens Published")
    async with asyncio.timeout(5):
        while [len(offer.endpoints) for offer in site.registry.offers if offer.name == "fake-8b"] != [2]:
            await asyncio.sleep(0.01)

    async with db.begin() as session:
        assert len((await session.scalars(select(Model).where(Model.name == "fake-8b"))).all()) == 1


async def test_an_engine_is_taken_out_of_service_and_put_back(page: Browser, lab: FakeEngine, db: Sessions) -> None:
    await add_lab(page, lab)
    await until_shown(page, "Lab Healthy")
    address = f"/admin/engines/{await engine_named(db, 'Lab')}"

    disabled = await submit(page, f"{address}/disable")
    off = await page.get("/admin/engines")
    enabled = await submit(page, f"{address}/enable")
    await until_shown(page, "Lab Healthy")

    assert disabled.status_code == enabled.status_code == 303
    assert "Lab Out of service" in text_of(off)
    assert "It gets no questions until you put it into service." in text_of(off)


async def test_an_address_and_a_key_are_changed(page: Browser, lab: FakeEngine, db: Sessions) -> None:
    await submit(page, "/admin/engines", name="Lab", url="http://127.0.0.1:9", api_key="sk-old")
    address = f"/admin/engines/{await engine_named(db, 'Lab')}"

    moved = await submit(page, address, name="Lab", url=lab.url)
    without_key = await until_shown(page, "Lab Key refused")
    keyed = await submit(page, address, name="Lab", url=lab.url, api_key="sk-lab")
    shown = await until_shown(page, "Lab Healthy")

    assert moved.status_code == keyed.status_code == 303
    assert "The API key has to be entered again." in text_of(without_key)
    assert "sk-lab" not in shown.text


async def test_a_wrong_change_is_told_in_its_form_and_changes_nothing(
    page: Browser, lab: FakeEngine, db: Sessions
) -> None:
    await add_lab(page, lab)
    engine_id = await engine_named(db, "Lab")

    wrong = {"name": " ", "api_key": "two words", "kind": "oracle", "session_header": "Cookie"}
    refused = await submit(page, f"/admin/engines/{engine_id}", url="http://169.254.169.254/", **wrong)
    shown = await page.get("/admin/engines")

    assert refused.status_code == 422
    for sentence in (
        "Please enter a name.",
        "This is not an API key",
        "Parley knows no engine of this kind.",
        "Write the name of a header like X-Session-ID",
        "Parley may not connect to this address.",
    ):
        assert sentence in text_of(refused)
    assert value_of(refused, "url") == "http://169.254.169.254/"
    assert "two words" not in refused.text
    assert "169.254" not in shown.text


async def test_an_engine_is_removed(page: Browser, lab: FakeEngine, db: Sessions) -> None:
    await add_lab(page, lab)
    await until_shown(page, "Lab Healthy")

    removed = await submit(page, f"/admin/engines/{await engine_named(db, 'Lab')}/remove")

    assert removed.status_code == 303
    assert "Lab" not in text_of(await page.get("/admin/engines"))


@pytest.mark.parametrize("what", ["enable", "disable", "drain", "undrain", "remove"])
async def test_an_engine_of_the_deployment_is_not_changed_here(page: Browser, db: Sessions, what: str) -> None:
    refused = await submit(page, f"/admin/engines/{await engine_named(db, 'fake')}/{what}")

    assert refused.status_code == 409
    assert "is set by the deployment and is changed there." in text_of(refused)
    await until_shown(page, "fake Healthy")


async def test_an_engine_that_is_away_is_marked_since_when(page: Browser, engine: FakeEngine) -> None:
    await asyncio.to_thread(engine.stop)

    shown = await until_shown(page, "fake Not reachable")

    assert re.search(r"The engine cannot be reached\. Since \d+ \w+ \d{4}, \d\d:\d\d\.", text_of(shown))


async def test_a_refused_key_is_told(page: Browser, lab: FakeEngine) -> None:
    await add_lab(page, lab, api_key="sk-wrong")

    await until_shown(page, "Lab Key refused")


async def test_a_loading_engine_is_told(page: Browser, engine: FakeEngine) -> None:
    await asyncio.to_thread(engine.stop)
    engine.load_seconds, engine.answers_while_loading = 60, True
    await asyncio.to_thread(engine.start)

    await until_shown(page, "fake Starting")


async def test_without_engines_the_page_says_how_to_begin(settings: Settings, db: Sessions, carol: User) -> None:
    token = await sign_in(db, carol)
    async with Site(settings.model_copy(update={"engines": ()})) as site, Browser(site, token=token) as page:
        shown = await page.get("/admin/engines")

    assert "No engines yet. Add the first one; Parley finds out what it is." in text_of(shown)


async def test_an_engine_the_deployment_gave_up_is_shown_as_such(settings: Settings, db: Sessions, carol: User) -> None:
    token = await sign_in(db, carol)
    async with Site(settings) as site:
        await site.until_offered("fake-8b")
    async with Site(settings.model_copy(update={"engines": ()})) as site, Browser(site, token=token) as page:
        shown = await page.get("/admin/engines")

    assert "fake Out of service" in text_of(shown)
    assert "The deployment no longer names this engine." in text_of(shown)


async def test_a_server_found_on_this_machine_is_added_with_one_button(page: Browser, site: Site) -> None:
    server = strangers.WebServer(
        b'{"object":"list","data":[{"id":"llama3.2","owned_by":"library"}]}', "application/json"
    )
    with server.running() as url:
        site.registry.known_local = [LocalServer("Ollama", url)]
        shown = await until_shown(page, "where Ollama usually does.")
        asked = list(server.asked)
        await submit(page, "/admin/engines", name=value_of(shown, "name"), url=value_of(shown, "url"))
        added = await until_shown(page, "llama3.2")

    assert "Nothing has been sent to it yet." in text_of(shown)
    assert "Add Ollama" in buttons(shown)
    assert asked == []
    assert "Something listens on port" not in text_of(added)


@pytest.mark.parametrize(
    "path",
    [
        "/admin/engines/{}",
        "/admin/engines/{}/enable",
        "/admin/engines/{}/disable",
        "/admin/engines/{}/drain",
        "/admin/engines/{}/test",
        "/admin/engines/{}/remove",
        "/admin/deployments/{}/publish",
        "/admin/models/{}/unpublish",
    ],
)
async def test_an_id_of_nothing_is_not_found(page: Browser, path: str) -> None:
    assert (await submit(page, path.format(new_id()))).status_code == 404


async def test_a_member_finds_nothing_here_and_changes_nothing(
    browser: OpenBrowser, alice: User, db: Sessions, site: Site
) -> None:
    offered = await site.until_offered("fake-8b")
    stranger = await browser(alice)

    shown = await stranger.get("/admin/engines")
    added = await submit(stranger, "/admin/engines", name="Mine", url="http://127.0.0.1:9")
    withdrawn = await submit(stranger, f"/admin/models/{offered['fake-8b']}/unpublish")

    assert [shown.status_code, added.status_code, withdrawn.status_code] == [404, 404, 404]
    async with db.begin() as session:
        assert (await session.scalars(select(Engine.name))).all() == ["fake"]
        assert (await session.get_one(Model, offered["fake-8b"])).published

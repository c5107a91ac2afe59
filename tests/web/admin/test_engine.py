"""Administration: one engine, how it is, its test, and all that can be done with it."""

import asyncio
import re
from collections.abc import AsyncIterator
from uuid import UUID

import httpx
import pytest
from sqlalchemy import select, update

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.settings import Settings
from backend.engines.kinds import Kind
from backend.engines.models import Deployment, Engine, Model
from tests.conftest import OpenBrowser
from tests.engines import strangers
from tests.fakes.engine import FakeEngine
from tests.site import Browser, Site
from tests.web.accounts.conftest import submit, text_of, value_of
from tests.web.admin.test_engines import add_lab, buttons, deployment_named, engine_named, until_shown


@pytest.fixture
async def page(browser: OpenBrowser, carol: User, site: Site) -> Browser:
    await site.until_offered("fake-8b", "fake-70b")
    return await browser(carol)


@pytest.fixture
async def lab() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(models=["hazel", "fake-8b"], api_key="sk-lab") as engine:
        yield engine


@pytest.fixture
async def ollama() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(kind=Kind.OLLAMA, models=["llama3.2"]) as engine:
        yield engine


async def address_of(db: Sessions, name: str = "Lab") -> str:
    return f"/admin/engines/{await engine_named(db, name)}"


async def until_there(page: Browser, address: str, words: str) -> httpx.Response:
    async with asyncio.timeout(10):
        while words not in text_of(shown := await page.get(address)):
            await asyncio.sleep(0.02)
    return shown


async def row(db: Sessions, name: str = "Lab") -> Engine:
    async with db.begin() as session:
        return (await session.scalars(select(Engine).where(Engine.name == name))).one()


def words_of(reply: httpx.Response) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", reply.text).split())


async def test_an_engine_shows_how_busy_it_is_in_charts_and_words(page: Browser, db: Sessions) -> None:
    shown = await until_there(page, await address_of(db, "fake"), "Tokens per second")
    again = await page.get(await address_of(db, "fake"), hx=True)

    assert "Running 0 0 waiting" in text_of(shown)
    assert "KV cache 0 %" in text_of(shown)
    assert re.search(
        r"<title [^>]*>KV cache</title><desc [^>]*>Now 0 %; at most 0 % in the last \d+ reading", shown.text
    )
    assert again.text.lstrip().startswith('<div class="form" id="engine-now"')
    assert 'hx-trigger="every 5s"' in again.text
    assert "style=" not in again.text


async def test_an_engine_of_the_deployment_is_read_only_and_can_be_tested(page: Browser, db: Sessions) -> None:
    address = await address_of(db, "fake")
    shown = await page.get(address)
    tested = await submit(page, f"{address}/test")
    refused = await submit(page, address, name="Mine", url="http://127.0.0.1:9")

    assert "This engine is set by the deployment (PARLEY_ENGINES) and is changed there, not here." in text_of(shown)
    assert "Save engine" not in text_of(shown)
    assert "It answers." in text_of(tested)
    assert refused.status_code == 409


async def test_a_test_tells_what_was_found_and_saves_nothing(page: Browser, lab: FakeEngine, db: Sessions) -> None:
    told = words_of(await submit(page, "/admin/engines/test", url=lab.url, api_key="sk-lab"))

    assert re.search(r"Reached in \d+ ms: vLLM 0\.32\.0\.", told)
    assert "It tells how much each of its models can read." in told
    assert "hazel : 32,768 tokens" in told
    assert "It tells how busy it is." in told
    assert "It counts tokens." in told
    assert "start it with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode" in told
    async with db.begin() as session:
        assert (await session.scalars(select(Engine.name))).all() == ["fake"]
    assert lab.questions == []


async def test_a_test_tells_what_is_missing_and_what_to_do(page: Browser, ollama: FakeEngine) -> None:
    told = words_of(await submit(page, "/admin/engines/test", url=ollama.url))
    forced = words_of(await submit(page, "/admin/engines/test", url=ollama.url, kind="vllm"))

    assert "Ollama 0.14.2" in told
    assert "It does not tell how busy it is" in told
    assert "It does not count tokens, so Parley estimates" in told
    assert "Its models can be loaded and unloaded from here." in told
    assert "It is treated as vLLM, as you chose. If answers fail, let Parley find out the kind." in forced
    assert ollama.loaded == set()  # nothing is loaded for a test


async def test_a_wrong_key_is_told_in_the_words_of_the_engine(page: Browser, lab: FakeEngine) -> None:
    wrong = words_of(await submit(page, "/admin/engines/test", url=lab.url, api_key="sk-wrong"))
    none = words_of(await submit(page, "/admin/engines/test", url=lab.url))

    assert "This does not work." in wrong
    assert "401: " in wrong
    assert "Enter the key that the engine was started with." in wrong
    assert "The engine wants a key." in none
    assert "sk-wrong" not in wrong


async def test_a_test_does_not_tell_open_ports_from_closed_ones(page: Browser) -> None:
    """AZN-04: nobody explores a network with this page; where a redirect leads is not asked at all."""
    inside = strangers.WebServer(b'{"data": []}', "application/json")
    with inside.running() as database, strangers.WebServer(elsewhere=database).running() as redirects:
        with strangers.WebServer().running() as website:
            told = {
                words_of(await submit(page, "/admin/engines/test", url=url))
                for url in (strangers.nobody(), website, redirects)
            }

    assert len(told) == 1
    assert "No engine answers at this address. Check that it runs" in told.pop()
    assert inside.asked == []


NOT_ALLOWED = "Parley may not connect to this address."
NOT_IN_FULL = "Write numbers of an address in full"
NOT_PLAIN = "Write the address like http://gpu-1:8000"
FORBIDDEN = {
    "http://169.254.169.254/": NOT_ALLOWED,
    "http://[::ffff:a9fe:a9fe]/": NOT_ALLOWED,
    "http://[64:ff9b::a9fe:a9fe]/": NOT_ALLOWED,
    "http://127.1:5432/": NOT_IN_FULL,
    "http://2130706433/": NOT_IN_FULL,
    "http://0x7f.1/": NOT_IN_FULL,
    "http://127.0.0.1:8000\\@allowed.example/": NOT_PLAIN,
    "http://allowed.example@127.0.0.1/": NOT_PLAIN,
    "file:///etc/passwd": NOT_PLAIN,
    "gopher://127.0.0.1/": NOT_PLAIN,
    "": NOT_PLAIN,
}


async def test_no_test_and_no_change_goes_where_parley_must_not(page: Browser, db: Sessions) -> None:
    """AZN-04, for a form that is not saved and for an engine that is."""
    await submit(page, "/admin/engines", name="Lab", url="http://127.0.0.1:9")
    address = await address_of(db)
    for url, words in FORBIDDEN.items():
        assert words in words_of(await submit(page, "/admin/engines/test", url=url)), url
        assert words in words_of(await page.post(f"{address}/test", {"name": "Lab", "url": url})), url
        assert words in words_of(await submit(page, address, name="Lab", url=url)), url

    assert (await row(db)).url == "http://127.0.0.1:9"


async def test_our_own_database_and_pages_are_not_tested(page: Browser, settings: Settings) -> None:
    told = await submit(page, "/admin/engines/test", url=f"http://127.0.0.1:{settings.port}")

    assert "Parley may not connect to this address." in words_of(told)


async def test_a_stored_key_is_tested_where_it_belongs_and_sent_nowhere_else(
    page: Browser, lab: FakeEngine, db: Sessions
) -> None:
    await add_lab(page, lab)
    await until_shown(page, "Lab Healthy")
    address = f"{await address_of(db)}/test"
    async with FakeEngine() as elsewhere:
        here = words_of(await page.post(address, {"name": "Lab", "url": lab.url}))
        there = words_of(await page.post(address, {"name": "Lab", "url": elsewhere.url}))
    await asyncio.to_thread(lab.stop)
    gone = words_of(await page.post(address, {"name": "Lab", "url": lab.url}))

    assert "It answers." in here
    assert "It answers." in there
    assert "The stored key was not sent" in there
    assert "Connect call failed" in gone  # an engine answered there before, so the exact error may be told


async def test_everything_about_an_engine_is_changed_and_used(page: Browser, lab: FakeEngine, db: Sessions) -> None:
    await add_lab(page, lab)
    await until_shown(page, "Lab Healthy")
    address = await address_of(db)
    changed = await submit(
        page,
        address,
        name="Lab 2",
        url=lab.url,
        kind="sglang",
        external="1",
        priorities="1",
        session_header="X-Team-Session",
    )
    shown = await page.get(changed.headers["location"])
    stored = await row(db, "Lab 2")

    assert "Saved." in text_of(shown)
    assert "Leaves the building" in text_of(shown)
    assert (stored.forced_kind, stored.external, stored.priorities) == ("sglang", True, True)
    assert stored.session_header == "X-Team-Session"
    assert value_of(shown, "session_header") == "X-Team-Session"
    assert stored.sealed_api_key is not None
    assert "sk-lab" not in shown.text
    await until_there(page, address, "Healthy · SGLang")


async def test_an_engine_is_drained_while_its_answers_end(
    page: Browser, lab: FakeEngine, db: Sessions, site: Site
) -> None:
    await add_lab(page, lab)
    await until_shown(page, "hazel")
    await submit(page, f"/admin/deployments/{await deployment_named(db, 'hazel')}/publish")
    hazel = (await site.until_offered("hazel"))["hazel"]
    lab.script = ("Half of ", asyncio.Event())
    await page.send("Hello", model=hazel)
    await lab.until(lambda fake: fake.running == 1)
    address = await address_of(db)
    await submit(page, f"{address}/drain")
    drained = await until_there(page, address, "Drained")
    async with asyncio.timeout(5):
        while (offer := site.registry.offer(hazel)) is None or offer.available:
            await asyncio.sleep(0.01)
    running = lab.running
    await submit(page, f"{address}/undrain")
    await until_there(page, address, "Healthy")

    assert "One answer of this process still runs there." in text_of(drained)
    assert running == 1
    assert "End draining" in text_of(drained)


async def test_who_deletes_an_engine_is_told_which_models_go(page: Browser, lab: FakeEngine, db: Sessions) -> None:
    await add_lab(page, lab)
    await until_shown(page, "hazel")
    for name in ("hazel", "fake-8b"):
        await submit(page, f"/admin/deployments/{await deployment_named(db, name)}/publish")
    address = await address_of(db)
    shown = await page.get(address)
    removed = await submit(page, f"{address}/remove")

    assert "These models lose their last engine, and nobody can choose them any more: hazel." in text_of(shown)
    assert removed.headers["location"] == "/admin/engines"
    async with db.begin() as session:
        left = dict((await session.execute(select(Model.name, Model.published))).all())
    assert left == {"fake-8b": True, "fake-70b": True, "hazel": False}


async def test_models_are_loaded_kept_warm_and_unloaded(page: Browser, ollama: FakeEngine, db: Sessions) -> None:
    await submit(page, "/admin/engines", name="Lab", url=ollama.url)
    address = await address_of(db)
    before = await until_there(page, address, "Not loaded")
    loaded = await submit(page, f"{address}/load", model="llama3.2")
    shown = await page.get(address)
    await submit(page, f"{address}/load", model="llama3.2", keep="1")
    kept = set(ollama.kept)
    await submit(page, f"{address}/unload", model="llama3.2")

    assert {"Load llama3.2", "Keep llama3.2 loaded"} <= buttons(before)
    assert loaded.status_code == 303
    assert "Loaded until" in text_of(shown)
    assert "Unload llama3.2" in buttons(shown)
    assert kept == {"llama3.2"}
    assert ollama.loaded == set()
    assert "Not loaded" in text_of(await page.get(address))


async def test_a_model_that_cannot_be_loaded_is_told_on_the_page(
    page: Browser, ollama: FakeEngine, db: Sessions
) -> None:
    ollama.models.append("huge")
    await submit(page, "/admin/engines", name="Lab", url=ollama.url)
    address = await address_of(db)
    await until_there(page, address, "Not loaded")
    ollama.models.remove("huge")
    await submit(page, f"{address}/load", model="huge")
    unknown = await submit(page, f"{address}/load", model="of-nobody")

    assert "huge was not loaded." in text_of(await page.get(address))
    assert "404: model 'huge' not found" in text_of(await page.get(address))
    assert unknown.status_code == 404


async def test_who_puts_vllm_to_sleep_is_asked_first_and_nothing_is_sent_there(
    page: Browser, db: Sessions, site: Site, engine: FakeEngine
) -> None:
    engine.dev_mode = True
    await asyncio.to_thread(engine.stop)
    await asyncio.to_thread(engine.start)  # looked at anew
    address = await address_of(db, "fake")
    await until_there(page, address, "Loaded")
    asked = await submit(page, f"{address}/unload", model="fake-8b")
    question = await page.get(asked.headers["location"])
    awake = not engine.is_asleep
    await submit(page, f"{address}/unload", model="fake-8b", sure="1")
    asleep = [offer.problem for offer in site.registry.offers]
    shown = await page.get(address)
    await submit(page, f"{address}/load", model="fake-8b")

    assert "Unload fake-8b? The engine puts all of its models to sleep at once." in text_of(question)
    assert "These go with it: fake-70b." in text_of(question)
    assert awake
    assert asleep == ["The model sleeps until an administrator wakes it."] * 2
    assert "Asleep" in text_of(shown)
    assert not engine.is_asleep
    assert [offer.problem for offer in site.registry.offers] == [None, None]


async def test_what_leaves_the_building_is_marked_wherever_it_is_chosen(
    page: Browser, lab: FakeEngine, db: Sessions, site: Site
) -> None:
    await add_lab(page, lab)
    await until_shown(page, "hazel")
    async with db.begin() as session:
        await session.execute(update(Engine).where(Engine.name == "Lab").values(external=True))
    await submit(page, f"/admin/deployments/{await deployment_named(db, 'hazel')}/publish")
    await site.until_offered("hazel")

    assert "Leaves the building" in text_of(await page.get("/admin/engines"))
    assert "some of its answers would leave the building" in text_of(await page.get("/admin/engines"))
    assert "Leaves the building" in text_of(await page.get("/admin/models"))
    assert "leaves the building" in text_of(await page.get("/"))


async def test_a_model_that_is_not_as_pinned_leads_to_its_page(page: Browser, db: Sessions) -> None:
    async with db.begin() as session:
        of_8b = update(Deployment).where(Deployment.upstream_name == "fake-8b").values(pinned_revision="another")
        model_id: UUID | None = await session.scalar(of_8b.returning(Deployment.model_id))
    shown = await page.get(await address_of(db, "fake"))

    assert f'href="/admin/models/{model_id}#engines">Not as pinned' in shown.text


async def test_a_member_does_nothing_with_an_engine(
    browser: OpenBrowser, alice: User, db: Sessions, site: Site
) -> None:
    await site.until_offered("fake-8b")
    stranger, address = await browser(alice), await address_of(db, "fake")
    paths = [address, *(f"{address}/{what}" for what in ("test", "drain", "undrain", "load", "unload", "remove"))]
    replies = [await submit(stranger, path, model="fake-8b", sure="1") for path in (*paths, "/admin/engines/test")]

    assert {reply.status_code for reply in (*replies, await stranger.get(address))} == {404}
    assert not (await row(db, "fake")).draining

"""Who gets in with an API key, what it opens, and that it stops opening the moment it ends, in every process."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import openai
import psycopg
import pytest
from openai import AsyncOpenAI
from sqlalchemy import update

from backend.accounts import service as accounts
from backend.accounts.models import User
from backend.core.bus import Bus
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.settings import Settings
from backend.engines.models import Model
from backend.keys import service as keys
from backend.keys.models import ApiKey
from backend.keys.service import Made
from tests.conftest import OpenBrowser, plain, sign_in
from tests.fakes.engine import FakeEngine, Pause
from tests.site import Site, free_port
from tests.web.api.conftest import MODEL, MakeKey, asked
from tests.web.test_logins import statements
from web.api.callers import Callers


async def revoke(db: Sessions, made: Made) -> None:
    async with db.as_person(made.key.owner_id) as session:
        await keys.revoke(session, made.key.owner_id, made.key.id)


async def disable(db: Sessions, person: User) -> None:
    async with db.begin() as session:
        await accounts.disable(session, await accounts.find_person(session, person.id))


@pytest.fixture
async def elsewhere(settings: Settings, site: Site) -> AsyncIterator[Site]:
    """Another process on the same database."""
    async with Site(settings.model_copy(update={"port": free_port()})) as running:
        yield running


async def test_a_key_alone_opens_the_api_and_nothing_else(http: httpx.AsyncClient, base: str) -> None:
    listed = await http.get("/models")
    page = await http.get(base.removesuffix("/v1") + "/settings/keys")

    assert listed.status_code == 200
    assert page.status_code == 303
    assert page.headers["location"].startswith("/login")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer pk-parley-" + "x" * 43},
        {"authorization": "Basic {key}"},
        {"authorization": "{key}"},
        {"authorization": "Bearer {key}x"},
        {"authorization": "Bearer {key}, Bearer {key}"},
        {"api-key": "{key}"},
        {"x-api-key": "{key}"},
        {"cookie": "sid={session}"},
        {"cookie": "sid={session}", "sec-fetch-site": "same-origin"},
        {"cookie": "sid={key}; authorization={key}"},
    ],
)
async def test_nothing_else_opens_it(
    base: str, key: Made, db: Sessions, alice: User, engine: FakeEngine, headers: dict[str, str]
) -> None:
    session = await sign_in(db, alice)
    sent = {name: value.format(key=key.secret, session=session) for name, value in headers.items()}

    async with httpx.AsyncClient(base_url=base, headers=sent, verify=False) as nobody:
        replies = [
            await nobody.get("/models"),
            await nobody.get(f"/models?api_key={key.secret}&key={key.secret}&access_token={key.secret}"),
            await nobody.post("/chat/completions", json=asked("from nobody", api_key=key.secret)),
        ]

    for reply in replies:
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"] == "Bearer"
        assert reply.json()["error"]["code"] == "invalid_api_key"
    assert not any("from nobody" in request.last_text for request in engine.requests)


async def test_two_keys_at_once_open_nothing(base: str, key: Made) -> None:
    headers = [("authorization", f"Bearer {key.secret}"), ("authorization", f"Bearer {key.secret}")]

    async with httpx.AsyncClient(verify=False) as client:
        assert (await client.get(f"{base}/models", headers=headers)).status_code == 401


async def test_a_cookie_beside_the_key_changes_nothing(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.script = ("Yes.",)

    reply = await http.post(
        "/chat/completions", json=asked(), headers={"cookie": "sid=anything", "sec-fetch-site": "cross-site"}
    )

    assert reply.status_code == 200
    assert "access-control-allow-origin" not in reply.headers


async def test_a_key_that_expired_does_not_work(http: httpx.AsyncClient, db: Sessions) -> None:
    async with db.as_worker() as session:
        await session.execute(update(ApiKey).values(expires_at=now() - timedelta(seconds=1)))

    assert (await http.get("/models")).status_code == 401


@pytest.mark.parametrize("end", ["revoked", "disabled"])
async def test_what_ends_a_key_ends_it_in_every_process_at_once(
    http: httpx.AsyncClient, elsewhere: Site, db: Sessions, key: Made, alice: User, site: Site, end: str
) -> None:
    other = f"http://127.0.0.1:{elsewhere.settings.port}/v1/models"
    assert {(await http.get("/models")).status_code, (await http.get(other)).status_code} == {200}
    with statements() as seen:
        assert {(await http.get("/models")).status_code, (await http.get(other)).status_code} == {200}
    assert not [statement for statement in seen if "api_keys" in statement], "remembered"

    if end == "revoked":
        await revoke(site.sessions, key)
    else:
        await disable(site.sessions, alice)

    assert (await http.get("/models")).status_code == 401
    async with asyncio.timeout(5):
        while (await http.get(other)).status_code != 401:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("end", ["revoked", "disabled"])
async def test_an_answer_ends_with_the_right_to_it(
    alices: AsyncOpenAI, engine: FakeEngine, site: Site, key: Made, alice: User, end: str
) -> None:
    engine.script = ("Well, ", Pause(30), "never")
    stream = await alices.chat.completions.create(**asked(), stream=True)
    said = [(await anext(stream)).choices[0].delta.content for _ in range(2)]

    await (revoke(site.sessions, key) if end == "revoked" else disable(site.sessions, alice))

    with pytest.raises(openai.APIError) as ended:
        await anext(stream)
    assert said == ["", "Well, "]
    assert ended.value.code == "invalid_api_key"
    async with asyncio.timeout(5):
        while engine.running:
            await asyncio.sleep(0.01)


async def test_a_sign_out_ends_no_program(
    alices: AsyncOpenAI, engine: FakeEngine, browser: OpenBrowser, alice: User
) -> None:
    go_on = asyncio.Event()
    engine.script = ("Well, ", go_on, "yes.")
    stream = await alices.chat.completions.create(**asked(), stream=True)
    first = await anext(stream)

    await (await browser(alice)).post("/logout", {}, hx=False)
    go_on.set()
    rest = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]

    assert first.choices[0].delta.role == "assistant"
    assert rest[-2:] == ["yes.", ""]


async def test_a_model_that_is_not_theirs_is_one_that_does_not_exist(
    http: httpx.AsyncClient, site: Site, db: Sessions, engine: FakeEngine
) -> None:
    models = await site.until_offered("fake-70b")
    async with db.begin() as session:
        await session.execute(update(Model).where(Model.id == models["fake-70b"]).values(for_everybody=False))
    await site.registry.reload()

    listed = (await http.get("/models")).json()["data"]
    replies = [
        await http.get("/models/fake-70b"),
        await http.get(f"/models/{models['fake-70b']}"),
        await http.post("/chat/completions", json=asked("not theirs") | {"model": "fake-70b"}),
        await http.post("/chat/completions", json=asked("not theirs") | {"model": str(models["fake-70b"])}),
    ]

    assert [model["id"] for model in listed] == [MODEL]
    for reply in replies:
        assert reply.status_code == 404
        assert reply.json()["error"]["code"] == "model_not_found"
    assert not any("not theirs" in request.last_text for request in engine.requests)


async def test_after_a_silence_nothing_from_before_it_is_believed(
    database: str, db: Sessions, make_key: MakeKey, alice: User
) -> None:
    made = await make_key(alice)
    async with Bus(database) as bus:
        callers = Callers(db, bus)
        assert await callers.find(made.secret) is not None
        again = asyncio.Event()
        bus.on_reconnect(again.set)

        async with db.as_worker() as session:
            await session.execute(update(ApiKey).values(revoked_at=now()))
        with psycopg.connect(plain(database), autocommit=True) as administrator:
            administrator.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'parley listens'"
            )
        await asyncio.wait_for(again.wait(), 5)

        assert await callers.find(made.secret) is None


async def test_a_key_that_ends_while_it_is_looked_up_is_not_remembered(
    database: str, db: Sessions, make_key: MakeKey, alice: User, owner_url: str
) -> None:
    made = await make_key(alice)
    async with Bus(database) as bus, await psycopg.AsyncConnection.connect(owner_url) as slow:
        callers = Callers(db, bus)
        await slow.execute("LOCK api_keys")
        looking = asyncio.create_task(callers.find(made.secret))
        await asyncio.sleep(0.05)
        bus.dispatch(keys.TOPIC, {"owner_id": str(alice.id)})
        await slow.rollback()

        found = await looking

    assert found is not None
    assert found.doubtful
    assert len(callers) == 0

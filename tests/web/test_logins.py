"""Sessions that are remembered for a moment: what that saves, and that nobody gets in by it who may not any more.

Two whole sites on one database stand for two processes; they tell each other what ended.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, delete, event, text, update

from backend.accounts import service, sessions
from backend.accounts.models import LoginSession, Purpose, Role, User
from backend.accounts.sessions import Lifetime
from backend.core.bus import Bus
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.ids import new_id
from backend.core.settings import Settings
from backend.ops import people
from tests.conftest import PASSWORD, AddPerson, OpenBrowser, plain, sign_in
from tests.fakes.engine import FakeEngine
from tests.site import Browser, Site, free_port
from tests.web.accounts.conftest import NEW_PASSWORD, open_link, submit
from web.logins import Login, Logins
from web.policy import POLICY, Access
from web.streaming import OpenStreams

LIFETIME = Lifetime(timedelta(hours=12), timedelta(days=7))


@pytest.fixture
async def elsewhere(settings: Settings, site: Site) -> AsyncIterator[Site]:
    async with Site(settings.model_copy(update={"port": free_port()})) as running:
        yield running


@pytest.fixture
async def bus(database: str) -> AsyncIterator[Bus]:
    async with Bus(database) as running:
        yield running


@pytest.fixture
async def logins(bus: Bus, db: Sessions) -> Logins:
    return Logins(db, bus, OpenStreams())


async def find(logins: Logins, token: str) -> Login | None:
    return await logins.find(token, LIFETIME)


@contextmanager
def statements() -> Iterator[list[str]]:
    """All that is sent to the database meanwhile, by whomever in this process, except by loops."""
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)


# What it saves


async def test_a_request_soon_after_another_costs_no_statement_for_its_session(
    browser: OpenBrowser, carol: User
) -> None:
    page = await browser(carol)

    with statements() as first:
        await page.get("/admin/people")
    with statements() as second:
        await page.get("/admin/people")

    assert any("login_sessions" in each for each in first)
    assert not any("login_sessions" in each for each in second)
    assert f"BEGIN; SELECT set_config('parley.person', '{carol.id}', true)" in second


async def test_a_request_that_asks_the_database_nothing_opens_no_transaction(browser: OpenBrowser, carol: User) -> None:
    page = await browser(carol)
    await page.get("/admin")

    with statements() as seen:
        reply = await page.get("/admin")

    assert reply.status_code == 200
    assert [each for each in seen if str(carol.id) in each or "login_sessions" in each] == []


async def test_a_session_is_not_remembered_for_longer_than_it_lasts(logins: Logins, db: Sessions, alice: User) -> None:
    token = await sign_in(db, alice)
    async with db.begin() as session:
        await session.execute(update(LoginSession).values(expires_at=now() + timedelta(seconds=0.2)))

    first, again = await find(logins, token), await find(logins, token)
    await asyncio.sleep(0.25)

    assert first is not None
    assert again is first
    assert await find(logins, token) is None


async def test_being_seen_is_still_written_once_a_minute(logins: Logins, db: Sessions, alice: User) -> None:
    token = await sign_in(db, alice)
    async with db.begin() as session:
        await session.execute(update(LoginSession).values(last_seen_at=now() - timedelta(minutes=2)))

    for _ in range(2):
        await find(logins, token)

    async with db.begin() as session:
        assert now() - (await session.scalars(text("SELECT last_seen_at FROM login_sessions"))).one() < timedelta(
            minutes=1
        )


# What ends it

Way = Callable[[Browser, Browser, Sessions, User], Awaitable[object]]


async def sign_out(theirs: Browser, _admins: Browser, _db: Sessions, _person: User) -> None:
    await submit(theirs, "/logout")


async def choose_a_password(theirs: Browser, _admins: Browser, _db: Sessions, _person: User) -> None:
    await submit(theirs, "/settings/password", current_password=PASSWORD, new_password=NEW_PASSWORD)


async def use_a_link(theirs: Browser, _admins: Browser, db: Sessions, person: User) -> None:
    async with db.begin() as session:
        secret = await service.make_link(session, Purpose.RESET, person)
    theirs.http.cookies.clear()
    await open_link(theirs, "/join", secret)
    await submit(theirs, "/join", password=NEW_PASSWORD)


async def get_another_role(_theirs: Browser, admins: Browser, _db: Sessions, person: User) -> None:
    await submit(admins, f"/admin/people/{person.id}/role", role="member")


async def be_disabled(_theirs: Browser, admins: Browser, _db: Sessions, person: User) -> None:
    await submit(admins, f"/admin/people/{person.id}/disable")


async def be_disabled_from_the_shell(_theirs: Browser, admins: Browser, _db: Sessions, person: User) -> None:
    await people.disable(admins.site.settings.database_url, person.email)


WAYS: tuple[Way, ...] = (
    sign_out,
    choose_a_password,
    use_a_link,
    get_another_role,
    be_disabled,
    be_disabled_from_the_shell,
)


@pytest.mark.long
async def test_who_was_signed_out_in_one_process_is_out_in_the_other_at_once_on_every_route(
    site: Site, elsewhere: Site, db: Sessions, add_person: AddPerson, bob: User, carol: User
) -> None:
    guarded = [key for key, access in POLICY.items() if access is not Access.PUBLIC]
    async with AsyncExitStack() as stack:

        async def open_at(site: Site, person: User, token: str | None = None) -> Browser:
            return await stack.enter_async_context(Browser(site, token=token or await sign_in(db, person)))

        admins, bystander = await open_at(site, carol), await open_at(elsewhere, bob)
        for way in WAYS:
            person = await add_person(way.__name__, Role.ADMIN)
            token = await sign_in(db, person)
            here, there = await open_at(site, person, token), await open_at(elsewhere, person, token)
            before = [await page.get("/conversations") for page in (here, there, bystander)]

            with elsewhere.state["streams"].joined(person.id) as told:
                await way(here, admins, db, person)
                # The message needs a moment, far less than the five seconds for which a session is remembered.
                await asyncio.wait_for(told.wait(), 0.5)
            replies = await asyncio.gather(*(call(there, *key) for key in guarded))

            assert [reply.status_code for reply in before] == [200, 200, 200], way.__name__
            assert {key: reply for key, reply in zip(guarded, replies, strict=True) if reply != "signed out"} == {}
        assert (await bystander.get("/conversations")).status_code == 200


async def call(page: Browser, method: str, path: str) -> str:
    path = re.sub(r"\{\w+\}", str(new_id()), path)
    reply = await (page.get(path) if method == "GET" else page.post(path, {}, hx=False))
    signed_out = reply.status_code == 401 or reply.headers.get("location", "").startswith("/login")
    return "signed out" if signed_out else str(reply.status_code)


async def test_a_changed_profile_is_seen_by_the_other_process_at_once_and_ends_no_stream(
    site: Site, elsewhere: Site, db: Sessions, alice: User
) -> None:
    token = await sign_in(db, alice)
    async with Browser(site, token=token) as here, Browser(elsewhere, token=token) as there:
        with elsewhere.state["streams"].joined(alice.id) as told:
            before = await there.get("/conversations")
            await submit(here, "/settings/theme", theme="dark")
            await submit(here, "/settings", name="Alice Example", time_zone="Asia/Tokyo")
            async with asyncio.timeout(0.5):
                while 'data-zone="Asia/Tokyo"' not in (after := await there.get("/conversations")).text:
                    await asyncio.sleep(0.005)

    assert 'data-zone="Europe/Berlin"' in before.text
    assert 'data-theme="dark"' in after.text
    assert not told.is_set()


async def test_disabling_somebody_stops_what_another_process_writes_for_them(
    site: Site, elsewhere: Site, engine: FakeEngine, db: Sessions, alice: User, carol: User
) -> None:
    model = (await elsewhere.until_offered("fake-8b"))["fake-8b"]
    go_on = asyncio.Event()
    engine.plan(["Once", go_on])
    async with (
        Browser(elsewhere, token=await sign_in(db, alice)) as there,
        Browser(site, token=await sign_in(db, carol)) as admins,
    ):
        await there.send("Tell me a story.", model=model)

        await submit(admins, f"/admin/people/{alice.id}/disable")

        async with db.as_person(alice.id) as session, asyncio.timeout(5):
            while await session.scalar(text("SELECT status FROM messages WHERE speaker = 'model'")) != "stopped":
                await asyncio.sleep(0.01)


# What could go wrong


async def test_while_others_cannot_be_heard_nothing_is_remembered(db: Sessions, alice: User) -> None:
    token = await sign_in(db, alice)
    async with Bus("postgresql+psycopg://nobody@/none?host=/tmp/nowhere") as deaf:
        logins = Logins(db, deaf, OpenStreams())

        first, second = await find(logins, token), await find(logins, token)
        async with db.begin() as session:
            await session.execute(delete(LoginSession))

        assert first is not None
        assert second is not first
        assert await find(logins, token) is None


async def test_after_a_silence_nothing_from_before_it_is_believed(
    bus: Bus, logins: Logins, db: Sessions, alice: User, database: str
) -> None:
    token = await sign_in(db, alice)
    assert await find(logins, token) is not None
    again = asyncio.Event()
    bus.on_reconnect(again.set)

    with psycopg.connect(plain(database), autocommit=True) as administrator:
        administrator.execute("DELETE FROM login_sessions")
        administrator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'parley listens'"
        )
    await asyncio.wait_for(again.wait(), 5)

    assert await find(logins, token) is None


async def test_a_session_that_ends_while_it_is_read_is_not_remembered(
    bus: Bus, logins: Logins, db: Sessions, owner_url: str, alice: User
) -> None:
    token = await sign_in(db, alice)
    async with await psycopg.AsyncConnection.connect(owner_url) as slow:
        await slow.execute("LOCK login_sessions")
        looking = asyncio.create_task(find(logins, token))
        await asyncio.sleep(0.05)
        bus.dispatch(sessions.TOPIC, {"user_id": str(new_id()), "ended": True})

    found = await looking

    assert found is not None
    assert found.doubtful  # perhaps; whoever opens a stream with it comes back at once and is asked again
    assert await find(logins, token) is not found


async def test_a_stream_that_opens_with_an_ended_session_ends_at_once(alice: User) -> None:
    streams = OpenStreams()

    with streams.joined(alice.id, lambda: True) as ended, streams.joined(alice.id) as open_one:
        assert (ended.is_set(), open_one.is_set()) == (True, False)


async def test_what_is_remembered_does_not_grow_for_ever(
    logins: Logins, db: Sessions, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("web.remembering.LONGEST_SECONDS", 0.0)
    tokens = [await sign_in(db, alice) for _ in range(20)]

    found: list[Any] = [await find(logins, token) for token in tokens]

    assert all(found)
    assert len(logins) == 1


async def test_after_a_silence_whoever_reads_has_to_show_that_they_may(
    bus: Bus, db: Sessions, alice: User, database: str
) -> None:
    """A sign-out that was not heard; the page comes back with its cursor, and is asked for its session."""
    streams = OpenStreams()
    logins = Logins(db, bus, streams)
    login = await find(logins, await sign_in(db, alice))
    again = asyncio.Event()
    bus.on_reconnect(again.set)

    with streams.joined(alice.id) as ended, psycopg.connect(plain(database), autocommit=True) as administrator:
        administrator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'parley listens'"
        )
        await asyncio.wait_for(again.wait(), 5)

        assert ended.is_set()
        assert login is not None
        assert login.doubtful


async def test_a_request_that_is_under_way_hears_of_a_sign_out_too(logins: Logins, db: Sessions, alice: User) -> None:
    """Also where what was remembered has run out meanwhile, and another request has looked it up anew."""
    token = await sign_in(db, alice)
    first = await find(logins, token)
    logins._known._remembered.clear()
    assert await find(logins, token) is not first

    logins._changed({"user_id": str(alice.id), "ended": True})

    assert first is not None
    assert first.doubtful

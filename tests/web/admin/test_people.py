"""Administration: who may use Parley."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from sqlalchemy import Engine, event, select, update

from backend.accounts.models import OneTimeLink, Purpose, Role, User
from backend.conversations.models import Message, Speaker
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.settings import Settings
from tests.accounts.conftest import link_for, reread, sessions_of
from tests.conftest import PASSWORD, AddPerson, OpenBrowser, sign_in
from tests.fakes.engine import FakeEngine
from tests.site import Browser, Site
from tests.web.accounts.conftest import NEW_PASSWORD, Rows, open_link, stored_rows, submit, text_of, value_of

DORA = {"name": "Dora Example", "email": "dora@corp.example", "role": "member"}


@pytest.fixture
def rows(owner_url: str) -> Iterator[Rows]:
    yield from stored_rows(owner_url)


async def test_everybody_is_listed_with_role_and_state(
    browser: OpenBrowser, db: Sessions, alice: User, bob: User, carol: User
) -> None:
    async with db.begin() as session:
        await session.execute(update(User).where(User.id == bob.id).values(disabled_at=now()))
    page = await browser(carol)
    await submit(page, "/admin/people", **DORA)

    shown = await page.get("/admin/people")

    assert shown.status_code == 200
    assert "4 people have an account." in text_of(shown)
    assert _row(shown.text, alice) == "Alice Owner alice@corp.example Member Active"
    assert _row(shown.text, bob) == "Bob Stranger bob@corp.example Member Deactivated"
    assert "Dora Example dora@corp.example Member Invited" in text_of(shown)
    assert _row(shown.text, carol) == "Carol Admin carol@corp.example Administrator Active"


async def test_a_new_person_gets_a_link_that_is_shown_once(
    browser: OpenBrowser, settings: Settings, db: Sessions, carol: User
) -> None:
    page = await browser(carol)

    added = await submit(page, "/admin/people", **DORA)
    again = await page.get("/admin/people")
    link = _link(added.text)
    theirs = await browser(None)
    await open_link(theirs, "/join", link.partition("secret=")[2])
    joined = await submit(theirs, "/join", password=NEW_PASSWORD)

    assert added.status_code == 200
    assert "A link for Dora Example." in text_of(added)
    assert link.startswith(f"{settings.origin}/join?secret=")
    assert "secret=" not in again.text
    assert joined.status_code == 303
    assert "Dora Example" in (await theirs.get("/settings")).text


async def test_the_link_is_built_from_the_settings_never_from_the_request(
    settings: Settings, db: Sessions, carol: User
) -> None:
    public = settings.model_copy(update={"public_url": "https://parley.corp.example"})
    token = await sign_in(db, carol)
    async with Site(public) as site, Browser(site) as page:
        forged = {
            "cookie": f"__Host-sid={token}",
            "host": "evil.example",
            "x-forwarded-host": "evil.example",
            "x-forwarded-proto": "http",
        }
        reply = await page.post("/admin/people", DORA, hx=False, headers=forged)

    assert _link(reply.text).startswith("https://parley.corp.example/join?secret=")
    assert "evil.example" not in reply.text


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": ""}, "Please enter a name."),
        ({"email": "dora"}, "This does not look like an email address."),
        ({"email": " ALICE@corp.example "}, "There is already an account for alice@corp.example."),
    ],
)
async def test_a_wrong_field_is_told_and_what_was_typed_is_kept(
    browser: OpenBrowser, alice: User, carol: User, rows: Rows, wrong: dict[str, str], says: str
) -> None:
    page = await browser(carol)
    before = rows()
    typed = DORA | {"role": "admin"} | wrong

    reply = await submit(page, "/admin/people", **typed)

    assert reply.status_code in (409, 422)
    assert text_of(reply).count(says) == 2  # beside the field, and above the table where no script opens the dialog
    assert value_of(reply, "name") == typed["name"]
    assert value_of(reply, "email") == typed["email"]
    assert re.search(r'value="admin"\s+checked', reply.text)
    assert rows() == before


async def test_a_new_link_replaces_the_one_before_and_the_password_works_until_it_is_used(
    browser: OpenBrowser, db: Sessions, alice: User, carol: User
) -> None:
    page = await browser(carol)

    first = await submit(page, f"/admin/people/{alice.id}/link")
    second = await submit(page, f"/admin/people/{alice.id}/link")

    assert "A new link for Alice Owner." in text_of(second)
    theirs = await browser(None)
    opened = [await open_link(theirs, "/join", _link(reply.text).partition("secret=")[2]) for reply in (first, second)]
    assert [reply.status_code for reply in opened] == [410, 200]
    signed_in = await submit(await browser(None), "/login", email=alice.email, password=PASSWORD)
    assert signed_in.status_code == 303


@pytest.mark.parametrize(
    ("has_password", "purpose", "lasts"),
    [(False, Purpose.INVITATION, timedelta(days=7)), (True, Purpose.RESET, timedelta(days=1))],
)
async def test_a_link_is_an_invitation_until_there_is_a_password(
    browser: OpenBrowser, db: Sessions, alice: User, carol: User, has_password: bool, purpose: Purpose, lasts: timedelta
) -> None:
    page = await browser(carol)
    if not has_password:
        async with db.begin() as session:
            await session.execute(update(User).where(User.id == alice.id).values(password_hash=None))

    await submit(page, f"/admin/people/{alice.id}/link")

    async with db.begin() as session:
        link = (await session.scalars(select(OneTimeLink))).one()
    assert link.purpose is purpose
    assert lasts - timedelta(minutes=1) < link.expires_at - now() <= lasts


async def test_a_new_role_counts_at_once_and_ends_old_sessions(
    browser: OpenBrowser, db: Sessions, alice: User, carol: User
) -> None:
    page, theirs = await browser(carol), await browser(alice)

    reply = await submit(page, f"/admin/people/{alice.id}/role", role="admin")

    assert (reply.status_code, reply.headers["location"]) == (303, "/admin/people")
    assert (await theirs.get("/settings")).status_code == 303
    assert (await (await browser(alice)).get("/admin/people")).status_code == 200
    await submit(page, f"/admin/people/{alice.id}/role", role="member")
    assert (await (await browser(alice)).get("/admin/people")).status_code == 404


@pytest.mark.parametrize("role", ["", "owner", "ADMIN"])
async def test_a_role_that_does_not_exist_is_refused(
    browser: OpenBrowser, alice: User, carol: User, rows: Rows, role: str
) -> None:
    page = await browser(carol)
    before = rows()

    replies = [
        await submit(page, f"/admin/people/{alice.id}/role", role=role),
        await submit(page, "/admin/people", **DORA | {"role": role}),
    ]

    assert [reply.status_code for reply in replies] == [422, 422]
    assert rows() == before


async def test_a_disabled_person_is_out_at_once_and_back_when_enabled(
    browser: OpenBrowser, db: Sessions, alice: User, carol: User
) -> None:
    page, theirs = await browser(carol), await browser(alice)
    link = await link_for(db, Purpose.RESET, alice)

    disabled = await submit(page, f"/admin/people/{alice.id}/disable")
    locked_out = [
        await theirs.get("/conversations", hx=True),
        await submit(await browser(None), "/login", email=alice.email, password=PASSWORD),
        await open_link(await browser(None), "/join", link),
    ]
    no_link = await submit(page, f"/admin/people/{alice.id}/link")
    enabled = await submit(page, f"/admin/people/{alice.id}/enable")
    back = await submit(await browser(None), "/login", email=alice.email, password=PASSWORD)

    assert (disabled.status_code, disabled.headers["location"]) == (303, "/admin/people")
    assert [reply.status_code for reply in locked_out] == [401, 401, 410]
    assert no_link.status_code == 409
    assert "Alice Owner is disabled." in text_of(no_link)
    assert (enabled.status_code, back.status_code) == (303, 303)
    assert (await theirs.get("/settings")).status_code == 303


async def test_disabling_somebody_stops_their_answers_and_nobody_elses(
    site: Site, browser: OpenBrowser, engine: FakeEngine, db: Sessions, alice: User, bob: User, carol: User
) -> None:
    model = (await site.until_offered("fake-8b"))["fake-8b"]
    go_on = asyncio.Event()
    engine.plan(["Once", go_on], ["Once", go_on])
    page, of_alice, of_bob = [await browser(person) for person in (carol, alice, bob)]
    for theirs in (of_alice, of_bob):
        await theirs.send("Tell me a story.", model=model)

    await submit(page, f"/admin/people/{alice.id}/disable")

    async with asyncio.timeout(5):
        while await _states(db, alice) != ["stopped"]:
            await asyncio.sleep(0.01)
    assert await _states(db, bob) in (["queued"], ["streaming"])


# The last administrator


@pytest.mark.parametrize(("action", "form"), [("role", {"role": "member"}), ("disable", {})])
async def test_the_only_administrator_cannot_go_and_is_told_why(
    browser: OpenBrowser, carol: User, rows: Rows, action: str, form: dict[str, str]
) -> None:
    page = await browser(carol)
    before = rows()

    reply = await submit(page, f"/admin/people/{carol.id}/{action}", **form)

    assert reply.status_code == 409
    assert "Carol Admin is the only active administrator. Make somebody else one first." in text_of(reply)
    assert rows() == before
    assert (await page.get("/admin/people")).status_code == 200


async def test_who_demotes_themselves_is_led_away_from_the_administration(
    browser: OpenBrowser, add_person: AddPerson, carol: User, db: Sessions
) -> None:
    await add_person("Erin Admin", Role.ADMIN)
    page = await browser(carol)

    reply = await submit(page, f"/admin/people/{carol.id}/role", role="member")

    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    assert await sessions_of(db, carol) == 0


async def test_two_administrators_who_disable_each_other_at_the_same_moment_leave_one(
    browser: OpenBrowser, add_person: AddPerson, carol: User, db: Sessions
) -> None:
    for number in range(5):
        erin = await add_person(f"Erin{number}", Role.ADMIN)
        one, other = await browser(carol), await browser(erin)

        replies = await asyncio.gather(
            submit(one, f"/admin/people/{erin.id}/disable"), submit(other, f"/admin/people/{carol.id}/disable")
        )

        active = [(await reread(db, person)).is_active for person in (carol, erin)]
        assert sum(active) == 1
        assert sorted(reply.status_code for reply in replies) in ([303, 401], [303, 409])
        async with db.begin() as session:
            await session.execute(update(User).where(User.id == carol.id).values(disabled_at=None))
            await session.execute(update(User).where(User.id == erin.id).values(disabled_at=now()))


async def test_a_list_of_many_people_costs_no_more_queries_than_one_of_few(
    browser: OpenBrowser, add_person: AddPerson, carol: User
) -> None:
    page = await browser(carol)
    await page.get("/admin/people")  # the session is remembered from here on
    with _queries() as few:
        await page.get("/admin/people")
    for number in range(20):
        await add_person(f"Person{number}", Role.MEMBER)

    with _queries() as many:
        await page.get("/admin/people")

    assert len(many) == len(few) > 0


def _row(html: str, person: User) -> str:
    """What the table says of a person, up to when they were last seen."""
    found = re.search(rf'<tr id="person-{person.id}">(.*?)<td class="wide-only">(<time|never)', html, re.DOTALL)
    assert found
    return " ".join(re.sub(r"<[^>]+>", " ", found[1]).split())


@contextmanager
def _queries() -> Iterator[list[str]]:
    """The statements about people that are sent meanwhile."""
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if "FROM users" in statement or "JOIN users" in statement:
            seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)


async def _states(db: Sessions, person: User) -> list[str]:
    async with db.as_person(person.id) as session:
        return list(await session.scalars(select(Message.status).where(Message.speaker == Speaker.MODEL)))


def _link(html: str) -> str:
    found = re.search(r'<code id="one-time-link">([^<]+)</code>', html)
    assert found, html
    return found[1]

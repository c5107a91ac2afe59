"""Administration: the audit. Who did what from where, and nothing in it that has to stay secret."""

import csv
import io
import re
import secrets

import httpx
import orjson
import psycopg
import pytest
from sqlalchemy import select

from backend.accounts.models import User
from backend.audit import service, verifying
from backend.audit.acting import Actor, Via, act_as
from backend.audit.chain import Keys
from backend.audit.models import AuditEvent
from backend.audit.service import Action, Target
from backend.core.db import Sessions
from backend.core.settings import Settings
from backend.groups.models import Group
from tests.conftest import PASSWORD, SECRET, OpenBrowser
from tests.fakes.engine import FakeEngine
from tests.served import Serve, ready
from tests.site import Browser, Site
from tests.web.accounts.conftest import SignIn, open_link, submit


@pytest.fixture
def signed_in(browser: OpenBrowser) -> SignIn:
    async def by_the_page(person: User) -> Browser:
        page = await browser(None)
        assert (await submit(page, "/login", email=person.email, password=PASSWORD)).status_code == 303
        return page

    return by_the_page


async def recorded(db: Sessions) -> list[AuditEvent]:
    async with db.begin() as session:
        return list(await session.scalars(select(AuditEvent).order_by(AuditEvent.number)))


async def by_people(db: Sessions) -> list[str]:
    return [event.action for event in await recorded(db) if event.via is not Via.SYSTEM]


async def note(db: Sessions, *names: str, actor: Actor | None = None) -> None:
    async with db.begin() as session:
        act_as(session, actor or Actor(Via.HOST))
        for name in names:
            await service.record(session, Action.GROUP_ADDED, Target("group", name=name), after={"weight": 1})


def rows_of(reply: httpx.Response) -> list[str]:
    bodies = re.findall(r'<tr id="event-\d+">(.*?)</tr>', reply.text, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", body).split()) for body in bodies]


# What is recorded


async def test_signing_in_failing_and_signing_out_are_recorded(
    signed_in: SignIn, browser: OpenBrowser, db: Sessions, carol: User
) -> None:
    nobody = await browser(None)
    await submit(nobody, "/login", email=carol.email, password="wrong")
    await submit(nobody, "/login", email="My-Password-In-The-Wrong-Field", password="wrong")
    page = await signed_in(carol)
    await submit(page, "/logout")

    wrong, unknown, opened, closed = [event for event in await recorded(db) if event.via is Via.BROWSER]
    assert (wrong.action, wrong.actor_id, wrong.target_id, wrong.after) == (
        "session.refused",
        None,
        carol.id,
        {"why": "wrong password"},
    )
    assert (unknown.target_kind, unknown.target_id) == ("account", None)
    assert unknown.after is not None
    assert unknown.after["why"] == "nobody"
    assert "wrong-field" not in str(unknown.after).lower()
    assert (opened.action, opened.actor_id, opened.address) == ("session.opened", carol.id, "127.0.0.1")
    assert (closed.action, closed.actor_id, closed.target_id) == ("session.closed", carol.id, carol.id)


async def test_a_tour_of_the_administration_is_recorded_without_any_secret(
    signed_in: SignIn, browser: OpenBrowser, site: Site, engine: FakeEngine, db: Sessions, carol: User, alice: User
) -> None:
    """Passwords, keys, links and what people write are canaries: none of them is in any record."""
    canaries = {name: f"canary-{name}-{secrets.token_hex(8)}" for name in ("engine", "chat", "prompt", "password")}
    models = await site.until_offered("fake-8b")
    page = await signed_in(carol)
    added = await submit(page, "/admin/people", name="Dora", email="dora@corp.example", role="member")
    link = re.search(r"secret=([\w-]+)", added.text)
    assert link
    canaries["link"] = link[1]
    guest = await browser(None)
    await open_link(guest, "/join", link[1])
    await submit(guest, "/join", password=canaries["password"])
    for verb, form in (("role", {"role": "admin"}), ("role", {"role": "member"}), ("disable", {}), ("enable", {})):
        await submit(page, f"/admin/people/{alice.id}/{verb}", **form)
    group = (await submit(page, "/admin/groups", name="Lab")).headers["location"]
    await submit(page, group, name="Lab", weight="3")
    for verb in ("add", "remove"):
        await submit(page, f"{group}/members/{alice.id}/{verb}")
    await submit(page, f"{group}/remove")
    # The same server under another name of this machine.
    address = engine.url.replace("127.0.0.1", "localhost")
    await submit(page, "/admin/engines", name="GPU", url=address, api_key=canaries["engine"])
    async with db.begin() as session:
        gpu = await session.scalar(
            select(AuditEvent.target_id).where(
                AuditEvent.action == Action.ENGINE_ADDED, AuditEvent.target_name == "GPU"
            )
        )
    for verb in ("drain", "undrain", "disable", "enable", "remove"):
        await submit(page, f"/admin/engines/{gpu}/{verb}")
    model = models["fake-8b"]
    await submit(page, f"/admin/models/{model}", name="Fake", system_prompt=canaries["prompt"], for_everybody="1")
    await submit(page, "/admin/models", model=str(model))
    key = re.search(
        r"pk-parley-[\w-]{43}", (await submit(page, "/settings/keys", name="Notebook", **{"scope-chat": "1"})).text
    )
    assert key
    canaries["key"] = key[0]
    await page.send(canaries["chat"], model=model)
    password = canaries["password"] + "2"
    await submit(page, "/settings/password", current_password=PASSWORD, new_password=password)

    told = await by_people(db)

    assert [action for action in told if not action.startswith("model.")] == [
        "session.opened", "person.added", "person.link_made", "person.password_set", "session.opened",
        "person.role_changed", "person.role_changed", "person.disabled", "person.enabled",
        "group.added", "group.changed", "group.member_added", "group.member_removed", "group.removed",
        "engine.added", "engine.drained", "engine.undrained", "engine.disabled", "engine.enabled", "engine.removed",
        "key.made", "person.password_set", "session.opened",
    ]  # fmt: skip
    assert {"model.changed", "model.default_chosen"} <= set(told)
    everything = (await page.get("/admin/audit/export")).text
    for name, canary in canaries.items():
        assert canary not in everything, name
    changed = next(event for event in await recorded(db) if event.action == Action.MODEL_CHANGED)
    assert (changed.before, changed.after) == (
        {"name": "fake-8b", "system_prompt": "0 characters"},
        {"name": "Fake", "system_prompt": f"{len(canaries['prompt'])} characters"},
    )
    async with db.begin() as session:
        assert (await verifying.verify(session, Keys([SECRET]))).faults == []


async def test_a_change_that_cannot_be_recorded_is_not_made(
    browser: OpenBrowser, db: Sessions, carol: User, owner_url: str
) -> None:
    page = await browser(carol)
    with psycopg.connect(owner_url, autocommit=True) as owner:
        owner.execute("ALTER TABLE audit_events RENAME TO broken")
        try:
            refused = await submit(page, "/admin/groups", name="Lab")
        finally:
            owner.execute("ALTER TABLE broken RENAME TO audit_events")

    assert refused.status_code == 500
    async with db.begin() as session:
        assert (await session.scalars(select(Group))).all() == []


async def test_the_address_is_that_of_the_true_peer(
    settings: Settings, serve: Serve, db: Sessions, carol: User
) -> None:
    """A header that anybody can send counts from a listed proxy only, and then as far as the proxy vouches for it."""
    forged = {"x-forwarded-for": "6.6.6.6, 203.0.113.9", "sec-fetch-site": "same-origin"}
    form = {"email": carol.email, "password": "wrong"}
    for proxies in ("[]", '["127.0.0.1"]'):
        served = serve(trusted_proxies=proxies)
        await ready(served)
        async with httpx.AsyncClient(base_url=served.address) as client:
            assert (await client.post("/login", data=form, headers=forged)).status_code == 401
        served.end()

    assert [event.address for event in await recorded(db) if event.via is Via.BROWSER] == ["127.0.0.1", "203.0.113.9"]


# The page


async def test_the_newest_comes_first_and_pages_follow_each_other(
    browser: OpenBrowser, db: Sessions, carol: User, alice: User
) -> None:
    page = await browser(carol)
    await note(db, *(f"Group {number:02}" for number in range(60)), actor=Actor(Via.BROWSER, alice.id, "10.0.0.7"))

    first = await page.get("/admin/audit?q=group+")
    older = re.search(r'href="([^"]+)">Older', first.text)
    assert older
    second = await page.get(older[1].replace("&amp;", "&"))

    assert rows_of(first)[0].startswith("Group added Group 59 Alice Owner in a browser, 10.0.0.7 weight: 1 ")
    assert len(rows_of(first)) == 50
    assert [row[12:20] for row in rows_of(second)] == [f"Group {number:02}" for number in range(9, -1, -1)]
    assert ">Older" not in second.text


async def test_it_is_searched_by_words_person_action_target_and_day(
    browser: OpenBrowser, db: Sessions, carol: User, alice: User, bob: User
) -> None:
    page = await browser(carol)
    await note(db, "Lab", actor=Actor(Via.BROWSER, alice.id, "10.0.0.7"))
    await note(db, "100%_real")
    async with db.begin() as session:
        await service.record(session, Action.ROLE_CHANGED, service.person(bob.id), after={"role": "admin"})
        await service.record(session, Action.MEMBER_ADDED, Target("group", name="Lab"), after={"person": alice.id})

    async def count(query: str) -> int:
        return len([row for row in rows_of(await page.get(f"/admin/audit?{query}")) if "Parley itself fake" not in row])

    assert await count("q=alice%40corp") == 1
    assert await count("q=BOB") == 1
    assert await count("q=0%25_r") == 1
    assert await count("q=%25") == 1
    assert await count("action=person.role_changed") == 1
    assert await count("action=group") == 3
    assert await count(f"person={alice.id}") == 2
    assert await count(f"target={bob.id}") == 1
    assert await count("until=2020-01-01") == 0
    assert await count("since=2020-01-01&action=group") == 3


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("since=yesterday", 422),
        ("until=9999-12-31", 422),
        ("person=x", 422),
        ("target=%00", 200),
        ("before=99999999999999999999", 200),
        ("before=-1&action='+or+1=1&q=%ff%00", 200),
    ],
)
async def test_a_bad_question_gets_a_sentence(browser: OpenBrowser, carol: User, query: str, status: int) -> None:
    page = await browser(carol)

    assert (await page.get(f"/admin/audit?{query}")).status_code == status
    assert (await page.get(f"/admin/audit/export?{query}&format=jsonl")).status_code == status
    assert (await page.get("/admin/audit/export?format=xml")).status_code == 422


async def test_what_the_page_shows_can_be_taken_along_and_that_is_recorded(
    browser: OpenBrowser, db: Sessions, carol: User
) -> None:
    page = await browser(carol)
    await note(db, '=cmd|"/c calc"', 'a"]\n<b>')

    table = await page.get("/admin/audit/export?format=csv&action=group")
    lines = await page.get("/admin/audit/export?action=group")
    log = await page.get("/admin/audit/export?format=syslog&action=group")

    assert table.headers["content-disposition"] == 'attachment; filename="audit.csv"'
    assert [row["target_name"] for row in csv.DictReader(io.StringIO(table.text))] == ['\'=cmd|"/c calc"', 'a"] <b>']
    first = orjson.loads(lines.text.splitlines()[0])
    assert (first["action"], first["via"], first["after"]) == ("group.added", "host", {"weight": 1})
    assert re.fullmatch(
        r"<110>1 \S+Z 127\.0\.0\.1 parley - group\.added \[parley@32473 number=\"\d+\" via=\"host\" "
        r"target_kind=\"group\" target_name=\"a\\\"\\] <b>\"\] {\"after\":{\"weight\":1}}",
        log.text.splitlines()[1],
    )
    exported = [event for event in await recorded(db) if event.action == Action.AUDIT_EXPORTED]
    assert [event.after for event in exported] == [
        {"format": word, "action": "group"} for word in ("csv", "jsonl", "syslog")
    ]
    assert {event.actor_id for event in exported} == {carol.id}
    assert "<b>" not in (await page.get("/admin/audit?q=a%22")).text.partition("<main")[2]


async def test_an_export_of_several_batches_is_whole(
    browser: OpenBrowser, db: Sessions, carol: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.audit.exporting._AT_ONCE", 3)
    await note(db, *(str(number) for number in range(10)))

    lines = (await (await browser(carol)).get("/admin/audit/export?action=group")).text.splitlines()

    assert [orjson.loads(line)["target_name"] for line in lines] == [str(number) for number in range(10)]


async def test_a_member_finds_no_audit(browser: OpenBrowser, db: Sessions, alice: User) -> None:
    page = await browser(alice)

    assert (await page.get("/admin/audit")).status_code == 404
    assert (await page.get("/admin/audit/export")).status_code == 404
    assert "audit.exported" not in await by_people(db)

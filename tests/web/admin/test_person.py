"""Administration: areas, what one person may and sees, keys of others, erasing."""

import asyncio
import io
import json
import zipfile

import psycopg
import pytest
from sqlalchemy import select, update

from backend.accounts.models import Area, Role, User
from backend.core.db import Sessions
from backend.groups import service as groups
from backend.groups.rights import Right
from backend.keys import service as keys
from tests.accounts.conftest import reread, sessions_of
from tests.conftest import AddPerson, OpenBrowser
from tests.site import Browser, Site
from tests.web.accounts.conftest import submit, text_of


async def give(db: Sessions, person: User, *areas: Area) -> None:
    async with db.begin() as session:
        await session.execute(update(User).where(User.id == person.id).values(areas=list(areas)))


async def test_areas_are_given_on_the_page_of_a_person_and_open_just_these(
    browser: OpenBrowser, db: Sessions, alice: User, carol: User
) -> None:
    admin, theirs = await browser(carol), await browser(alice)
    address = f"/admin/people/{alice.id}"

    given = await submit(admin, f"{address}/areas", role="member", **{"area-models": "1", "area-audit": "1"})
    signed_out = await theirs.get("/settings")
    again = await browser(alice)
    start = await again.get("/admin")
    models, people, policy = [await again.get(f"/admin/{page}") for page in ("models", "people", "policy")]

    assert given.headers["location"] == f"{address}?saved=areas"
    assert signed_out.headers["location"].startswith("/login")
    assert (await reread(db, alice)).administers == {Area.MODELS, Area.AUDIT}
    assert [reply.status_code for reply in (models, people, policy)] == [200, 404, 200]
    assert "Models and engines" in text_of(start)
    assert "People and groups" not in text_of(start)
    assert 'href="/admin/people"' not in start.text


@pytest.mark.parametrize("way", ["link", "disable", "erase", "areas", "role"])
async def test_who_looks_after_people_cannot_touch_or_become_an_administrator(
    browser: OpenBrowser, db: Sessions, alice: User, carol: User, way: str
) -> None:
    """Else the password of whoever may everything would be one link away."""
    await give(db, alice, Area.PEOPLE)
    page = await browser(alice)
    form = {"role": "admin", "address": carol.email}

    replies = [await submit(page, f"/admin/people/{person.id}/{way}", **form) for person in (carol, alice)]
    made = await submit(page, "/admin/people", name="Dora", email="dora@corp.example", role="admin")

    assert {reply.status_code for reply in (*replies, made)} <= {403, 404}
    assert (await reread(db, carol)).is_active
    assert (await reread(db, alice)).role is Role.MEMBER


async def test_two_last_administrators_who_give_up_areas_at_the_same_moment_leave_one(
    browser: OpenBrowser, add_person: AddPerson, carol: User, db: Sessions
) -> None:
    """An administrator of some areas is none who could give them."""
    erin = await add_person("Erin Admin", Role.ADMIN)
    one, other = await browser(carol), await browser(erin)

    await asyncio.gather(
        *(
            submit(page, f"/admin/people/{person.id}/areas", role="member", **{"area-people": "1"})
            for page, person in ((one, erin), (other, carol))
        )
    )

    assert sum([(await reread(db, person)).is_admin for person in (carol, erin)]) == 1


async def test_the_page_of_a_person_says_what_they_may_and_why_and_nothing_they_wrote(
    site: Site, browser: OpenBrowser, db: Sessions, alice: User, bob: User, carol: User
) -> None:
    model = (await site.until_offered("fake-8b"))["fake-8b"]
    theirs, admin = await browser(alice), await browser(carol)
    await theirs.send("A secret of Alice", model=model)
    async with db.begin() as session:
        lab = await groups.create(session, "Laboratory")
        await groups.add_member(session, lab, alice)
        await groups.allow(session, lab, [Right.LEAVE])
    async with db.as_person(alice.id) as session:
        made = await keys.make(session, alice.id, "Notebook", None)

    shown = await admin.get(f"/admin/people/{alice.id}")
    revoked = await submit(admin, f"/admin/people/{alice.id}/keys/{made.key.id}/revoke")
    wrong = await submit(admin, f"/admin/people/{bob.id}/keys/{made.key.id}/revoke")

    assert "Delete their own account, with everything in it Yes by the group Laboratory" in text_of(shown)
    assert "Rate answers Yes for everybody, as it comes" in text_of(shown)
    assert "fake-8b" in text_of(shown)
    assert "In one browser." in text_of(shown)
    assert "Notebook" in text_of(shown)
    assert "secret of Alice" not in shown.text
    assert (revoked.status_code, wrong.status_code) == (303, 404)
    async with db.as_person(alice.id) as session:
        assert await keys.still_working(session, [made.key.id]) == set()


async def test_erasing_is_looked_at_first_and_leaves_nothing_but_a_certificate(
    site: Site, browser: OpenBrowser, db: Sessions, owner_url: str, alice: User, carol: User
) -> None:
    model = (await site.until_offered("fake-8b"))["fake-8b"]
    theirs, admin = await browser(alice), await browser(carol)
    sent = await theirs.send("A secret of Alice", model=model)
    async with asyncio.timeout(10):
        while 'aria-busy="true"' in (await theirs.get(sent.headers["hx-push-url"])).text:
            await asyncio.sleep(0.05)
    await theirs.http.post("/files", files={"file": ("secret.txt", b"A secret of Alice")})
    address = f"/admin/people/{alice.id}/erase"

    looked = await admin.get(address)
    mistyped = await submit(admin, address, address="bob@corp.example")
    assert (await reread(db, alice)).is_active
    erased = await submit(admin, address, address=" Alice@corp.example ")
    shown = await admin.get(erased.headers["location"])
    record = await admin.get(f"{erased.headers['location']}/record")

    assert "messages 2" in text_of(looked)
    assert mistyped.status_code == 422
    assert "This is not the address alice@corp.example" in text_of(mistyped)
    assert (await theirs.get("/")).headers["location"].startswith("/login")
    assert "Carol Admin" in text_of(shown)
    assert json.loads(record.text)["rows_removed"]["conversations"] == 1
    assert json.loads(record.text)["rows_kept_without_a_name"] == {"usage": 1}
    assert [table for table in _everything(owner_url) if "alice" in table[1].lower()] == []
    assert [name for name, rows in _everything(owner_url) if str(alice.id) in rows] == [
        "audit_events",  # an id that leads to nobody: a chain cannot forget
        "erasures",
    ]


async def test_the_last_administrator_cannot_be_erased(browser: OpenBrowser, db: Sessions, carol: User) -> None:
    page = await browser(carol)

    reply = await submit(page, f"/admin/people/{carol.id}/erase", address=carol.email)

    assert reply.status_code == 409
    assert "Carol Admin is the only active administrator." in text_of(reply)
    assert await sessions_of(db, carol) == 1


def _everything(owner_url: str) -> list[tuple[str, str]]:
    """Every table as text."""
    with psycopg.connect(owner_url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return [
            (name, "\n".join(row[0] for row in connection.execute(f"SELECT t::text FROM {name} t")))
            for (name,) in tables
        ]


async def test_what_everybody_may_is_chosen_and_a_group_allows_more(
    site: Site, browser: OpenBrowser, db: Sessions, alice: User, bob: User, carol: User
) -> None:
    admin, of_alice, of_bob = [await browser(person) for person in (carol, alice, bob)]
    async with db.begin() as session:
        inner, outer = await groups.create(session, "Inner"), await groups.create(session, "Outer")
        await groups.put_into(session, inner, outer)
        await groups.add_member(session, inner, alice)
    kept = {f"right-{right}": "1" for right in Right if right not in (Right.RENAME, Right.API, Right.NAME)}

    await submit(admin, "/admin/policy", **kept)
    await submit(admin, f"/admin/groups/{outer.id}/rights", **{"right-api": "1"})
    async with asyncio.timeout(5):
        while Right.API in site.registry.rights_of(bob.id) or Right.API not in site.registry.rights_of(alice.id):
            await asyncio.sleep(0.01)
    makes, does_not = [await submit(page, "/settings/keys", **KEY) for page in (of_alice, of_bob)]
    renamed = await submit(of_bob, "/settings", name="Robert")
    shown = await admin.get("/admin/policy")

    assert (makes.status_code, does_not.status_code, renamed.status_code) == (200, 403, 403)
    assert "switched off for you" in text_of(does_not)
    assert "Change their own name chosen here" in text_of(shown)
    assert "use the API with them chosen here; allowed by Outer" in text_of(shown)
    assert "The API is switched off for you" in text_of(await of_bob.get("/settings/keys"))


KEY = {"name": "Script", "scope-chat": "1", "models": "all"}


async def test_groups_lie_one_level_deep_and_what_a_directory_says_stays(
    browser: OpenBrowser, db: Sessions, owner_url: str, alice: User, carol: User
) -> None:
    async with db.begin() as session:
        one, two, three = [await groups.create(session, name) for name in ("One", "Two", "Three")]
        await groups.add_member(session, three, alice)
    page = await browser(carol)

    inside = await submit(page, f"/admin/groups/{two.id}/parent", parent=str(one.id))
    wrong = [
        await submit(page, f"/admin/groups/{child.id}/parent", parent=str(parent.id))
        for child, parent in ((one, three), (three, two), (one, two), (three, three))
    ]
    with psycopg.connect(owner_url) as connection:
        connection.execute("UPDATE groups SET source = 'directory', external_id = 'x' WHERE name = 'Three'")
        connection.execute("UPDATE group_members SET source = 'directory'")
    by_hand = [
        await submit(page, f"/admin/groups/{three.id}/members/{alice.id}/remove"),
        await submit(page, f"/admin/groups/{three.id}/members/{carol.id}/add"),
        await submit(page, f"/admin/groups/{three.id}/remove"),
    ]
    shown = await page.get(f"/admin/groups/{three.id}")
    gone = await submit(page, f"/admin/groups/{one.id}/remove")

    assert (inside.status_code, gone.status_code) == (303, 303)
    assert [reply.status_code for reply in wrong] == [422, 422, 422, 422]
    assert [reply.status_code for reply in by_hand] == [409, 409, 409]
    assert "They come from the directory and are changed there." in text_of(shown)


async def test_a_person_takes_everything_along_and_leaves_where_that_is_allowed(
    site: Site, browser: OpenBrowser, db: Sessions, alice: User, bob: User
) -> None:
    model = (await site.until_offered("fake-8b"))["fake-8b"]
    page, other = await browser(alice), await browser(bob)
    await page.send("A secret of Alice", model=model)
    await other.send("A secret of Bob", model=model)
    await page.http.post("/files", files={"file": ("../note.txt", b"What Alice attached")})

    taken = await submit(page, "/settings/data/export")
    more = [(await submit(page, "/settings/data/export")).status_code for _again in range(6)]
    refused = await submit(page, "/settings/data/delete", address=alice.email)
    async with db.begin() as session:
        group = await groups.create(session, "Leavers")
        await groups.allow(session, group, [Right.LEAVE])
        await groups.add_member(session, group, alice)
    async with asyncio.timeout(5):
        while Right.LEAVE not in site.registry.rights_of(alice.id):
            await asyncio.sleep(0.01)
    left = await submit(page, "/settings/data/delete", address=alice.email)

    with zipfile.ZipFile(io.BytesIO(taken.content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    chats = [json.loads(line) for line in files["conversations.jsonl"].splitlines()]
    assert chats[0]["messages"][0]["text"] == "A secret of Alice"
    assert [content for name, content in files.items() if name.startswith("files/")] == [b"What Alice attached"]
    assert b"Bob" not in b"".join(files.values())
    assert b"password" not in files["about.json"]
    assert more == [200, 200, 200, 200, 200, 429]
    assert (refused.status_code, left.status_code) == (403, 303)
    async with db.begin() as session:
        assert await session.scalar(select(User.id).where(User.id == alice.id)) is None


async def test_a_key_is_for_what_it_was_made_for_however_it_is_shown(
    site: Site, browser: OpenBrowser, alice: User
) -> None:
    """AZN-03."""
    offered = await site.until_offered("fake-8b", "fake-70b")
    page, program = await browser(alice), await browser(None)
    chosen = {"models": "some", f"model-{offered['fake-8b']}": "1", "name": "Script"}

    made = await submit(page, "/settings/keys", **chosen, **{"scope-models": "1", "scope-chat": "1"})
    reading = await submit(page, "/settings/keys", **chosen, **{"scope-models": "1"})
    for_none = await submit(page, "/settings/keys", name="Script", models="some", **{"scope-chat": "1"})
    secret, only_reads = _secret(made.text), _secret(reading.text)
    listed = await _ask(program, "/v1/models", authorization=f"Bearer {secret}")
    other = await _ask(program, f"/v1/models/{offered['fake-70b']}", authorization=f"Bearer {secret}")
    refused = await program.http.post(
        "/v1/chat/completions",
        json={"model": "fake-8b", "messages": [{"role": "user", "content": "Hello"}]},
        headers={"authorization": f"Bearer {only_reads}"},
    )
    elsewhere = [
        await _ask(program, "/v1/models", **{"x-api-key": secret}),
        await _ask(program, f"/v1/models?api_key={secret}"),
        await _ask(program, "/v1/models", cookie=f"sid={secret}"),
        await _ask(program, "/v1/models", **{"x-user-id": str(alice.id), "x-auth-email": alice.email}),
    ]
    opened = await _ask(program, "/settings", authorization=f"Bearer {secret}")

    assert [model["id"] for model in listed.json()["data"]] == ["fake-8b"]
    assert other.status_code == 404
    assert other.json()["error"]["code"] == "model_not_found"
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_permissions")
    assert for_none.status_code == 422
    assert [reply.status_code for reply in elsewhere] == [401, 401, 401, 401]
    assert opened.status_code == 303


async def _ask(page: Browser, path: str, **headers: str):  # type: ignore[no-untyped-def]
    return await page.http.get(path, headers=headers)


def _secret(html: str) -> str:
    return html.partition('<code id="new-secret">')[2].partition("<")[0]

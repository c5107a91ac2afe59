"""The chain of what was done: written with the change or not at all, and every tampering is found."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, select, text
from sqlalchemy.exc import DBAPIError

from backend.accounts import service as accounts
from backend.accounts.models import Role, User
from backend.audit import chain, retention, service, verifying
from backend.audit.acting import Actor, Via, act_as
from backend.audit.models import AuditAnchor, AuditEvent, AuditName
from backend.audit.service import Action, Target
from backend.audit.verifying import Head, Verified
from backend.core.clock import now
from backend.core.db import Sessions, connect
from tests.conftest import SECRET

OTHER_SECRET = "fedcba9876543210fedcba9876543210"


@pytest.fixture(autouse=True)
def keys() -> Iterator[chain.Keys]:
    yield chain.use([SECRET])
    chain.use([SECRET])


@pytest.fixture
def owner(owner_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Somebody with the rights of the owner of the tables, but without the secret."""
    with psycopg.connect(owner_url, autocommit=True) as connection:
        yield connection


async def do(db: Sessions, *names: str, actor: Actor | None = None) -> None:
    for name in names:
        async with db.begin() as session:
            act_as(session, actor or Actor(Via.HOST))
            await service.record(
                session, Action.GROUP_ADDED, Target("group", name=name), before={"share": 0.25}, after={"weight": 1}
            )


async def checked(db: Sessions, known: Head | None = None, secrets: tuple[str, ...] = (SECRET,)) -> Verified:
    async with db.begin() as session:
        return await verifying.verify(session, chain.Keys(secrets), known)


async def head(db: Sessions) -> Head:
    async with db.begin() as session:
        return await verifying.head(session)


# Written with the change


async def test_what_is_done_is_recorded_with_who_where_and_what(db: Sessions, alice: User, carol: User) -> None:
    async with db.begin() as session:
        act_as(session, Actor(Via.BROWSER, carol.id, "10.0.0.7"))
        await accounts.change_role(session, await accounts.find_person(session, alice.id), Role.ADMIN)

    async with db.begin() as session:
        (found,) = await session.scalars(select(AuditEvent))
        names = {row.person_id: (row.name, row.email) for row in await session.scalars(select(AuditName))}
    assert (found.number, found.via, found.actor_id, found.address) == (1, "browser", carol.id, "10.0.0.7")
    assert (found.action, found.target_kind, found.target_id) == ("person.role_changed", "person", alice.id)
    assert (found.before, found.after) == ({"role": "member"}, {"role": "admin"})
    assert names == {person.id: (person.name, person.email) for person in (alice, carol)}
    assert (await checked(db)).faults == []


async def test_a_name_can_be_erased_and_the_chain_holds(db: Sessions, alice: User, carol: User) -> None:
    await do(db, "Lab", actor=Actor(Via.BROWSER, alice.id, ""))

    async with db.begin() as session:
        await service.forget_name(session, alice.id)

    assert (await checked(db)).faults == []
    async with db.begin() as session:
        assert (await session.scalars(select(AuditName))).all() == []


async def test_without_its_record_a_change_does_not_happen(
    db: Sessions, alice: User, owner: psycopg.Connection[Any]
) -> None:
    owner.execute("ALTER TABLE audit_events RENAME COLUMN mac TO broken")
    try:
        with pytest.raises(DBAPIError):
            async with db.begin() as session:
                await accounts.disable(session, await accounts.find_person(session, alice.id))
    finally:
        owner.execute("ALTER TABLE audit_events RENAME COLUMN broken TO mac")

    async with db.begin() as session:
        assert (await accounts.find_person(session, alice.id)).disabled_at is None


async def test_what_is_taken_back_is_not_recorded(db: Sessions) -> None:
    async with db.begin() as session:
        async with session.begin_nested() as outer:
            async with session.begin_nested():
                await service.record(session, Action.GROUP_ADDED, Target("group", name="taken back"))
            await outer.rollback()
        await service.record(session, Action.GROUP_ADDED, Target("group", name="kept"))
    with suppress(ZeroDivisionError):
        async with db.begin() as session:
            await service.record(session, Action.GROUP_ADDED, Target("group", name="never"))
            raise ZeroDivisionError

    async with db.begin() as session:
        assert [(row.number, row.target_name) for row in await session.scalars(select(AuditEvent))] == [(1, "kept")]


async def test_records_cost_a_change_two_statements_however_many_they_are(db: Sessions, database: str) -> None:
    engine = connect(database, connections=1)
    said: list[str] = []
    event.listen(engine.sync_engine, "before_cursor_execute", lambda *it: said.append(it[2]))
    async with Sessions(engine).begin() as session:
        for name in ("One", "Two", "Three"):
            await service.record(session, Action.GROUP_ADDED, Target("group", name=name))
    await engine.dispose()

    assert len([each for each in said if not each.startswith("BEGIN")]) == 2
    assert (await checked(db)).count == 3


_RACE = """
import asyncio, sys
from backend.audit import chain, service
from backend.core.db import Sessions, connect
async def main():
    chain.use([sys.argv[2]])
    engine = connect(sys.argv[1], connections=4)
    db = Sessions(engine)
    async def one(number):
        async with db.begin() as session:
            await service.record(session, service.Action.GROUP_ADDED, service.Target("group", name=str(number)))
    print("ready", flush=True)
    sys.stdin.readline()
    await asyncio.gather(*map(one, range(20)))
    await engine.dispose()
asyncio.run(main())
"""


async def test_two_processes_keep_one_chain(db: Sessions, database: str) -> None:
    command = [sys.executable, "-c", _RACE, database, SECRET]
    root, pipe = Path(__file__).parents[2], subprocess.PIPE
    racers = [await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=root) for _racer in range(2)]
    for racer in racers:
        assert racer.stdout is not None
        await racer.stdout.readline()

    await asyncio.gather(*(racer.communicate(b"go\n") for racer in racers))

    assert [racer.returncode for racer in racers] == [0, 0]
    found = await checked(db)
    assert (found.first, found.count, found.head.number, found.faults) == (1, 40, 40, [])


# Tampering


TAMPERINGS = {
    "edit": ("UPDATE audit_events SET after = '{\"weight\": 2}' WHERE number = 3", "Record 3 was changed"),
    "another actor": ("UPDATE audit_events SET via = 'system' WHERE number = 3", "Record 3 was changed"),
    "another moment": ("UPDATE audit_events SET at = at - interval '1 second' WHERE number = 3", "Record 3 was"),
    "delete": ("DELETE FROM audit_events WHERE number IN (2, 3)", "Missing: record 2 to 3"),
    "delete the first": ("DELETE FROM audit_events WHERE number = 1", "Missing: record 1."),
    "close the gap": (
        "DELETE FROM audit_events WHERE number = 2; UPDATE audit_events SET number = -number WHERE number > 2;"
        " UPDATE audit_events SET number = -number - 1 WHERE number < 0",
        "Record 2 was changed",
    ),
    "reorder": (
        "UPDATE audit_events SET number = -2 WHERE number = 2; UPDATE audit_events SET number = 2 WHERE number = 3;"
        " UPDATE audit_events SET number = 3 WHERE number = -2",
        "Record 2 was changed",
    ),
    "an anchor of one's own": (
        "INSERT INTO audit_anchors SELECT number, mac, now(), key_id, mac FROM audit_events WHERE number = 2;"
        " DELETE FROM audit_events WHERE number <= 2",
        "The anchor at record 2 was not made by this deployment.",
    ),
}


@pytest.mark.parametrize("name", TAMPERINGS)
async def test_a_tampering_is_found(db: Sessions, owner: psycopg.Connection[Any], name: str) -> None:
    statements, sentence = TAMPERINGS[name]
    await do(db, *"abcde")
    assert (await checked(db)).faults == []

    owner.execute(statements.encode())

    found = await checked(db)
    assert any(sentence in fault for fault in found.faults), found.faults


async def test_a_cut_tail_and_an_old_backup_are_found_with_a_head_from_the_log(
    db: Sessions, owner: psycopg.Connection[Any]
) -> None:
    await do(db, *"abc")
    backup = owner.execute("SELECT * FROM audit_events ORDER BY number").fetchall()
    await do(db, *"de")
    told = await head(db)
    assert (await checked(db, told)).faults == []

    owner.execute("DELETE FROM audit_events WHERE number > 3")
    assert len(backup) == 3
    cut = await checked(db, told)
    await do(db, *"xyz")
    another = await checked(db, told)

    assert cut.faults == ["The end is missing: record 5 was there, and the last one is now 3."]
    assert another.faults == [
        "Record 5 is not the one that was there: this is another history, as after an old backup."
    ]
    owner.execute("DELETE FROM audit_events")
    assert "The end is missing" in (await checked(db, told)).faults[0]


async def test_a_rotated_secret_goes_on_with_the_chain_of_the_old_one(db: Sessions) -> None:
    await do(db, "a")
    chain.use([OTHER_SECRET, SECRET])
    await do(db, "b")

    assert (await checked(db, secrets=(OTHER_SECRET, SECRET))).faults == []
    assert "Record 1 was made with a secret that is not among" in (await checked(db, secrets=(OTHER_SECRET,))).faults[0]
    assert (await checked(db, secrets=("f" * 16 + "0" * 16,))).faults != []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_events SET action = 'x'",
        "DELETE FROM audit_events",
        "TRUNCATE audit_events",
        "DELETE FROM audit_anchors",
        "INSERT INTO audit_anchors VALUES (1, '', now(), '', '')",
        "SELECT audit_forget(1, (SELECT mac FROM audit_events), now(), '', '')",
    ],
)
async def test_the_role_of_the_app_removes_and_changes_nothing(db: Sessions, statement: str) -> None:
    """Not with its functions either: what is younger than thirty days cannot be removed by anybody."""
    await do(db, "a")

    with pytest.raises(DBAPIError, match=r"permission denied|nothing younger than thirty days"):
        async with db.begin() as session:
            await session.execute(text(statement))

    assert (await checked(db)).count == 1


@pytest.mark.parametrize(
    "value", [0.1, 1e-7, 1e22, 2**70, -0.0, float("inf"), "a\0b\ud800", {"b": [True, None, 1.0]}, now(), Via.HOST]
)
async def test_whatever_is_recorded_reads_back_as_it_was_sealed(db: Sessions, value: object) -> None:
    async with db.begin() as session:
        await service.record(session, Action.GROUP_ADDED, after={"value": value})

    assert (await checked(db)).faults == []


# Retention


@pytest.fixture
async def old(db: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three records from two months ago, two from today."""
    with monkeypatch.context() as past:
        past.setattr(service, "now", lambda: now() - timedelta(days=60))
        await do(db, *"abc")
    await do(db, *"de")


async def test_the_oldest_part_goes_and_the_rest_is_still_whole(db: Sessions, old: None) -> None:
    told = await head(db)

    removed = await retention.shorten(db, now() - timedelta(days=45))

    found = await checked(db, told)
    assert (removed, found.first, found.head.number, found.faults) == (3, 4, 6, [])
    async with db.begin() as session:
        last = await session.scalar(select(AuditEvent).order_by(AuditEvent.number.desc()).limit(1))
        (anchor,) = await session.scalars(select(AuditAnchor))
    assert last is not None
    assert (last.action, last.after) == ("audit.shortened", {"up_to": 3, "records": 3})
    assert anchor.number == 3
    assert await retention.shorten(db, now() - timedelta(days=45)) == 0


async def test_what_was_removed_does_not_come_back_unnoticed(
    db: Sessions, old: None, owner: psycopg.Connection[Any]
) -> None:
    owner.execute("CREATE TEMP TABLE backup AS SELECT * FROM audit_events WHERE number = 2")
    await retention.shorten(db, now() - timedelta(days=45))

    owner.execute("INSERT INTO audit_events SELECT * FROM backup")

    assert "Record 2 should have been removed with those before it." in (await checked(db)).faults


async def test_the_head_is_told_to_the_log_once_an_hour(db: Sessions, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "backend.audit.retention")
    await do(db, "a")

    await retention.keep(db, 0)
    await retention.keep(db, 0)

    assert caplog.messages == [f"head of the audit: {await head(db)}"]

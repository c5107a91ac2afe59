"""Transactions: what they run afterwards, for whom they run, and what a broken constraint means."""

import traceback
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import psycopg
import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.models import Role, User
from backend.core.db import DatabaseGone, Sessions, after_commit, broken, connect, is_gone
from backend.core.errors import AppError, Conflict
from backend.core.stored import Setting


@pytest.fixture
async def one_connection(database: str) -> AsyncIterator[Sessions]:
    """What one transaction leaves behind, the next one meets."""
    engine = connect(database, connections=1)
    yield Sessions(engine)
    await engine.dispose()


def person(name: str = "dora") -> User:
    return User(name=name, email=f"{name}@corp.example", role=Role.MEMBER)


class Stumbled(Exception):
    """Something else went wrong in the middle of a transaction."""


async def store_twice(db: Sessions, **meanings: AppError) -> None:
    async with db.begin() as session:
        session.add_all([person(), person()])
        with broken(**meanings):
            await session.flush()


async def names(session: AsyncSession) -> list[str]:
    return list(await session.scalars(select(User.name).order_by(User.name)))


async def test_what_was_stored_can_still_be_read_afterwards(db: Sessions) -> None:
    dora = person()

    async with db.begin() as session:
        session.add(dora)

    assert dora.name == "dora"
    assert dora.created_at.tzinfo is UTC


async def test_an_error_undoes_the_whole_transaction(db: Sessions) -> None:
    async def fail_halfway() -> None:
        async with db.begin() as session:
            session.add(person())
            await session.flush()
            raise Stumbled

    with pytest.raises(Stumbled):
        await fail_halfway()

    async with db.begin() as session:
        assert await names(session) == []


async def test_times_come_back_aware_and_in_utc(db: Sessions) -> None:
    """TXT-06: whatever zone they were given in."""
    there = datetime(2026, 3, 29, 23, 30, tzinfo=timezone(timedelta(hours=13)))
    dora = person()
    dora.disabled_at = there

    async with db.begin() as session:
        session.add(dora)
    async with db.begin() as session:
        found = await session.scalar(select(User.disabled_at))

    assert found == there
    assert found is not None
    assert found.utcoffset() == timedelta(0)


async def test_work_runs_once_others_can_see_what_was_written(db: Sessions, owner_url: str) -> None:
    seen: list[int] = []

    def look() -> None:
        with psycopg.connect(owner_url) as connection:
            seen.extend(connection.execute("SELECT count(*) FROM users").fetchone() or ())

    async with db.begin() as session:
        session.add(person())
        after_commit(session, look)
        await session.flush()
        assert not seen

    assert seen == [1]


async def test_work_is_forgotten_when_the_transaction_rolls_back(db: Sessions) -> None:
    ran: list[str] = []

    async def fail_halfway() -> None:
        async with db.begin() as session:
            after_commit(session, partial(ran.append, "lost"))
            raise Stumbled

    with pytest.raises(Stumbled):
        await fail_halfway()

    assert ran == []


async def test_a_savepoint_takes_only_its_own_work_with_it(db: Sessions) -> None:
    ran: list[str] = []

    async def fail_in_a_savepoint(session: AsyncSession) -> None:
        async with session.begin_nested():
            session.add(person())
            after_commit(session, partial(ran.append, "within"))
            raise Stumbled

    async with db.begin() as session:
        after_commit(session, partial(ran.append, "before"))
        with pytest.raises(Stumbled):
            await fail_in_a_savepoint(session)
        async with session.begin_nested():
            after_commit(session, partial(ran.append, "in another"))
        after_commit(session, partial(ran.append, "after"))

    assert ran == ["before", "in another", "after"]


async def test_a_commit_that_fails_runs_nothing(db: Sessions) -> None:
    ran: list[str] = []

    async def fail_at_the_end() -> None:
        async with db.begin() as session:
            after_commit(session, partial(ran.append, "lost"))
            session.add_all([person(), person()])

    with pytest.raises(IntegrityError):
        await fail_at_the_end()

    assert ran == []


async def test_for_whom_a_transaction_ran_ends_with_it(one_connection: Sessions, alice: User) -> None:
    """The connection goes back to the pool, and the next one who gets it is somebody else."""
    async with one_connection.as_person(alice.id) as session:
        during = await session.scalar(text("SELECT current_setting('parley.person', true)"))
    async with one_connection.as_worker() as session:
        worker = await session.scalar(text("SELECT current_setting('parley.worker', true)"))
    async with one_connection.begin() as session:
        after = (await session.execute(text("SELECT current_setting('parley.person', true),"
                                            " current_setting('parley.worker', true)"))).one()  # fmt: skip

    assert (during, worker) == (str(alice.id), "on")
    assert tuple(after) == ("", "")


async def test_a_broken_constraint_gets_its_meaning(db: Sessions) -> None:
    with pytest.raises(Conflict, match="taken"):
        await store_twice(db, uq_users_email=Conflict("taken"))


async def test_a_constraint_without_a_meaning_stays_an_error(db: Sessions) -> None:
    with pytest.raises(IntegrityError):
        await store_twice(db, uq_users_name=Conflict("taken"))


async def test_a_column_of_words_takes_no_other(db: Sessions) -> None:
    """Also below the models, where another version of Parley may write."""
    async with db.begin() as session:
        session.add(person())

    with pytest.raises(IntegrityError, match="ck_users_role"):
        async with db.begin() as session:
            await session.execute(text("UPDATE users SET role = 'owner'"))


@pytest.mark.parametrize("statement", ["UPDATE users SET email = upper(email)", "UPDATE users SET created_at = NULL"])
async def test_an_error_does_not_carry_what_people_wrote(db: Sessions, statement: str) -> None:
    """Postgres would repeat the whole row, and the log would have it."""
    async with db.begin() as session:
        session.add(person("geheim"))

    with pytest.raises(IntegrityError) as failed:
        async with db.begin() as session:
            await session.execute(text(statement))

    assert "geheim" not in "".join(traceback.format_exception(failed.value)).lower()
    assert "violates" in str(failed.value)


async def test_an_error_does_not_carry_the_parameters(db: Sessions) -> None:
    with pytest.raises(IntegrityError) as failed:
        async with db.begin() as session:
            session.add_all([person("geheim"), person("geheim")])

    assert "geheim" not in "".join(traceback.format_exception(failed.value))
    assert "uq_users_email" in str(failed.value)


async def test_every_connection_is_bounded(db: Sessions) -> None:
    """Nothing of ours can hold the database for long, and times are sent in UTC."""
    async with db.begin() as session:
        found = {
            name: await session.scalar(text(f"SHOW {name}"))
            for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "timezone")
        }

    assert found == {
        "statement_timeout": "10s",
        "lock_timeout": "3s",
        "idle_in_transaction_session_timeout": "15s",
        "timezone": "UTC",
    }


async def test_a_database_that_is_away_is_told_from_a_wrong_statement(db: Sessions, database: str) -> None:
    engine = connect(database.replace("/test?", "/nowhere?"), connections=1)

    with pytest.raises(DatabaseGone) as away:
        async with Sessions(engine).begin() as session:
            await session.execute(text("SELECT 1"))
    with pytest.raises(ProgrammingError) as wrong:
        async with db.begin() as session:
            await session.execute(text("SELECT nothing"))

    await engine.dispose()
    assert isinstance(away.value, DBAPIError)
    assert is_gone(away.value)
    assert not is_gone(wrong.value)


async def test_a_connection_that_was_cut_is_replaced(
    one_connection: Sessions, postgres: object, owner_url: str
) -> None:
    """After a restart of Postgres the first request fails with 503; the next one works."""
    async with one_connection.begin() as session:
        pid = await session.scalar(text("SELECT pg_backend_pid()"))
    with psycopg.connect(owner_url.replace("parley_owner@", "postgres@"), autocommit=True) as superuser:
        superuser.execute("SELECT pg_terminate_backend(%s)", [pid])

    with pytest.raises(DatabaseGone):
        async with one_connection.begin() as session:
            await session.execute(text("SELECT 1"))
    async with one_connection.begin() as session:
        assert await session.scalar(text("SELECT 1")) == 1


async def test_a_setting_of_the_product_is_read_back(db: Sessions) -> None:
    from backend.core import stored

    async with db.begin() as session:
        before = await stored.read(session, "company", "nobody")
        await stored.write(session, "company", {"name": "Müller & Söhne"})
    async with db.begin() as session:
        await stored.write(session, "company", {"name": "Acme"})
        found = await stored.read(session, "company")
        rows = list(await session.scalars(select(Setting.name)))

    assert before == "nobody"
    assert found == {"name": "Acme"}
    assert rows == ["company"]

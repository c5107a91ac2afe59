"""The schema: made by migrations alone, the same as the models say, and closed to those who do not own it."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from alembic import command
from alembic.script import ScriptDirectory
from mako.template import Template
from psycopg import sql
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from backend.accounts.models import (
    LoginSession,
    OneTimeLink,
    Passkey,
    Purpose,
    RecoveryCode,
    Role,
    SecondFactor,
    SignInThrottle,
    UsedChallenge,
    User,
)
from backend.audit.acting import Via
from backend.audit.models import AuditAnchor, AuditEvent, AuditName
from backend.bench.models import BenchRun
from backend.conversations.models import AnswerPart, Conversation, Message, Speaker, Status, TitleSource
from backend.core import migrations
from backend.core.clock import now
from backend.core.db import Base, connect
from backend.core.ids import new_id
from backend.core.migrations import SchemaMismatch, require_head, require_plain_role
from backend.core.stored import Setting
from backend.embedded.postgres import EmbeddedPostgres
from backend.engines.models import DefaultModel, Deployment, Engine, Model, ModelGroup, Source
from backend.files.models import Blob, File, FileChunk, Kind
from backend.groups.models import Group, GroupMember
from backend.identity.models import (
    DirectoryGroup,
    Identity,
    IdentityProvider,
    IdentitySession,
    Kind as ProviderKind,
    Source as ProviderSource,
    SpentToken,
)
from backend.keys.models import ApiKey
from backend.privacy.models import Erasure, Export
from backend.usage.models import Cause, UsageRecord
from tests.conftest import plain

TABLES = {table.name for table in Base.metadata.sorted_tables}
PRIVATE = ("conversations", "messages", "answer_parts", "files", "blobs", "file_chunks", "api_keys")


@pytest.fixture
def fresh(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The name of an empty database of one's own."""
    name = f"fresh_{uuid4().hex[:8]}"
    postgres.create_database(name)
    yield name
    with psycopg.connect(plain(postgres.superuser_url()), autocommit=True) as superuser:
        superuser.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def fresh_url(postgres: EmbeddedPostgres, fresh: str) -> str:
    """As its owner."""
    return postgres.owner_url(fresh)


@pytest.fixture
async def engine_for() -> AsyncIterator[Callable[[str], AsyncEngine]]:
    async with contextlib.AsyncExitStack() as stack:

        def make(url: str) -> AsyncEngine:
            engine = connect(url, connections=1)
            stack.push_async_callback(engine.dispose)
            return engine

        yield make


def populate(url: str) -> tuple[UUID, UUID]:
    """At least one row in every table, for two people; their ids."""
    engine = create_engine(url)
    with Session(engine, expire_on_commit=False) as session, session.begin():
        alice, bob = (_person(name) for name in ("alice", "bob"))
        model = Model(name="Fake 8B", description="", system_prompt="", published=True, position=0)
        gpu = Engine(name="gpu-1", url="http://gpu-1:8000", source=Source.DATABASE, enabled=True)
        group = Group(id=new_id(), name="Research")
        session.add_all([alice, bob, model, gpu])
        session.flush()
        session.add_all(
            [
                Deployment(engine_id=gpu.id, model_id=model.id, upstream_name="fake-8b"),
                BenchRun(engine_id=gpu.id, engine_name="GPU", upstream_name="fake-8b", result={}),
                DefaultModel(model_id=model.id),
                group,
                Setting(name="company", value="Acme"),
                AuditName(person_id=alice.id, name="Alice", email="alice@corp.example"),
                AuditEvent(
                    number=2,
                    at=now(),
                    via=Via.HOST,
                    address="",
                    action="x.y",
                    target_kind="",
                    target_name="",
                    key_id=b"1234",
                    mac=b"5" * 32,
                ),
                AuditAnchor(number=1, mac=b"4" * 32, key_id=b"1234", signature=b"6" * 32),
                OneTimeLink(purpose=Purpose.RESET, user_id=bob.id, token_digest=b"1" * 32, expires_at=now()),
                Erasure(person_id=new_id(), by_id=new_id(), removed={"users": 1}, kept={}),
                SignInThrottle(account=b"2" * 32, network=b"", tries=1, recent=[now()], last_try_at=now()),
                SecondFactor(user_id=alice.id, sealed=b"sealed"),
                RecoveryCode(user_id=alice.id, digest=b"3" * 32),
                Passkey(user_id=alice.id, credential_id=b"4", public_key=b"5", sign_count=0, name="Telephone"),
                UsedChallenge(digest=b"6" * 32, expires_at=now()),
            ]
        )
        session.flush()
        session.add(ModelGroup(model_id=model.id, group_id=group.id))
        session.add(DirectoryGroup(group_id=group.id, origin="https://sso.example", external_name="research"))
        session.add(SpentToken(digest=b"3" * 32, expires_at=now()))
        session.add(
            IdentityProvider(
                slug="corp",
                name="Corp",
                kind=ProviderKind.OIDC,
                source=ProviderSource.DATABASE,
                enabled=True,
                issuer="https://sso.example",
                client_id="parley",
                rules={},
            )
        )
        for person in (alice, bob):
            session.add(GroupMember(group_id=group.id, user_id=person.id))
            _give_a_history(session, person, model, gpu)
    engine.dispose()
    return alice.id, bob.id


def _person(name: str) -> User:
    return User(id=new_id(), name=name, email=f"{name}@corp.example", role=Role.MEMBER)


def _give_a_history(session: Session, person: User, model: Model, engine: Engine) -> None:
    """A browser that is signed in, a question with a running answer, and what it has cost."""
    login = LoginSession(
        id=new_id(),
        user_id=person.id,
        token_digest=person.id.bytes * 2,
        last_seen_at=now(),
        expires_at=now(),
        address="127.0.0.1",
        user_agent="test",
    )
    identity = Identity(id=new_id(), user_id=person.id, issuer="https://sso.example", subject=person.name)
    session.add_all([login, identity])
    session.flush()
    session.add(IdentitySession(session_id=login.id, identity_id=identity.id))
    session.add(Export(user_id=person.id))
    session.add(ApiKey(owner_id=person.id, name="Notebook", digest=person.id.bytes * 2, hint="abcd"))
    chat = Conversation(
        id=new_id(),
        owner_id=person.id,
        title="Hello",
        title_source=TitleSource.FIRST_WORDS,
        model_id=model.id,
        updated_at=now(),
        seen_at=now(),
    )
    session.add(chat)
    session.flush()
    common = {"conversation_id": chat.id, "owner_id": person.id}
    question = Message(
        id=new_id(),
        **common,
        speaker=Speaker.PERSON,
        text="Hello",
        status=Status.DONE,
        finished_at=now(),
        send_key=uuid4(),
    )
    session.add(question)
    session.flush()
    answer = Message(
        id=new_id(), **common, parent_id=question.id, speaker=Speaker.MODEL, status=Status.STREAMING, model_id=model.id
    )
    session.add(answer)
    session.flush()
    session.add(AnswerPart(message_id=answer.id, attempt=1, number=0, text="Hel", reasoning=""))
    blob = Blob(id=new_id(), owner_id=person.id, digest=b"3" * 32, size=3, kind=Kind.TEXT, text="abc")
    session.add(blob)
    session.flush()
    session.add_all(
        [
            FileChunk(blob_id=blob.id, number=0, content=b"abc"),
            File(owner_id=person.id, blob_id=blob.id, message_id=question.id, name="abc.txt"),
        ]
    )
    session.add(
        UsageRecord(
            user_id=person.id,
            model_id=model.id,
            engine_id=engine.id,
            message_id=answer.id,
            cause=Cause.CHAT,
            prompt_tokens=1,
            completion_tokens=1,
            estimated=False,
        )
    )


def tables(url: str) -> set[str]:
    with psycopg.connect(plain(url)) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return {row[0] for row in found}


def rows(url: str, table: str, *settings: tuple[str, str]) -> int:
    """How many rows of a table somebody sees who has made these settings."""
    with psycopg.connect(plain(url)) as connection:
        for name, value in settings:
            connection.execute("SELECT set_config(%s, %s, true)", [name, value])
        found = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))).fetchone()
        assert found is not None
        number: int = found[0]
        return number


# Up, down, and the same as the models


def test_an_empty_database_becomes_the_newest(fresh_url: str) -> None:
    migrations.upgrade(fresh_url)

    assert tables(fresh_url) == TABLES | {"alembic_version"}


def test_there_is_one_newest_revision() -> None:
    scripts = ScriptDirectory.from_config(migrations.alembic_config())

    assert len(scripts.get_heads()) == 1
    assert len(scripts.get_bases()) == 1


def test_the_models_ask_for_no_further_migration(postgres: EmbeddedPostgres, migrated: str) -> None:
    """DB-05. Raises, and shows the difference, where a model was changed without a migration."""
    command.check(migrations.alembic_config(postgres.owner_url(migrated)))


def test_migrations_make_what_the_models_would_make(fresh_url: str, postgres: EmbeddedPostgres, migrated: str) -> None:
    """DB-05, also where alembic does not look: check constraints, predicates of indexes, cascades."""
    engine = create_engine(fresh_url)
    Base.metadata.create_all(engine)
    engine.dispose()

    by_models, by_migrations = shape(fresh_url), shape(postgres.owner_url(migrated))

    assert by_migrations - by_models == set()
    assert by_models - by_migrations == set()


def shape(url: str) -> set[tuple[str, ...]]:
    """Every column, constraint and index, as Postgres itself writes it."""
    with psycopg.connect(plain(url)) as connection:
        found = connection.execute(
            """
            SELECT 'column', table_name, column_name, data_type || ' ' || coalesce(character_maximum_length::text, '')
                   || ' ' || is_nullable || ' ' || coalesce(column_default, '')
              FROM information_schema.columns WHERE table_schema = 'public'
            UNION ALL
            SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
              FROM pg_constraint WHERE connamespace = 'public'::regnamespace
            UNION ALL
            SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
            """
        )
        return {tuple(row) for row in found if row[1] != "alembic_version"}


def test_down_and_up_again_on_a_database_in_use(fresh_url: str, postgres: EmbeddedPostgres, fresh: str) -> None:
    """DB-05: everything of ours is gone at the base, nothing is in the way of coming back, and the app may use it."""
    config = migrations.alembic_config(fresh_url)
    migrations.upgrade(fresh_url)
    before = shape(fresh_url)
    populate(fresh_url)
    assert {table for table in TABLES if not rows(fresh_url, table)} == set(), "populate() has to fill every table"

    command.downgrade(config, "base")
    left = tables(fresh_url)
    leftovers = leavings(fresh_url)
    migrations.upgrade(fresh_url)

    assert left == {"alembic_version"}
    assert leftovers == []
    assert shape(fresh_url) == before
    assert {rows(postgres.app_url(fresh), table) for table in TABLES} == {0}
    alice, _bob = populate(fresh_url)
    assert rows(postgres.app_url(fresh), "messages", ("parley.person", str(alice))) == 2


def leavings(url: str) -> list[str]:
    """Types, functions, sequences and policies that outlived their tables."""
    with psycopg.connect(plain(url)) as connection:
        found = connection.execute(
            """
            SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('S', 'v', 'm')
            UNION ALL SELECT typname::text FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typtype IN ('e', 'd')
            UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
            UNION ALL SELECT polname::text FROM pg_policy
            """  # noqa: E501
        )
        return [row[0] for row in found]


def test_migrating_again_changes_nothing(fresh_url: str) -> None:
    migrations.upgrade(fresh_url)
    populate(fresh_url)
    before = {table: rows(fresh_url, table) for table in TABLES}

    migrations.upgrade(fresh_url)

    assert {table: rows(fresh_url, table) for table in TABLES} == before


def test_a_migration_does_not_wait_long_for_a_table(fresh_url: str) -> None:
    """It would hold up everybody who comes after it."""
    engine = create_engine(fresh_url)
    config = migrations.alembic_config()
    with engine.connect() as connection:
        config.attributes["connection"] = connection

        command.upgrade(config, "head")

        assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "4s"
        assert connection.exec_driver_sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").scalar() == 0
    engine.dispose()


_MIGRATE_FOUR_TIMES = """
import logging, os, sys
import backend.accounts.models, backend.conversations.models, backend.engines.models, backend.usage.models
from backend.core import migrations
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
wait, go = os.pipe()
children = []
for _ in range(4):
    if (child := os.fork()) == 0:
        os.close(go)
        os.read(wait, 1)  # until the parent has closed its end, for all of them at once
        migrations.upgrade(sys.argv[1])
        sys.stdout.flush()
        os._exit(0)
    children.append(child)
os.close(go)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


def test_four_processes_may_migrate_at_once(fresh_url: str) -> None:
    """DB-04: all of them end well, and each revision ran once."""
    root = Path(migrations.__file__).parents[2]
    command_line = [sys.executable, "-c", _MIGRATE_FOUR_TIMES, fresh_url]

    ran = subprocess.run(command_line, cwd=root, capture_output=True, text=True, timeout=60)

    assert "[0, 0, 0, 0]" in ran.stdout, ran.stderr
    revisions = len(list(ScriptDirectory.from_config(migrations.alembic_config()).walk_revisions()))
    assert ran.stdout.count("Running upgrade") == revisions
    assert rows(fresh_url, "alembic_version") == 1


def test_a_new_migration_is_written_from_the_template() -> None:
    """`make migration` must not begin with a file that does not even compile."""
    template = Template(filename=str(Path(migrations.__file__).parents[2] / "migrations" / "script.py.mako"))
    parts = {"upgrades": "pass", "downgrades": "pass", "imports": "", "branch_labels": None, "depends_on": None}

    written = template.render(
        message="Add a table", up_revision="0002", down_revision="0001", comma=lambda value: value, **parts
    )

    made: dict[str, object] = {}
    exec(compile(written, "0002.py", "exec"), made)
    assert (made["revision"], made["down_revision"]) == ("0002", "0001")
    assert str(made["__doc__"]).startswith("Add a table\n")


# Which database is served


EngineFor = Callable[[str], AsyncEngine]


async def test_the_newest_database_is_served(engine_for: EngineFor, postgres: EmbeddedPostgres, migrated: str) -> None:
    await require_head(engine_for(postgres.app_url(migrated)))


async def test_an_empty_database_is_not_served(engine_for: EngineFor, postgres: EmbeddedPostgres, fresh: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"empty\. Run `parley migrate` first"):
        await require_head(engine_for(postgres.app_url(fresh)))


async def test_a_newer_database_is_neither_served_nor_migrated(
    engine_for: EngineFor, postgres: EmbeddedPostgres, fresh: str, fresh_url: str
) -> None:
    """DB-04: an old version that starts beside a new one says so in a line."""
    migrations.upgrade(fresh_url)
    with psycopg.connect(plain(fresh_url)) as owner:
        owner.execute("UPDATE alembic_version SET version_num = 'f00d'")

    with pytest.raises(SchemaMismatch, match=r"revision f00d, .* it is newer"):
        await require_head(engine_for(postgres.app_url(fresh)))
    with pytest.raises(SchemaMismatch, match=r"revision f00d, .* it is newer"):
        await asyncio.to_thread(migrations.upgrade, fresh_url)

    assert tables(fresh_url) >= TABLES


async def test_an_older_database_is_not_served(
    engine_for: EngineFor,
    postgres: EmbeddedPostgres,
    migrated: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if this version came with one revision more."""
    monkeypatch.setattr(ScriptDirectory, "get_current_head", lambda self: "next")

    with pytest.raises(SchemaMismatch, match="Run `parley migrate` to bring it up to date"):
        await require_head(engine_for(postgres.app_url(migrated)))


# In whose name


async def test_the_role_of_the_app_is_taken(engine_for: EngineFor, postgres: EmbeddedPostgres, migrated: str) -> None:
    await require_plain_role(engine_for(postgres.app_url(migrated)))


async def test_roles_that_see_everything_are_refused(
    engine_for: EngineFor, postgres: EmbeddedPostgres, migrated: str
) -> None:
    for url in (postgres.owner_url(migrated), postgres.superuser_url(migrated)):
        with pytest.raises(SchemaMismatch, match="PARLEY_DATABASE_URL signs in as a superuser or as the owner"):
            await require_plain_role(engine_for(url))


@pytest.fixture
def odd_role(postgres: EmbeddedPostgres, migrated: str) -> Iterator[Callable[[str], str]]:
    """Makes a role with these attributes; its URL."""
    numbers = count()
    made: list[str] = []
    with psycopg.connect(plain(postgres.superuser_url(migrated)), autocommit=True) as superuser:

        def make(attributes: str) -> str:
            name = f"odd_{next(numbers)}"
            made.append(name)
            superuser.execute(f"CREATE ROLE {name} LOGIN {attributes}".encode())
            superuser.execute(f"GRANT CONNECT ON DATABASE {migrated} TO {name}".encode())
            return postgres.app_url(migrated).replace("parley_app@", f"{name}@")

        yield make
        for name in made:
            superuser.execute(f"REVOKE ALL ON DATABASE {migrated} FROM {name}".encode())
            superuser.execute(f"DROP ROLE {name}".encode())


@pytest.mark.parametrize("attributes", ["BYPASSRLS", "IN ROLE parley_owner"])
async def test_so_are_roles_that_could_see_everything(
    engine_for: EngineFor, odd_role: Callable[[str], str], attributes: str
) -> None:
    with pytest.raises(SchemaMismatch):
        await require_plain_role(engine_for(odd_role(attributes)))


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE extra (id int)",
        "CREATE TEMPORARY TABLE extra (id int)",
        "CREATE SCHEMA extra",
        "CREATE FUNCTION extra() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "DROP TABLE usage",
        "TRUNCATE usage",
        "ALTER TABLE messages DISABLE ROW LEVEL SECURITY",
        "CREATE POLICY everything ON messages USING (true)",
        "DROP POLICY mine ON messages",
        "SET ROLE parley_owner",
        "SET SESSION AUTHORIZATION parley_owner",
        "COPY users TO PROGRAM 'cat'",
        "SELECT pg_read_file('/etc/passwd')",
    ],
)
def test_the_app_cannot_change_what_it_stands_on(postgres: EmbeddedPostgres, database: str, statement: str) -> None:
    with psycopg.connect(plain(database)) as app, pytest.raises(psycopg.errors.InsufficientPrivilege):
        app.execute(statement.encode())


# Row-level security


def test_every_table_of_conversations_has_a_policy(postgres: EmbeddedPostgres, migrated: str) -> None:
    """Also one that a later migration adds: whatever has an owner, or hangs on what has one, is closed by itself."""
    with psycopg.connect(plain(postgres.owner_url(migrated))) as connection:
        secured = {
            row[0]
            for row in connection.execute(
                "SELECT relname::text FROM pg_class JOIN pg_policy ON polrelid = pg_class.oid WHERE relrowsecurity"
            )
        }
    owned = {table.name for table in Base.metadata.sorted_tables if "owner_id" in table.columns}
    hanging = {
        table.name
        for table in Base.metadata.sorted_tables
        if any(key.column.table.name in owned for key in table.foreign_keys)
    }

    assert set(PRIVATE) <= owned | hanging
    assert secured == owned | hanging


@pytest.fixture
def people(postgres: EmbeddedPostgres, migrated: str, database: str) -> tuple[UUID, UUID]:
    """Alice and Bob, each with a conversation."""
    return populate(postgres.owner_url(migrated))


@pytest.mark.parametrize("table", PRIVATE)
def test_who_says_nothing_sees_nothing(database: str, people: tuple[UUID, UUID], table: str) -> None:
    alice, bob = people
    everything = 2 if table != "messages" else 4

    assert rows(database, table) == 0
    assert rows(database, table, ("parley.person", "")) == 0
    assert rows(database, table, ("parley.person", str(uuid4()))) == 0
    assert rows(database, table, ("parley.worker", "off")) == 0
    assert rows(database, table, ("parley.person", str(alice))) == everything / 2
    assert rows(database, table, ("parley.person", str(bob))) == everything / 2
    assert rows(database, table, ("parley.worker", "on")) == everything


@pytest.mark.parametrize("table", PRIVATE)
def test_who_says_nothing_changes_nothing(database: str, owner_url: str, people: tuple[UUID, UUID], table: str) -> None:
    before = rows(owner_url, table)

    with psycopg.connect(plain(database)) as app:
        deleted = app.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table))).rowcount

    assert deleted == 0
    assert rows(owner_url, table) == before


def test_bob_can_neither_change_nor_forge_what_is_alices(database: str, people: tuple[UUID, UUID]) -> None:
    alice, bob = people
    with psycopg.connect(plain(database)) as app:
        app.execute("SELECT set_config('parley.person', %s, false)", [str(bob)])
        app.commit()

        changed = app.execute("UPDATE messages SET text = 'mine now' WHERE owner_id = %s", [alice]).rowcount
        deleted = app.execute("DELETE FROM conversations WHERE owner_id = %s", [alice]).rowcount
        app.commit()
        for forgery in (
            "UPDATE conversations SET owner_id = %s",
            "INSERT INTO conversations (id, owner_id, title, title_source, created_at, updated_at, seen_at)"
            " VALUES (gen_random_uuid(), %s, 'forged', 'person', now(), now(), now())",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                app.execute(forgery, [alice])
            app.rollback()
            app.execute("SELECT set_config('parley.person', %s, false)", [str(bob)])
            app.commit()

    assert (changed, deleted) == (0, 0)
    assert rows(database, "conversations", ("parley.person", str(alice))) == 1

"""The product as it runs for people: a durable Postgres and `parley serve`, each a process on the first core.

The engine and whoever measures are on the second.
"""

import asyncio
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import psycopg

from backend.accounts import sessions as logins
from backend.accounts.models import Role, User
from backend.audit import chain
from backend.conversations.models import Conversation, Message, Speaker, Status, TitleSource
from backend.core import migrations
from backend.core.clock import now
from backend.core.db import Sessions, connect
from backend.core.ids import new_id
from backend.embedded import processes
from backend.embedded.postgres import DATABASE, EmbeddedPostgres
from backend.keys import service as keys
from tests.load.client import Broken, Connection
from tests.load.machine import Processes, pin
from tests.site import free_port

HOST = "127.0.0.1"
EMAIL, PASSWORD = "admin@corp.example", "correct horse battery"
_SECRET = "0123456789abcdef0123456789abcdef"
_FIRST_CORE, _SECOND_CORE = 0, 1


@dataclass(frozen=True)
class Account:
    id: UUID
    token: str


class Product:
    """`with Product() as product`: database, engine and web app are up and know each other."""

    def __init__(self, *, sampled: bool = False) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="parley-load-"))
        self._sampled = sampled
        self.port = free_port()
        self.engine_port = free_port()
        self.samples = self._folder / "samples.json"
        self._stack = ExitStack()
        self._web: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            pin(_FIRST_CORE)
            self.postgres = EmbeddedPostgres(self._folder)
            self.postgres.start()
            stack.callback(self.postgres.stop)
            self.postgres.create_database(DATABASE)
            migrations.upgrade(self.postgres.owner_url())
            self.sql = stack.enter_context(_superuser(self.postgres))
            self.sql.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            self.sql.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
            pin(_SECOND_CORE)
            engine = self._start("engine", ["-m", "tests.load.engine", "--port", str(self.engine_port)])
            stack.callback(processes.end, engine, signal.SIGTERM, patience=5)
            stack.callback(self.stop_web)
            self.start_web()
            self.watched = {
                "web": self.web,
                "database": Processes(self._postmaster()),
                "engine": Processes(engine.pid),
                "client": Processes(os.getpid(), alone=True),
            }
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def web(self) -> Processes:
        assert self._web is not None
        return Processes(self._web.pid)

    def start_web(self) -> float:
        """Seconds from the start to ready."""
        began = time.monotonic()
        pin(_FIRST_CORE)
        try:
            command = ["-m", "tests.load.sampler", str(self.samples)] if self._sampled else ["-m", "backend", "serve"]
            self._web = self._start("web", command)
        finally:
            pin(_SECOND_CORE)
        self.web.go_first()
        while not _answers(self.port):
            if self._web.poll() is not None or time.monotonic() - began > 30:
                raise Broken("the web app did not start:\n" + (self._folder / "web.log").read_text()[-2000:])
            time.sleep(0.01)
        if hasattr(self, "watched"):
            self.watched["web"] = self.web
        return time.monotonic() - began

    def stop_web(self) -> None:
        if self._web is not None:
            processes.end(self._web, signal.SIGTERM, patience=20)
            self._web = None

    def signal_web(self, number: int) -> None:
        assert self._web is not None
        self._web.send_signal(number)

    def another_database(self, name: str) -> str:
        """The app's address of an empty one on the same server."""
        self.postgres.create_database(name)
        migrations.upgrade(self.postgres.owner_url(name))
        return self.postgres.app_url(name)

    async def until_offered(self) -> None:
        """The engine was found, and its model is there for everybody."""
        async with asyncio.timeout(15):
            while not self.sql.execute("SELECT 1 FROM deployments WHERE model_id IS NOT NULL").fetchall():
                await asyncio.sleep(0.05)

    async def add_people(self, count: int) -> list[Account]:
        """Straight into the tables: to hash hundreds of passwords would cost more than everything that is measured."""
        engine = connect(self.postgres.app_url(), connections=2)
        lifetime = logins.Lifetime(timedelta(hours=12), timedelta(days=7))
        accounts = []
        async with Sessions(engine).begin() as session:
            mark = new_id().hex
            people = [
                User(name=f"Person {n}", email=f"p{n}-{mark}@corp.example", role=Role.MEMBER, password_hash="-")
                for n in range(count)
            ]
            session.add_all(people)
            await session.flush()
            for person in people:
                token = logins.open_for(session, person, logins.Browser(HOST, "load test", "Europe/Berlin"), lifetime)
                accounts.append(Account(person.id, token))
        await engine.dispose()
        return accounts

    async def add_keys(self, owners: Sequence[UUID]) -> list[str]:
        """For each owner one for the API."""
        engine = connect(self.postgres.app_url(), connections=1)
        made = []
        for owner in owners:
            chain.use([_SECRET])  # as in the process under load
            async with Sessions(engine).as_person(owner) as session:
                made.append((await keys.make(session, owner, "load test", None)).secret)
        await engine.dispose()
        return made

    async def add_conversations(self, owners: Sequence[UUID], messages: int, text: str) -> list[str]:
        """For each owner one that has been going on for so many messages; their addresses."""
        engine = connect(self.postgres.app_url(), connections=1)
        addresses = []
        for owner in owners:
            async with Sessions(engine).as_person(owner) as session:
                chat, rows = _conversation(owner, messages, text)
                session.add(chat)
                await session.flush()
                session.add_all(rows)
                await session.flush()
                if hasattr(chat, "leaf_id"):
                    chat.leaf_id = rows[-1].id
                addresses.append(f"/chat/{chat.id}")
        await engine.dispose()
        # A database that knows nothing of its tables makes plans that no real one would.
        self.sql.execute("VACUUM ANALYZE")
        return addresses

    async def asked(self) -> dict[str, dict[str, Any]]:
        """What the engine knows of the questions since the last look, by their marks."""
        connection = await Connection.to(HOST, self.engine_port)
        try:
            reply = await connection.ask(b"GET /load/asked HTTP/1.1\r\nHost: engine\r\n\r\n")
        finally:
            connection.close()
        return {one["mark"]: one for one in json.loads(reply.body)}

    def cost_of_reading(self, answers: int, tokens: int) -> float:
        """Microseconds of CPU a token of the engine client alone, on the product's core."""
        pin(_FIRST_CORE)
        try:
            url = f"http://{HOST}:{self.engine_port}/v1"
            command = [sys.executable, "-m", "tests.load.reader", url, str(answers), str(tokens)]
            return float(subprocess.check_output(command))
        finally:
            pin(_SECOND_CORE)

    async def writing(self) -> int:
        """Answers that are being written, by their rows."""
        return int(self._value("SELECT count(*) FROM messages WHERE status = 'streaming'"))

    # What the database says

    def forget_statements(self) -> None:
        self.sql.execute("SELECT pg_stat_statements_reset()")

    def statements(self) -> list[tuple[str, int, float]]:
        """Text, calls and milliseconds of what the app's role was executing."""
        return self.sql.execute(
            "SELECT s.query, s.calls, s.total_exec_time + s.total_plan_time FROM pg_stat_statements s"
            " JOIN pg_roles r ON r.oid = s.userid WHERE r.rolname = 'parley_app' ORDER BY 3 DESC"
        ).fetchall()

    def wal_position(self) -> str:
        return str(self._value("SELECT pg_current_wal_insert_lsn()::text"))

    def wal_since(self, position: str) -> int:
        """Bytes."""
        return int(self._value("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", position))

    def writing_transactions_since(self, position: str) -> int:
        """Commits that stand in the journal: exactly the transactions that wrote."""
        self.sql.execute("SELECT pg_switch_wal()")  # what is inspected must have reached the disk
        return int(
            self._value(
                "SELECT count(*) FROM pg_get_wal_records_info(%s::pg_lsn, pg_current_wal_flush_lsn())"
                " WHERE resource_manager = 'Transaction' AND record_type LIKE 'COMMIT%%'",
                position,
            )
        )

    def _value(self, query: str, *values: object) -> Any:
        row = self.sql.execute(query, values).fetchone()
        assert row is not None
        return row[0]

    def _postmaster(self) -> int:
        return int(Path(self._folder, "postgres", "postmaster.pid").read_text().splitlines()[0])

    def _start(self, name: str, arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
        ours = re.compile("PARLEY_|PYTHON")
        env = {key: value for key, value in os.environ.items() if not ours.match(key)}
        engine = {"name": "load", "url": f"http://{HOST}:{self.engine_port}/v1"}
        env |= {
            "PARLEY_DATABASE_URL": self.postgres.app_url(),
            "PARLEY_SECRET_KEY": _SECRET,
            "PARLEY_PORT": str(self.port),
            "PARLEY_DATA_DIR": str(self._folder),
            "PARLEY_ENGINES": json.dumps([engine]),
            "PARLEY_ADMIN_EMAIL": EMAIL,
            "PARLEY_ADMIN_PASSWORD": PASSWORD,
            "PARLEY_TITLES": "0",  # one request to the engine for each turn
        }
        with (self._folder / f"{name}.log").open("ab") as output:
            return processes.start([sys.executable, *arguments], output=output, env=env, cwd=Path.cwd())


def _conversation(owner: UUID, messages: int, text: str) -> tuple[Conversation, list[Message]]:
    moment = now()
    chat = Conversation(
        id=new_id(),
        owner_id=owner,
        title="A long story",
        title_source=TitleSource.PERSON,
        seen_at=moment,
        updated_at=moment,
    )
    rows: list[Message] = []
    for n in range(messages):
        by_person = n % 2 == 0
        rows.append(
            Message(
                id=new_id(),
                conversation_id=chat.id,
                owner_id=owner,
                parent_id=rows[-1].id if rows else None,
                speaker=Speaker.PERSON if by_person else Speaker.MODEL,
                text=text,
                status=Status.DONE,
                finished_at=moment,
                send_key=new_id() if by_person else None,
                ended_by=None if by_person else "stop",
            )
        )
    return chat, rows


def _superuser(postgres: EmbeddedPostgres) -> "psycopg.Connection[Any]":
    url = postgres.superuser_url(DATABASE).replace("postgresql+psycopg://", "postgresql://")
    return psycopg.connect(url, autocommit=True)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()

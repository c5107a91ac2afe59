"""The ground tests stand on: a real Postgres, the whole site, and a cast everybody knows.

Alice owns what a test is about, Bob is a stranger to it, Carol administers.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from backend.accounts import sessions as logins
from backend.accounts.models import Role, User
from backend.accounts.passwords import Passwords
from backend.audit import chain
from backend.core import migrations
from backend.core.db import Base, Sessions, connect
from backend.core.settings import EngineSetting, Settings
from backend.embedded.postgres import EmbeddedPostgres
from tests.chromium import chromium
from tests.fakes.engine import FakeEngine
from tests.served import Serve, Served
from tests.site import CHEAP_PASSWORDS, Browser, Site, free_port

PASSWORD = "correct horse battery"
SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="session", autouse=True)
def audit_keys() -> None:
    """As every process has them that serves or changes anything."""
    chain.use([SECRET])


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """One server for each test process."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("pg"), durable=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def migrated(postgres: EmbeddedPostgres) -> str:
    """The name of a database at the newest revision."""
    postgres.create_database("test")
    migrations.upgrade(postgres.owner_url("test"))
    return "test"


@pytest.fixture(scope="session")
def empty(postgres: EmbeddedPostgres, migrated: str) -> Iterator[Callable[[], None]]:
    """Empties the database, on one connection for all tests: a fresh one would read the catalog each time."""
    every_row = "; ".join(f"DELETE FROM {table.name}" for table in reversed(Base.metadata.sorted_tables))
    address = plain(postgres.owner_url(migrated))
    with ExitStack() as stack:
        connections = [stack.enter_context(psycopg.connect(address, autocommit=True))]

        def delete() -> None:
            try:
                connections[-1].execute(every_row)
            except psycopg.OperationalError:  # a test has ended it
                connections.append(stack.enter_context(psycopg.connect(address, autocommit=True)))
                connections[-1].execute(every_row)

        yield delete


@pytest.fixture
def database(postgres: EmbeddedPostgres, migrated: str, empty: Callable[[], None]) -> Iterator[str]:
    """The app's URL of an empty database; emptied again afterwards, because answers are written outside any request."""
    yield postgres.app_url(migrated)
    empty()


@pytest.fixture(scope="session")
def chromium_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One Chromium for each test process; to start one takes longer than most tests."""
    with chromium(tmp_path_factory.mktemp("chromium")) as address:
        yield address


@pytest.fixture
def owner_url(postgres: EmbeddedPostgres, migrated: str, database: str) -> str:
    """For looking at rows past row-level security, with plain psycopg."""
    return plain(postgres.owner_url(migrated))


@pytest.fixture
async def db(database: str) -> AsyncIterator[Sessions]:
    engine = connect(database, connections=5)
    yield Sessions(engine)
    await engine.dispose()


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with FakeEngine(models=["fake-8b", "fake-70b"], window=1_000_000) as running:
        yield running


@pytest.fixture
def idle_seconds() -> float:
    """How long an engine may be silent in mid-answer; a test of that parametrizes it."""
    return 30


@pytest.fixture
def settings(database: str, engine: FakeEngine, tmp_path: Path, idle_seconds: float) -> Settings:
    """Waits are scaled down; everything else is as it is for people."""
    return Settings(
        database_url=database,
        secret_key=SECRET,
        port=free_port(),
        data_dir=tmp_path,
        engines=(EngineSetting(name="fake", url=engine.url),),
        probe_seconds=0.1,
        first_token_seconds=30,
        idle_seconds=idle_seconds,
        titles=False,
    )


@pytest.fixture
async def site(settings: Settings) -> AsyncIterator[Site]:
    async with Site(settings) as running:
        yield running


@pytest.fixture
def serve(settings: Settings, tmp_path: Path) -> Iterator[Serve]:
    """Starts `parley serve`; whatever was started is gone when the test has ended."""
    started: list[Served] = []

    def start(kind: type[Served] = Served, **more: Any) -> Served:
        started.append(kind(settings, tmp_path / f"web-{len(started)}.log", **more))
        return started[-1]

    yield start
    for served in started:
        served.end()


AddPerson = Callable[[str, Role], Awaitable[User]]


@pytest.fixture
async def add_person(db: Sessions) -> AddPerson:
    """Puts somebody into the database, with `PASSWORD`."""
    password_hash = await Passwords(**CHEAP_PASSWORDS).hash(PASSWORD)

    async def add(name: str, role: Role) -> User:
        user = User(
            name=name, email=f"{name.split(maxsplit=1)[0].lower()}@corp.example", role=role, password_hash=password_hash
        )
        async with db.begin() as session:
            session.add(user)
        return user

    return add


@pytest.fixture
async def alice(add_person: AddPerson) -> User:
    return await add_person("Alice Owner", Role.MEMBER)


@pytest.fixture
async def bob(add_person: AddPerson) -> User:
    return await add_person("Bob Stranger", Role.MEMBER)


@pytest.fixture
async def carol(add_person: AddPerson) -> User:
    return await add_person("Carol Admin", Role.ADMIN)


OpenBrowser = Callable[[User | None], Awaitable[Browser]]


@pytest.fixture
async def browser(site: Site, db: Sessions) -> AsyncIterator[OpenBrowser]:
    """`await browser(alice)`: signed in; `await browser(None)`: nobody."""
    async with AsyncExitStack() as stack:

        async def open_for(person: User | None) -> Browser:
            token = await sign_in(db, person) if person else None
            return await stack.enter_async_context(Browser(site, token=token, person=person))

        yield open_for


async def sign_in(db: Sessions, person: User) -> str:
    """A session as the sign-in page makes it, without the page."""
    async with db.begin() as session:
        lifetime = logins.Lifetime(timedelta(hours=12), timedelta(days=7))
        return logins.open_for(session, person, logins.Browser("127.0.0.1", "test", "Europe/Berlin"), lifetime)


def plain(url: str) -> str:
    """For psycopg itself, without SQLAlchemy's driver name."""
    return url.replace("postgresql+psycopg://", "postgresql://")

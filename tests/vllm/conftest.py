"""Real servers for the tests of this folder. `make test-vllm` starts them; without them nothing here is collected."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from backend.core.db import Sessions
from backend.core.settings import EngineSetting, Settings
from tests.conftest import SECRET
from tests.engines.conftest import Ground
from tests.load.report import Row
from tests.site import free_port
from tests.vllm import figures, servers
from tests.vllm.servers import Server, Servers

Measured = Callable[[Row], None]

collect_ignore_glob = [] if servers.VARIABLE in os.environ else ["test_*.py"]


@pytest.fixture(scope="session")
def started() -> Servers:
    return Servers.loads(os.environ[servers.VARIABLE])


@pytest.fixture
def replicas(started: Servers) -> tuple[Server, ...]:
    return started.replicas


@pytest.fixture
def router(started: Servers) -> Server:
    return started.router


@pytest.fixture
async def ground(db: Sessions) -> AsyncIterator[Ground]:
    async with AsyncExitStack() as stack:
        yield Ground(db, stack)


@pytest.fixture
def settings(database: str, tmp_path: Path, replicas: tuple[Server, ...]) -> Settings:
    """The whole site in front of both replicas."""
    return Settings(
        database_url=database,
        secret_key=SECRET,
        port=free_port(),
        data_dir=tmp_path,
        engines=tuple(EngineSetting(name=replica.name, url=replica.api) for replica in replicas),
        probe_seconds=1,
        titles=False,
    )


@pytest.fixture
def measured() -> Measured:
    """Puts a number into the table that `make test-vllm` prints at its end."""
    return figures.note

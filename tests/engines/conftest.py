"""What the tests of this folder share: registries on a real database, and engines for them to look at."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select

from backend.core.db import Sessions
from backend.core.security import Sealer
from backend.core.settings import Settings
from backend.engines import findings, keys, publishing
from backend.engines.findings import Findings
from backend.engines.local import LocalServer
from backend.engines.models import Deployment, Engine, Source
from backend.engines.pages import UpstreamModel
from backend.engines.registry import Registry
from tests.fakes.engine import FakeEngine

SEALER = Sealer(["0123456789abcdef" * 2], "engine keys")


class Ground:
    """Starts registries on one database, and changes rows behind their backs."""

    def __init__(self, db: Sessions, stack: AsyncExitStack) -> None:
        self.db = db
        self._stack = stack

    async def registry(self, *urls: str, local: tuple[LocalServer, ...] = (), **settings: Any) -> Registry:
        """`urls` as PARLEY_ENGINES, named `engine-1` and so on."""
        engines = [{"name": f"engine-{number}", "url": url} for number, url in enumerate(urls, 1)]
        given = Settings.model_validate({"probe_seconds": 0.1, "engines": engines, **settings})
        registry = Registry(given, self.db, SEALER, known_local=local)
        return await self._stack.enter_async_context(registry)

    async def engine(self, **given: Any) -> FakeEngine:
        """Leaves after the registries that ask it."""
        return await self._stack.enter_async_context(FakeEngine(**given))

    async def add(self, name: str, url: str, *models: str, api_key: str = "") -> UUID:
        """As an admin would have, some time ago."""
        async with self.db.begin() as session:
            engine = Engine(name=name, url=url, source=Source.DATABASE)
            session.add(engine)
            await session.flush()
            keys.seal(SEALER, engine, api_key)
            if models:
                found = Findings("vllm", "0.32.0", [UpstreamModel(model) for model in models])
                await findings.store(session, engine.id, found, publish=True)
        return engine.id

    async def publish(self, upstream_name: str) -> None:
        """On every engine that has it and where nobody published it yet."""
        async with self.db.begin() as session:
            of_name = select(Deployment).where(Deployment.upstream_name == upstream_name, Deployment.model_id.is_(None))
            for deployment in (await session.scalars(of_name)).all():
                await publishing.publish(session, deployment)


@pytest.fixture
async def ground(db: Sessions) -> AsyncIterator[Ground]:
    async with AsyncExitStack() as stack:
        yield Ground(db, stack)


async def looked_at_again(registry: Registry, name: str, times: int = 3) -> None:
    """For what must not happen: by then, anything that is done as often as looking would have been done."""
    engine_id = next(engine.id for engine in registry.engines if engine.name == name)
    for _ in range(times):
        before = registry.health(engine_id).checked_at
        await until(lambda before=before: registry.health(engine_id).checked_at != before)  # type: ignore[misc]


async def until(condition: Callable[[], object], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)

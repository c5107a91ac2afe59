"""`parley bench` and `parley capacity` for a running engine: find it, measure it, keep the record.

An engine is named as in the pages, or by its address. One that is named is measured with its key and beside nobody
else's measurement, and the record is among the past runs of `/admin/bench`; one by its address leaves nothing behind.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import select

from backend.bench import runs
from backend.bench.alone import alone
from backend.bench.measuring import Measuring, Target
from backend.bench.models import BenchRun
from backend.bench.plan import Plan
from backend.bench.results import Ended, Level, Measurement
from backend.core import db
from backend.core.db import Sessions
from backend.core.errors import BadInput, NotFound, Unavailable
from backend.core.security import Sealer, Unreadable
from backend.core.settings import Settings
from backend.engines import addresses, connecting, keys
from backend.engines.client import EngineClient
from backend.engines.events import EngineFailed
from backend.engines.findings import CANNOT_CHAT
from backend.engines.models import Deployment, Engine
from backend.engines.pages import MAX_NAME
from backend.engines.room import Room
from backend.ops.doctor import secrets_of
from backend.usage import service as usage
from backend.usage.models import Cause
from backend.usage.service import Call

_MAX_KEY_FILE = 10_000


@dataclass(frozen=True, slots=True)
class Key:
    """Where a key is to be found. Never the key itself: what stands on a command line, all users of a host can read."""

    variable: str | None = None
    file: Path | None = None

    def read(self) -> str | None:
        if self.variable:
            found = os.environ.get(self.variable, "")
        elif self.file:
            try:
                found = self.file.read_text()[:_MAX_KEY_FILE]
            except (OSError, UnicodeDecodeError) as error:
                raise BadInput(f"The key cannot be read from {self.file}: {error}.") from error
        else:
            return None
        if not found.strip():
            raise BadInput(f"There is no key in {self.variable or self.file}.")
        return found.strip()


@dataclass(frozen=True, slots=True)
class _Found:
    """An engine and how to reach it; `sessions` where it is one of ours."""

    name: str
    client: EngineClient
    kind: str | None
    version: str | None
    models: Sequence[str]
    engine: Engine | None = None
    sessions: Sessions | None = None


async def measure(
    settings: Settings,
    where: str,
    plan: Plan,
    *,
    database: Callable[[], str],
    model: str = "",
    key: Key | None = None,
    on_begin: Callable[[Measurement], None] = lambda _measurement: None,
    on_level: Callable[[Level], None] = lambda _level: None,
) -> Measurement:
    """Ctrl-C ends it: what was measured until then is the result, and the engine is free."""
    async with _engine(settings, where, key or Key(), database) as found:
        target = Target(found.name, _one_of(found, model), found.kind, found.version)
        measuring = Measuring(found.client, target, plan, on_level=on_level)
        on_begin(measuring.measurement)
        if found.sessions is None:
            await _until_over(measuring)
            return measuring.measurement
        async with alone(found.sessions):
            await _until_over(measuring)
        await _keep(found, measuring)
        return measuring.measurement


async def room(settings: Settings, where: str, *, database: Callable[[], str], key: Key | None = None) -> Room | None:
    """What a running engine says about its room; None where its kind does not."""
    async with _engine(settings, where, key or Key(), database) as found:
        try:
            return await found.client.room()
        except EngineFailed as failure:
            raise Unavailable(f"{found.name}: {failure} ({failure.detail})") from failure


async def _until_over(measuring: Measuring) -> None:
    work = asyncio.create_task(measuring.run())
    try:
        await work
    except asyncio.CancelledError:
        measuring.end(Ended.CANCELLED)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        if task := asyncio.current_task():
            task.uncancel()  # what was asked for has been done


@asynccontextmanager
async def _engine(settings: Settings, where: str, key: Key, database: Callable[[], str]) -> AsyncIterator[_Found]:
    """Looked at already, so that a wrong address, a wrong key and a dead engine are told before anything else."""
    api_key = key.read()
    if where.startswith(("http://", "https://")):
        url = addresses.parse(where).url
        patience = settings.first_token_seconds, settings.idle_seconds
        async with EngineClient(url, api_key, first_token_seconds=patience[0], idle_seconds=patience[1]) as client:
            yield await _looked_at(_Found(url, client, None, None, ()))
        return
    pool = db.connect(database(), connections=3)
    try:
        sessions = Sessions(pool)
        engine = await _named(sessions, where)
        async with connecting.visiting(engine, api_key or _stored_key(settings, engine), settings) as client:
            yield await _looked_at(_Found(engine.name, client, None, None, (), engine, sessions))
    finally:
        await pool.dispose()


async def _looked_at(found: _Found) -> _Found:
    try:
        probe = await found.client.probe()
    except EngineFailed as failure:
        raise Unavailable(f"{found.name}: {failure} ({failure.detail})") from failure
    forced = found.engine.forced_kind if found.engine else None
    names = [model.id for model in probe.models]
    return replace(found, kind=forced or probe.kind, version=probe.version, models=names)


async def _named(sessions: Sessions, name: str) -> Engine:
    async with sessions.begin() as session:
        engines = (await session.scalars(select(Engine).order_by(Engine.name))).all()
    for engine in engines:
        if engine.name == name:
            return engine
    listed = ", ".join(engine.name for engine in engines) or "none"
    raise NotFound(f"There is no engine named {name} here, only: {listed}. An address begins with http:// or https://.")


def _stored_key(settings: Settings, engine: Engine) -> str | None:
    if engine.sealed_api_key is None:
        return None
    try:
        return keys.unseal(Sealer(secrets_of(settings), "engine keys"), engine)
    except Unreadable as error:
        raise BadInput(f"The key of {engine.name} was stored with another secret key. Enter it again.") from error


def _one_of(found: _Found, model: str) -> str:
    """An alias may be served without being listed, so a name is taken as it was given."""
    if model:
        return model
    chatty = [name for name in found.models if not CANNOT_CHAT.search(name)]
    if len(chatty) == 1:
        return chatty[0]
    if not chatty:
        raise NotFound(f"{found.name} serves no model that chats. Name one with --model if you know better.")
    raise BadInput(f"{found.name} serves several models; choose one with --model: {', '.join(chatty[:20])}.")


async def _keep(found: _Found, measuring: Measuring) -> None:
    """The record, and what was used."""
    assert found.sessions is not None and found.engine is not None
    measurement = measuring.measurement
    async with found.sessions.begin() as session:
        of_model = select(Deployment.model_id).where(
            Deployment.engine_id == found.engine.id, Deployment.upstream_name == measurement.model
        )
        call = Call(None, await session.scalar(of_model), found.engine.id, None, Cause.BENCH)
        for sample in measuring.calls:
            if sample.usage or sample.characters:
                usage.record(
                    session,
                    call,
                    sample.usage,
                    prompt_characters=sample.prompt_characters,
                    written=sample.characters,
                )
        session.add(
            BenchRun(
                engine_id=found.engine.id,
                engine_name=found.engine.name,
                upstream_name=measurement.model[:MAX_NAME],
                result=runs.record_of(measuring),
            )
        )

"""Engines the deployment names: `PARLEY_ENGINES` and the embedded one become rows when Parley starts."""

import logging

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.audit import service as audit
from backend.audit.service import Action
from backend.core import locks
from backend.core.ids import new_id
from backend.core.security import Sealer, Unreadable
from backend.core.settings import EngineSetting, Settings
from backend.engines import keys, queries
from backend.engines.addresses import is_on_site, origin
from backend.engines.models import Engine, Source
from backend.engines.service import facts, target

log = logging.getLogger(__name__)


async def take_over(session: AsyncSession, settings: Settings, sealer: Sealer) -> None:
    """Make the rows agree with the settings. An engine that is no longer named is disabled and kept."""
    await locks.hold(session, "engines")  # two processes starting at once must not both insert the same one
    rows = {engine.name: engine for engine in await session.scalars(select(Engine))}
    named = _named(settings)
    for name, (setting, source) in named.items():
        row = rows.get(name)
        before = facts(row) | {"enabled": row.enabled, "sealed": row.sealed_api_key} if row else None
        if row is None:
            row = Engine(id=new_id(), name=name, url=setting.url, source=source)
            session.add(row)
        elif row.source is Source.DATABASE:
            log.warning(
                "The deployment names the engine %s, and so did an administrator. "
                "From now on the address and the key of the deployment hold.",
                name,
            )
        await _agree(session, row, setting, source, sealer)
        await _record(session, row, before)
    for name, row in rows.items():
        if name not in named and row.source is not Source.DATABASE and row.enabled:
            log.warning("The deployment no longer names the engine %s. It is out of service.", name)
            row.enabled = False
            await audit.record(session, Action.ENGINE_DISABLED, target(row))


async def _record(session: AsyncSession, row: Engine, before: dict[str, object] | None) -> None:
    if before is None:
        await audit.record(session, Action.ENGINE_ADDED, target(row), after=facts(row))
        return
    another_key = row.sealed_api_key is not None and before.pop("sealed") != row.sealed_api_key
    after = facts(row) | {"enabled": row.enabled} | ({"key": "another one"} if another_key else {})
    if told := audit.changes(before, after):
        await audit.record(session, Action.ENGINE_CHANGED, target(row), **told)


async def is_for_everybody(engine: Engine, settings: Settings) -> bool:
    """Whether new models of `engine` are published by themselves.

    So that there is something to choose from at the start, without sending what people write out of the house: those
    of the embedded engine and of the first one in `PARLEY_ENGINES` that is not somebody else's on the Internet.
    """
    if engine.source is Source.ENVIRONMENT:
        for setting in settings.engines:
            if await is_on_site(setting.url):
                return setting.name == engine.name
    return engine.source is Source.EMBEDDED


def _named(settings: Settings) -> dict[str, tuple[EngineSetting, Source]]:
    named = {setting.name: (setting, Source.ENVIRONMENT) for setting in settings.engines}
    embedded = settings.embedded_engine
    if embedded is None:
        return named
    if embedded.name in named:
        log.warning("PARLEY_ENGINES uses the name of the embedded engine, %s, and replaces it.", embedded.name)
    return {embedded.name: (embedded, Source.EMBEDDED)} | named


async def _agree(session: AsyncSession, row: Engine, setting: EngineSetting, source: Source, sealer: Sealer) -> None:
    if row.kind is None or origin(row.url) != origin(setting.url):
        row.external = not await is_on_site(setting.url)
    if origin(row.url) != origin(setting.url):
        row.kind = row.version = None  # what was found out was about another server
    row.url, row.source, row.enabled = setting.url, source, True
    if row.forced_kind != setting.kind:
        row.forced_kind = setting.kind
        await session.execute(queries.forget_abilities(row.id))
    wanted = (setting.api_key.get_secret_value() if setting.api_key else "") or None
    if _stored_key(row, sealer) != wanted:
        keys.seal(sealer, row, wanted or "")


def _stored_key(row: Engine, sealer: Sealer) -> str | None:
    try:
        return keys.unseal(sealer, row)
    except Unreadable:
        return ""  # equal to no key, so that it is replaced

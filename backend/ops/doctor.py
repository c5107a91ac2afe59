"""`parley doctor`: does this installation have what it needs? It looks and asks, and changes nothing."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.accounts import service
from backend.core import db, migrations
from backend.core.errors import BadInput
from backend.core.security import Sealer, Unreadable
from backend.core.settings import MissingSecret, Settings, unknown_names
from backend.engines import connecting, keys
from backend.engines.events import EngineFailed
from backend.engines.models import Engine


@dataclass(frozen=True)
class Finding:
    good: bool
    subject: str
    sentence: str


async def examine(
    settings: Settings, database_url: str, environment: list[str], *, origin: str = ""
) -> AsyncIterator[Finding]:
    """What a person would look at first; `origin` is where the running site is, if it is known to be elsewhere."""
    for name in unknown_names(environment):
        yield Finding(False, "settings", f"{name} is not a setting of Parley and changes nothing.")
    yield Finding(True, "settings", f"People reach Parley at {origin or settings.origin}/.")
    sealer = None
    try:
        sealer = Sealer(secrets_of(settings), "engine keys")
        yield Finding(True, "secret", "The secret key is there.")
    except MissingSecret as problem:
        yield Finding(False, "secret", str(problem))
    engine = db.connect(database_url, connections=2)
    try:
        async for finding in _database(engine):
            yield finding
            if not finding.good:
                return
        yield await _accounts(engine)
        async for finding in _engines(engine, sealer, settings):
            yield finding
    finally:
        await engine.dispose()


def secrets_of(settings: Settings) -> list[str]:
    """Those that `parley serve` would use, or that `parley run` keeps in its folder."""
    kept = settings.data_dir / "secret.key"
    if not settings.secret_key and not settings.secret_key_file and kept.exists():
        return settings.model_copy(update={"secret_key_file": kept}).secrets()
    return settings.secrets()


async def _database(engine: AsyncEngine) -> AsyncIterator[Finding]:
    try:
        async with engine.connect() as connection:
            version = await connection.scalar(text("SHOW server_version"))
            role = (
                await connection.execute(
                    text("SELECT rolname, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
                )
            ).one()
    except db.DatabaseGone as problem:
        yield Finding(False, "database", f"It does not answer: {str(problem).splitlines()[0]}")
        return
    yield Finding(True, "database", f"Postgres {version} answers.")
    if role[1]:
        yield Finding(False, "database", f"The role {role[0]} is above row-level security. Use the one for the app.")
    try:
        await migrations.require_head(engine)
    except migrations.SchemaMismatch as problem:
        yield Finding(False, "tables", str(problem))
        return
    yield Finding(True, "tables", "They are up to date.")


async def _accounts(engine: AsyncEngine) -> Finding:
    async with db.Sessions(engine).begin() as session:
        if await service.has_admin(session):
            return Finding(True, "accounts", "There is an administrator.")
    return Finding(False, "accounts", "Nobody is administrator yet. `parley setup-link` prints a link that makes one.")


async def _engines(engine: AsyncEngine, sealer: Sealer | None, settings: Settings) -> AsyncIterator[Finding]:
    async with db.Sessions(engine).begin() as session:
        rows = list(await session.scalars(select(Engine).where(Engine.enabled).order_by(Engine.name)))
    if not rows:
        yield Finding(False, "engines", "None is in service. Name some in PARLEY_ENGINES, or add them in the pages.")
    for row in rows:
        yield await _engine(row, sealer, settings)


async def _engine(row: Engine, sealer: Sealer | None, settings: Settings) -> Finding:
    subject = f"engine {row.name}"
    if sealer is None and row.sealed_api_key:
        return Finding(False, subject, "Its key cannot be opened without the secret key.")
    try:
        key = keys.unseal(sealer, row) if sealer else None
    except Unreadable:
        return Finding(False, subject, "Its key was stored with another secret key. Enter it again.")
    try:
        async with connecting.visiting(row, key, settings) as client:
            models = [model.id for model in await client.models()]
    except (BadInput, EngineFailed) as problem:
        return Finding(False, subject, f"{row.url}: {problem}")
    return Finding(bool(models), subject, f"{row.url} serves {', '.join(models) or 'no model'}.")

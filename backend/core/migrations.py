"""Bring a database to the newest schema, or say how far it is from it."""

from importlib.resources import files

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import ResolutionError
from alembic.util.exc import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.core.errors import Unavailable


class SchemaMismatch(Unavailable):
    """The database is not as this version needs it; `str()` says what to do."""


class _Newer(SchemaMismatch):
    def __init__(self, found: object) -> None:
        super().__init__(
            f"The database is at revision {found}, which this version does not know: it is newer. "
            "Start the version that made it, or restore a backup from before the upgrade."
        )


def alembic_config(url: str = "") -> Config:
    """Built here rather than read from a file, so that an installed package migrates too."""
    config = Config()
    config.set_main_option("script_location", str(files("migrations")))
    config.set_main_option("file_template", "%%(year)d_%%(month).2d_%%(day).2d_%%(hour).2d%%(minute).2d_%%(slug)s")
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def upgrade(url: str) -> None:
    """Migrate to head; safe to call from several processes at once. Raises `SchemaMismatch` when it is beyond."""
    try:
        command.upgrade(alembic_config(url), "head")
    except CommandError as error:
        if isinstance(error.__cause__, ResolutionError):
            raise _Newer(error.__cause__.argument) from error
        raise


async def require_head(engine: AsyncEngine) -> None:
    """Raise `SchemaMismatch` unless the database is exactly at our newest revision."""
    async with engine.connect() as connection:
        found = await connection.run_sync(_current)
    scripts = ScriptDirectory.from_config(alembic_config())
    if found == scripts.get_current_head():
        return
    if found is None:
        raise SchemaMismatch("The database is empty. Run `parley migrate` first.")
    known = {script.revision for script in scripts.walk_revisions()}
    if found not in known:
        raise _Newer(found)
    raise SchemaMismatch(f"The database is at revision {found}. Run `parley migrate` to bring it up to date.")


async def require_plain_role(engine: AsyncEngine) -> None:
    """Raise `SchemaMismatch` when the app's role could pass by row-level security, the net below our queries."""
    async with engine.connect() as connection:
        passes_by = await connection.scalar(
            text(
                "SELECT rolsuper OR rolbypassrls OR EXISTS (SELECT FROM pg_class"
                " WHERE oid = to_regclass('conversations') AND pg_has_role(relowner, 'USAGE'))"
                " FROM pg_roles WHERE rolname = current_user"
            )
        )
    if passes_by:
        raise SchemaMismatch(
            "PARLEY_DATABASE_URL signs in as a superuser or as the owner of the tables, whom row-level security does "
            "not hold. Use a role of its own for the app, and PARLEY_MIGRATE_DATABASE_URL for the owner."
        )


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()

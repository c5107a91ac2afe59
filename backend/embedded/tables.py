"""Migrate the embedded database, and know cheaply when there is nothing to migrate.

Loading the migrations takes longer than starting Postgres. So what the last migration left is noted: which migration
files there were, and at which revision the database was then. While both are unchanged there is nothing to do.
"""

import hashlib
from importlib.util import find_spec
from pathlib import Path

from backend.embedded.errors import CannotRun
from backend.embedded.postgres import EmbeddedPostgres


def are_up_to_date(postgres: EmbeddedPostgres, note: Path) -> bool:
    try:
        noted = note.read_text()
    except FileNotFoundError:
        return False
    return noted == _state(postgres)


def bring_up_to_date(postgres: EmbeddedPostgres, note: Path) -> None:
    from backend.core import migrations

    migrations.upgrade(postgres.owner_url())
    note.write_text(_state(postgres))


def _state(postgres: EmbeddedPostgres) -> str:
    package = find_spec("migrations")
    if package is None or package.origin is None:
        raise CannotRun("The folder migrations/ is missing from this installation.")
    files = hashlib.sha256()
    for file in sorted((Path(package.origin).parent / "versions").glob("*.py")):
        files.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    return f"{files.hexdigest()} {postgres.revision()}\n"

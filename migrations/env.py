"""Runs migrations: one process at a time, never waiting long for a lock, each revision in its own transaction."""

import time
from typing import Any

from alembic import context
from sqlalchemy import Connection, create_engine, pool, text

import backend.accounts.models
import backend.audit.models
import backend.bench.models
import backend.conversations.models
import backend.core.stored
import backend.engines.models
import backend.files.models
import backend.groups.models
import backend.identity.models
import backend.keys.models
import backend.privacy.models
import backend.usage.models  # noqa: F401 - importing the models fills the metadata
from backend.core.db import Base
from backend.core.locks import key_of

_LOCK = {"key": key_of("migrations")}
_ASK_AGAIN = 0.1  # seconds


def run(connection: Connection) -> None:
    """Upgrade or downgrade as alembic was asked to, while holding the lock.

    The lock belongs to the session, not to a transaction, because each revision commits on its own. A second process
    waits here and then finds nothing to do. It asks again and again instead of waiting inside a statement, because an
    index that is built concurrently waits for every statement that was there before it.
    """
    while not connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), _LOCK):
        connection.rollback()
        time.sleep(_ASK_AGAIN)
    # A revision that cannot have its table within four seconds gives up, rather than hold up everybody behind it.
    connection.execute(text("SET lock_timeout = '4s'"))
    connection.commit()
    context.configure(
        connection=connection, target_metadata=Base.metadata, transaction_per_migration=True, compare_type=True
    )
    try:
        with context.begin_transaction():
            context.run_migrations()
    finally:
        connection.rollback()
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), _LOCK)
        connection.commit()


def main() -> None:
    given: Any = context.config.attributes.get("connection")
    if given is not None:
        run(given)
        return
    engine = create_engine(context.config.get_main_option("sqlalchemy.url") or "", poolclass=pool.NullPool)
    with engine.connect() as connection:
        run(connection)


main()

"""The short way to the database, for the statements of a turn: raw SQL, prepared, one round trip, one transaction.

Pages and administration go through the ORM (`db.py`), which costs several times as much for each statement. What a
transaction may see is the same here: every one says for whom it runs.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, LiteralString, Self
from uuid import UUID

import psycopg
from psycopg.rows import namedtuple_row
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import make_url

from backend.core.db import SERVER_SETTINGS

_FOR_PERSON: LiteralString = "SELECT set_config('parley.person', %s, true)"
_FOR_WORKER: LiteralString = "SELECT set_config('parley.worker', 'on', true)"
_FOR_HEARTBEAT: LiteralString = (
    "SELECT set_config('parley.worker', 'on', true) AS whom, set_config('synchronous_commit', 'off', true) AS how"
)


class Direct:
    """A few connections of its own; `async with` it. Raises what `db.DatabaseGone` names while Postgres is away."""

    def __init__(self, database_url: str, *, connections: int) -> None:
        address = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._pool = AsyncConnectionPool(
            address,
            min_size=connections,
            max_size=connections,
            timeout=5,
            reconnect_timeout=0,
            open=False,
            kwargs={
                "autocommit": True,
                "prepare_threshold": 1,
                "row_factory": namedtuple_row,
                "options": SERVER_SETTINGS,
                "connect_timeout": 5,
            },
            name="direct",
        )

    async def __aenter__(self) -> Self:
        await self._pool.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.close(timeout=1)

    async def as_person(self, person_id: UUID, statement: LiteralString, values: Mapping[str, object]) -> Sequence[Any]:
        """The rows of one statement that sees what this person may see."""
        return await self._run(_FOR_PERSON, [str(person_id)], statement, values)

    async def as_worker(self, statement: LiteralString, values: Mapping[str, object]) -> Sequence[Any]:
        """For our own tasks, which look after everybody's answers."""
        return await self._run(_FOR_WORKER, None, statement, values)

    async def as_heartbeat(self, statement: LiteralString, values: Mapping[str, object]) -> Sequence[Any]:
        """The same without waiting for the disk: what the next second says again may be lost in a crash."""
        return await self._run(_FOR_HEARTBEAT, None, statement, values)

    async def _run(
        self,
        whom: LiteralString,
        who: list[str] | None,
        statement: LiteralString,
        values: Mapping[str, object],
    ) -> Sequence[Any]:
        try:
            async with self._pool.connection() as connection:
                async with connection.pipeline():  # both in one message, and so in one transaction
                    await connection.execute(whom, who)
                    cursor = await connection.execute(statement, values)
                return await cursor.fetchall() if cursor.description else ()
        except psycopg.Error as error:
            _leave_out_the_row(error)
            if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
                await self._pool.check()  # after a restart of Postgres all are broken, not only this one
            raise


def _leave_out_the_row(error: psycopg.Error) -> None:
    """Postgres repeats the row that broke a constraint, with everything in it; only its first line is kept."""
    if error.diag.message_primary:
        error.args = (error.diag.message_primary,)

"""The short way to the database, for the statements of a turn: raw SQL, prepared, one round trip, one transaction.

Pages and administration go through the ORM (`db.py`), which costs several times as much for each statement. What a
transaction may see is the same here: every one says for whom it runs.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, LiteralString, Self
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import namedtuple_row
from psycopg_pool import AsyncConnectionPool

from backend.core.db import LONGEST_WAIT, SERVER_SETTINGS, driver_address, leave_out_the_row

_FOR_PERSON: LiteralString = "SELECT set_config('parley.person', %s, true)"
_FOR_HEARTBEAT: "Statement" = ("SELECT set_config('synchronous_commit', 'off', true)", None)
_WORKER = "-c parley.worker=on"

# The same few statements again and again, all of which find their rows by an index: planned once for each connection,
# and not by how the tables looked when they were empty.
_PLANS = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off"

Statement = tuple[LiteralString, Mapping[str, object] | Sequence[object] | None]

_WHILE_AWAY = 5.0  # seconds for which a connection is waited for while the database is known to be away
_LOOK_AGAIN = 0.25


class Direct:
    """A few connections of its own; `async with` it. Raises what `db.DatabaseGone` names while Postgres is away."""

    def __init__(self, database_url: str, *, connections: int) -> None:
        """`connections` for people, and as many for our own tasks."""
        address = driver_address(database_url)
        self._people = self._pool(address, connections, f"{SERVER_SETTINGS} {_PLANS}")
        self._workers = self._pool(address, connections, f"{SERVER_SETTINGS} {_PLANS} {_WORKER}")
        self._looking: dict[AsyncConnectionPool, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        await self._people.open()
        await self._workers.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for looking in self._looking.values():
            looking.cancel()
        await asyncio.gather(*self._looking.values(), return_exceptions=True)
        await self._people.close(timeout=1)
        await self._workers.close(timeout=1)

    async def as_person(self, person_id: UUID, *statements: Statement) -> list[Sequence[Any]]:
        """The rows of each statement; all are one transaction that sees what this person may see."""
        return await self._run(self._people, (_FOR_PERSON, [str(person_id)]), *statements)

    async def as_worker(self, statement: LiteralString, values: Mapping[str, object]) -> Sequence[Any]:
        """The rows of one statement of our own tasks, which look after everybody's answers."""
        (rows,) = await self._run(self._workers, None, (statement, values))
        return rows

    async def as_heartbeat(self, statement: LiteralString, values: Mapping[str, object]) -> Sequence[Any]:
        """The same without waiting for the disk: what the next second says again may be lost in a crash."""
        (rows,) = await self._run(self._workers, _FOR_HEARTBEAT, (statement, values))
        return rows

    def _pool(self, address: str, connections: int, options: str) -> AsyncConnectionPool:
        return AsyncConnectionPool(
            address,
            min_size=connections,
            max_size=connections,
            reconnect_timeout=0,
            reconnect_failed=self._lost,
            open=False,
            kwargs={
                "autocommit": True,
                "prepare_threshold": 1,
                "row_factory": namedtuple_row,
                "options": options,
                "connect_timeout": 5,
            },
            name="direct",
        )

    async def _run(
        self, pool: AsyncConnectionPool, first: Statement | None, *statements: Statement
    ) -> list[Sequence[Any]]:
        try:
            async with pool.connection(timeout=_WHILE_AWAY if self._is_away(pool) else LONGEST_WAIT) as connection:
                if first is None and len(statements) == 1:
                    cursors = [await connection.execute(*statements[0])]
                else:
                    cursors = await _in_one_transaction(connection, [first, *statements] if first else statements)
                results: list[Sequence[Any]] = [await each.fetchall() if each.description else () for each in cursors]
                return results[1:] if first else results
        except psycopg.Error as error:
            leave_out_the_row(error)
            if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
                await pool.check()  # after a restart of Postgres all are broken, not only this one
            raise

    def _is_away(self, pool: AsyncConnectionPool) -> bool:
        looking = self._looking.get(pool)
        return looking is not None and not looking.done()

    async def _lost(self, pool: AsyncConnectionPool) -> None:
        if not self._is_away(pool):
            self._looking[pool] = asyncio.create_task(_until_back(pool), name="looking for the database")


async def _until_back(pool: AsyncConnectionPool) -> None:
    """The pool tries again when it is asked anew; those who had asked before would wait on, although the database is
    back. So somebody asks."""
    while True:
        await asyncio.sleep(_LOOK_AGAIN)
        with suppress(psycopg.OperationalError):
            async with pool.connection(timeout=_LOOK_AGAIN):
                return


async def _in_one_transaction(connection: AsyncConnection, statements: Sequence[Statement]) -> list[AsyncCursor]:
    """All of them in one message to Postgres."""
    try:
        async with connection.pipeline():
            return [await connection.execute(*statement) for statement in statements]
    except psycopg.Error:
        # After one that failed Postgres skips the rest, and with it the preparing of statements that psycopg takes for
        # prepared from now on. So both begin anew.
        if not connection.closed:
            await connection.execute("DEALLOCATE ALL", prepare=False)
        raise
    except (
        BaseException
    ):  # cancelled, perhaps by a browser that left: what Postgres has prepared, nobody knows any more
        await connection.close()
        raise

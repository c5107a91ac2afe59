"""The database: one pool, one transaction per request, and who is asking.

Row-level security is the second net below the queries (`migrations/`): every transaction says for whom it runs, a
person (`as_person`) or one of our own loops (`as_worker`), and the policies on conversations and messages show
nothing to a transaction that said neither. It says so as it begins, which it does with its first statement: a request
that asks the database nothing costs it nothing.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from uuid import UUID

import psycopg
from fastapi import Depends, Request
from sqlalchemy import Connection, DateTime, Enum, ExceptionContext, MetaData, event, text
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError, TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session as SyncSession, SessionTransaction, mapped_column

from backend.core.clock import now
from backend.core.errors import AppError
from backend.core.ids import new_id

if TYPE_CHECKING:
    from backend.core.bus import Bus

# Bounds for one statement and one transaction, so that nothing of ours can hold the database for long.
SERVER_SETTINGS = (
    "-c statement_timeout=10s -c lock_timeout=3s -c idle_in_transaction_session_timeout=15s -c timezone=UTC"
)

#: Seconds for which a request waits for a connection while others have them all: in a crowd it is better to come late.
LONGEST_WAIT = 15.0

#: What SQLAlchemy and psycopg raise while Postgres is away or restarting; answered with 503.
DatabaseGone = (OperationalError, InterfaceError, PoolTimeout, psycopg.OperationalError, psycopg.InterfaceError)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {datetime: DateTime(timezone=True)}


class Row(Base):
    """A table whose rows have a time-ordered id and know when they were made."""

    __abstract__ = True

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    created_at: Mapped[datetime] = mapped_column(default=now)


def words(kind: type[StrEnum], name: str) -> Enum:
    """A text column that holds only the words of `kind`: a check constraint, which is easier to change than a type."""
    return Enum(
        kind,
        name=name,
        native_enum=False,
        create_constraint=True,
        length=20,
        values_callable=lambda members: [member.value for member in members],
    )


def connect(url: str, *, connections: int) -> AsyncEngine:
    """A pool of exactly `connections`; a caller waits for one at most `LONGEST_WAIT` seconds, and is then told to
    try again.

    No ping before use: it would cost every request a round trip, and after a restart of Postgres the first failure
    empties the pool anyway. To the driver every connection is in autocommit: `Sessions` begin their transactions
    themselves (see `_begin`), and nobody else writes.
    """
    engine = create_async_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=LONGEST_WAIT,
        hide_parameters=True,  # what people wrote must not reach a log by way of an error
        connect_args={"options": SERVER_SETTINGS, "connect_timeout": 5, "autocommit": True},
    )
    event.listen(engine.sync_engine, "handle_error", _leave_out_the_row)
    return engine


def driver_address(url: str) -> str:
    """The same address for psycopg itself, without SQLAlchemy's word for which driver it takes."""
    return url.replace("+psycopg", "", 1)


def leave_out_the_row(error: psycopg.Error) -> None:
    """Postgres repeats the row that broke a constraint, with everything in it; only its first line is kept."""
    if error.diag.message_primary:
        error.args = (error.diag.message_primary,)


def _leave_out_the_row(context: ExceptionContext) -> None:
    cause, shown = context.original_exception, context.sqlalchemy_exception
    if isinstance(cause, psycopg.Error):
        leave_out_the_row(cause)
        if shown is not None and cause.diag.message_primary:
            shown.args = (f"({type(cause).__qualname__}) {cause}",)


class _Transaction(SyncSession):
    """What `Sessions` opens, so that the events below are about nobody else's."""


class Sessions:
    """Opens transactions for those who are not a request: tasks, loops, streams."""

    def __init__(self, engine: AsyncEngine, bus: "Bus | None" = None) -> None:
        self._address = driver_address(engine.url.render_as_string(hide_password=False))
        self._make = async_sessionmaker(
            engine, expire_on_commit=False, info={"bus": bus}, sync_session_class=_Transaction
        )

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncSession]:
        """A transaction that has not said for whom it runs: it sees accounts and engines, but no conversation."""
        async with self._make.begin() as session:
            yield session
        _run_after_commit(session)

    @asynccontextmanager
    async def as_person(self, person_id: UUID) -> AsyncIterator[AsyncSession]:
        async with self.begin() as session:
            await act_for(session, person_id)
            yield session

    @asynccontextmanager
    async def as_worker(self) -> AsyncIterator[AsyncSession]:
        """For our own loops, which look after everybody's answers."""
        async with self.begin() as session:
            await _declare(session, "parley.worker", "on")
            yield session

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """A connection of its own, in no transaction: for what is held so long that the pool would miss it.

        It ends soon after a host that vanished.
        """
        options = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
        async with await psycopg.AsyncConnection.connect(
            self._address, autocommit=True, connect_timeout=5, options=options
        ) as connection:
            yield connection


async def act_for(session: AsyncSession, person_id: UUID) -> None:
    """Show this transaction the rows of one person, until it ends."""
    await _declare(session, "parley.person", str(person_id))


async def _declare(session: AsyncSession, name: str, value: str) -> None:
    """Right away where the transaction is under way; else it begins with it, in the same round trip."""
    session.info["declared"] = f"SELECT set_config('{name}', '{value}', true)"
    if session.info.get("begun") is session.sync_session.get_transaction():
        await session.execute(text(session.info["declared"]))


@event.listens_for(_Transaction, "after_begin")
def _begin(session: SyncSession, transaction: SessionTransaction, connection: Connection) -> None:
    if transaction.nested:
        return
    statements = ["BEGIN", session.info["declared"]] if "declared" in session.info else ["BEGIN"]
    connection.exec_driver_sql("; ".join(statements), execution_options={"no_parameters": True})
    session.info["begun"] = transaction


async def open_session(request: Request) -> AsyncIterator[AsyncSession]:
    """One request, one transaction: committed when the route returns, rolled back when it raises.

    It acts for `request.state.acts_for`, the person whom the policy let in, if it let anybody in.
    `scope="function"` ends it before the response starts, so a page is never told of what was not stored.
    """
    sessions: Sessions = request.state.sessions
    person_id: UUID | None = getattr(request.state, "acts_for", None)
    async with sessions.as_person(person_id) if person_id else sessions.begin() as session:
        if (actor := getattr(request.state, "actor", None)) is not None:
            session.info["actor"] = actor  # whom the audit names (`backend/audit/acting.py`)
        yield session


Session = Annotated[AsyncSession, Depends(open_session, scope="function")]


def after_commit(session: AsyncSession, work: Callable[[], Any]) -> None:
    """Run `work` (plain, quick) once what this transaction wrote can be seen by others; never if it rolls back."""
    savepoint = session.sync_session.get_nested_transaction()
    session.info.setdefault("after_commit", []).append((savepoint, work))


def before_commit(session: AsyncSession, handler: Callable[[SyncSession, list[Any]], None], item: object) -> None:
    """Have `handler` called with all the items of this transaction, as the last thing it does.

    What it raises, the commit raises. Items of a savepoint that was rolled back are left out.
    """
    savepoint = session.sync_session.get_nested_transaction()
    session.info.setdefault("before_commit", []).append((savepoint, handler, item))


@event.listens_for(_Transaction, "before_commit")
def _run_before_commit(session: SyncSession) -> None:
    if session.in_nested_transaction():
        return  # a savepoint is released
    items: dict[Any, list[Any]] = {}
    for _savepoint, handler, item in session.info.pop("before_commit", []):
        items.setdefault(handler, []).append(item)
    for handler, its in items.items():
        handler(session, its)


def _run_after_commit(session: AsyncSession) -> None:
    for _savepoint, work in session.info.pop("after_commit", []):
        work()


@event.listens_for(_Transaction, "after_soft_rollback")
def _forget_work(session: SyncSession, ended: SessionTransaction) -> None:
    """A savepoint takes only its own work with it, and that of those within it; the transaction takes all."""
    for name in ("before_commit", "after_commit"):
        asked = session.info.pop(name, [])
        session.info[name] = [each for each in asked if ended.nested and not _is_within(each[0], ended)]


def _is_within(savepoint: SessionTransaction | None, other: SessionTransaction) -> bool:
    while savepoint is not None and savepoint is not other:
        savepoint = savepoint.parent
    return savepoint is other


@contextmanager
def broken(**meanings: AppError) -> Iterator[None]:
    """Give a broken constraint its meaning: `broken(uq_users_email=Conflict("…"))`. Others pass through."""
    try:
        yield
    except (IntegrityError, psycopg.IntegrityError) as error:
        cause = error.orig if isinstance(error, IntegrityError) else error
        name = cause.diag.constraint_name if isinstance(cause, psycopg.Error) else None
        if name in meanings:
            raise meanings[name] from error
        raise


def is_gone(error: DBAPIError) -> bool:
    """Whether `error` means that the database went away, not that the statement was wrong."""
    return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)

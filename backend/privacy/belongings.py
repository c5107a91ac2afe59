"""Which rows are whose, read from the schema, so that a table which comes later cannot be forgotten.

What refers to a person and is deleted with them is theirs, and so is what is deleted with something of theirs. What
refers to a person and only forgets them stays, and says of nobody any more whose it was.
"""

from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Select, Table, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.models import User
from backend.core.db import Base

_PEOPLE = User.__tablename__


class Counts(NamedTuple):
    """Rows, by table; those without any are left out."""

    removed: dict[str, int]
    kept: dict[str, int]


async def count(session: AsyncSession, person_id: UUID) -> Counts:
    """In a session of a worker, which sees them all."""
    removed = {_PEOPLE: 1}
    for table in _theirs():
        removed[table.name] = await session.scalar(_counted(table, person_id)) or 0
    kept = {}
    for table in Base.metadata.sorted_tables:
        if columns := [_column(key) for key in _keys(table, _PEOPLE, "SET NULL")]:
            mine = or_(*(column == person_id for column in columns))
            kept[table.name] = await session.scalar(select(func.count()).select_from(table).where(mine)) or 0
    return Counts(
        {name: rows for name, rows in removed.items() if rows}, {name: rows for name, rows in kept.items() if rows}
    )


async def remove(session: AsyncSession, person_id: UUID) -> None:
    """All of it, in a session of a worker; the database takes along what hangs on it, and forgets them elsewhere."""
    await session.execute(delete(User).where(User.id == person_id))


@cache
def _theirs() -> tuple[Table, ...]:
    """In an order in which each table comes after those it hangs on."""
    found: list[Table] = []
    for table in Base.metadata.sorted_tables:
        if any(_keys(table, name, "CASCADE") for name in (_PEOPLE, *(each.name for each in found))):
            found.append(table)
    return tuple(found)


def _counted(table: Table, person_id: UUID) -> Select[Any]:
    return select(func.count()).select_from(table).where(_is_theirs(table, person_id))


def _is_theirs(table: Table, person_id: UUID) -> ColumnElement[bool]:
    """Directly where the row says whose it is, else by what it hangs on."""
    if direct := _keys(table, _PEOPLE, "CASCADE"):
        return or_(*(_column(key) == person_id for key in direct))
    conditions = []
    for above in _theirs():
        if above is table:
            break
        for key in _keys(table, above.name, "CASCADE"):
            element = key.elements[0]
            conditions.append(element.parent.in_(select(element.column).where(_is_theirs(above, person_id))))
    return or_(*conditions)


def _column(key: Any) -> Any:
    return key.elements[0].parent


def _keys(table: Table, of: str, when_gone: str) -> list[Any]:
    return [
        key
        for key in table.foreign_key_constraints
        if key.referred_table.name == of and key.ondelete == when_gone and key.referred_table is not table
    ]

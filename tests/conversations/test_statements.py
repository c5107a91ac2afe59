"""The SQL of a turn names the tables by hand; here it is held against the models."""

import re

import pytest
from sqlalchemy import Table

from backend.conversations import statements
from backend.conversations.tree import PathRow
from backend.core.db import Base

STATEMENTS = {name: value for name, value in vars(statements).items() if name.isupper() and isinstance(value, str)}
INSERTS = [
    (name, table, {column.strip() for column in columns.split(",")})
    for name, statement in STATEMENTS.items()
    for table, columns in re.findall(r"INSERT INTO (\w+) \(([^)]+)\)", statement)
]


def table_of(name: str) -> Table:
    return Base.metadata.tables[name]


@pytest.mark.parametrize(
    ("statement", "table", "columns"), INSERTS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_an_insert_fills_every_column_that_may_not_be_empty(statement: str, table: str, columns: set[str]) -> None:
    model = table_of(table)
    assert columns <= set(model.columns.keys())
    assert {column.name for column in model.columns if not column.nullable} <= columns


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_a_running_answer_is_only_changed_by_whoever_holds_it(name: str) -> None:
    """Each update of an answer compares that it is running, or (to open it again) that it is not."""
    for update in re.findall(r"UPDATE messages\b.*", STATEMENTS[name], re.DOTALL):
        assert "status IN" in update or "FROM folded" in update


def test_the_writer_is_given_the_columns_it_knows_in_their_order() -> None:
    columns = statements.MESSAGES.partition("SELECT")[2].rpartition("FROM messages")[0]
    outside = re.sub(r"\([^()]*\)", "", columns)

    assert [column.split()[-1] for column in outside.split(",")] == list(PathRow._fields)


def test_they_were_found() -> None:
    assert len(STATEMENTS) >= 10
    assert {table for _name, table, _columns in INSERTS} == {"conversations", "messages", "answer_parts", "usage"}

"""Calls are counted after they ended, without holding anybody up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.ids import new_id
from backend.engines.events import Usage
from backend.usage.ledger import Ledger
from backend.usage.models import Cause
from backend.usage.service import Call


def call(person: User, model: UUID | None = None) -> Call:
    return Call(person.id, model or new_id(), new_id(), None, Cause.API, new_id())


def rows(owner_url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(owner_url) as connection:
        query = "SELECT user_id, model_id, engine_id, key_id, prompt_tokens, completion_tokens, estimated FROM usage"
        return connection.execute(query + " ORDER BY id").fetchall()


async def test_what_is_noted_is_written_also_where_its_model_and_engine_are_gone(
    db: Sessions, alice: User, owner_url: str
) -> None:
    asked = call(alice)

    async with Ledger(db) as ledger:
        ledger.note(asked, Usage(7, 3, 2), prompt_characters=99, written=99)
        ledger.note(asked, None, prompt_characters=35, written=70)

    assert rows(owner_url) == [
        (alice.id, None, None, asked.key_id, 7, 3, False),
        (alice.id, None, None, asked.key_id, 10, 20, True),
    ]
    assert len(ledger) == 0


class Away(Sessions):
    """A database that is gone until somebody brings it back."""

    def __init__(self, db: Sessions) -> None:
        self.db = db
        self.tried = asyncio.Event()
        self.is_back = False

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncSession]:
        self.tried.set()
        if not self.is_back:
            raise OperationalError("gone")
        async with self.db.begin() as session:
            yield session


async def test_while_the_database_is_away_nothing_is_lost_and_nothing_is_counted_twice(
    db: Sessions, alice: User, owner_url: str
) -> None:
    away = Away(db)

    async with Ledger(away, look_again=0.01) as ledger:
        ledger.note(call(alice), Usage(1, 1), prompt_characters=0, written=0)
        await asyncio.wait_for(away.tried.wait(), 5)
        ledger.note(call(alice), Usage(2, 2), prompt_characters=0, written=0)
        away.is_back = True

    assert [row[4] for row in rows(owner_url)] == [1, 2]


async def test_a_call_that_cannot_be_stored_takes_no_other_with_it(db: Sessions, alice: User, owner_url: str) -> None:
    async with Ledger(db) as ledger:
        for tokens in (1, 1 << 40, 3):  # the second is more than its column holds
            ledger.note(call(alice), Usage(tokens, 1), prompt_characters=0, written=0)

    assert [row[4] for row in rows(owner_url)] == [1, 3]
    assert len(ledger) == 0

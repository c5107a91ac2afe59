"""Work for one process at a time."""

import asyncio

import pytest

from backend.core.db import Sessions
from backend.core.locks import only_one


async def test_one_works_and_the_others_are_told_at_once(db: Sessions) -> None:
    async with only_one(db, "cleaning") as first, only_one(db, "cleaning") as second, only_one(db, "other") as third:
        assert [each is not None for each in (first, second, third)] == [True, False, True]

    async with only_one(db, "cleaning") as later:
        assert later is not None


async def test_who_fails_at_it_leaves_it_to_others(db: Sessions) -> None:
    async def fail() -> None:
        async with only_one(db, "cleaning"):
            await asyncio.sleep(0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()

    async with only_one(db, "cleaning") as mine:
        assert mine is not None

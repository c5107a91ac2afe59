"""Programs with keys, as the official client makes them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import httpx
import psycopg
import pytest
from openai import AsyncOpenAI

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.keys import service as keys
from backend.keys.service import Made
from tests.site import Site

MODEL = "fake-8b"

MakeKey = Callable[..., Awaitable[Made]]
OpenClient = Callable[[str], Awaitable[AsyncOpenAI]]
Usage = Callable[[], Awaitable[list[dict[str, Any]]]]


@pytest.fixture
def make_key(db: Sessions) -> MakeKey:
    async def make(person: User, name: str = "Notebook", lifetime: timedelta | None = None) -> Made:
        async with db.as_person(person.id) as session:
            return await keys.make(session, person.id, name, lifetime)

    return make


@pytest.fixture
async def key(make_key: MakeKey, alice: User) -> Made:
    return await make_key(alice)


@pytest.fixture
async def base(site: Site) -> str:
    await site.until_offered(MODEL)
    return f"http://127.0.0.1:{site.settings.port}/v1"


@pytest.fixture
async def client(base: str) -> AsyncIterator[OpenClient]:
    """`await client(secret)`: OpenAI's own, which would try again by itself; here every reply counts."""
    async with AsyncExitStack() as stack:

        async def open_for(secret: str) -> AsyncOpenAI:
            return await stack.enter_async_context(
                AsyncOpenAI(base_url=base, api_key=secret, max_retries=0, timeout=20)
            )

        yield open_for


@pytest.fixture
async def alices(client: OpenClient, key: Made) -> AsyncOpenAI:
    return await client(key.secret)


@pytest.fixture
async def http(base: str, key: Made) -> AsyncIterator[httpx.AsyncClient]:
    """Alice's key and nothing else; paths begin at `/v1/`."""
    headers = {"authorization": f"Bearer {key.secret}"}
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=20, verify=False) as running:
        yield running


@pytest.fixture
def usage(site: Site, owner_url: str) -> Usage:
    """What was counted, once everything is."""

    async def rows() -> list[dict[str, Any]]:
        ledger = site.state["api"].ledger
        async with asyncio.timeout(5):
            while len(ledger):
                await asyncio.sleep(0.01)
        async with await psycopg.AsyncConnection.connect(owner_url) as connection:
            cursor = connection.cursor(row_factory=psycopg.rows.dict_row)
            await cursor.execute("SELECT * FROM usage WHERE cause = 'api' ORDER BY id")
            return await cursor.fetchall()

    return rows


def asked(text: str = "Hello?", **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}

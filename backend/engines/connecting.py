"""The one way to a client of an engine: with the key and in the words that belong to it.

An address that an admin typed is held against the list of the deployment before it is asked and, because names move,
once more at the moment of connecting. What the deployment itself says is trusted.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from backend.core.settings import Settings
from backend.engines import addresses
from backend.engines.addresses import AllowList
from backend.engines.client import EngineClient
from backend.engines.guarding import GuardedResolver
from backend.engines.models import Engine, Source


def client_of(engine: Engine, api_key: str | None, settings: Settings, allowed: AllowList) -> EngineClient:
    client = EngineClient(
        engine.url,
        api_key,
        first_token_seconds=settings.first_token_seconds,
        idle_seconds=settings.idle_seconds,
        resolver=GuardedResolver(allowed) if engine.source is Source.DATABASE else None,
    )
    speak(client, engine)
    return client


def speak(client: EngineClient, engine: Engine) -> None:
    """As its row says it now."""
    client.speak(
        engine.spoken_kind,
        forced=engine.forced_kind is not None,
        priorities=bool(engine.priorities),
        session_header=engine.session_header or "",
    )


async def check_address(engine: Engine, allowed: AllowList) -> None:
    """Raises BadInput for one that may not be asked."""
    if engine.source is Source.DATABASE:
        await addresses.check(addresses.parse(engine.url), allowed)


@asynccontextmanager
async def visiting(engine: Engine, api_key: str | None, settings: Settings) -> AsyncIterator[EngineClient]:
    """For a command that asks one engine and goes. Raises BadInput for an address that may not be asked."""
    allowed = addresses.allow_list(settings)
    await check_address(engine, allowed)
    async with client_of(engine, api_key, settings, allowed) as client:
        yield client

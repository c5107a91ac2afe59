"""The API keys of engines, sealed, each bound to the server it was entered for.

Whoever can change an engine's address must not thereby learn its key: the place a key is sealed for holds scheme, host
and port, so that with another of these it cannot be opened, let alone sent.
"""

from backend.core.security import Sealer, Unreadable
from backend.engines.addresses import origin
from backend.engines.models import Engine


def seal(sealer: Sealer, engine: Engine, api_key: str) -> None:
    """Needs the id and the address of `engine`. An empty key is none."""
    engine.sealed_api_key = sealer.seal(api_key, _place(engine)) if api_key else None


def unseal(sealer: Sealer, engine: Engine) -> str | None:
    """Raises `Unreadable` when the key was entered for another address or sealed with a secret that is gone."""
    return sealer.open(engine.sealed_api_key, _place(engine)) if engine.sealed_api_key else None


def to_send(sealer: Sealer, engine: Engine, url: str, typed: str) -> str | None:
    """What may be sent to `url`: a key that was typed, else the stored one, but only to the server it belongs to."""
    if typed or origin(url) != origin(engine.url):
        return typed or None
    try:
        return unseal(sealer, engine)
    except Unreadable:
        return None


def _place(engine: Engine) -> str:
    return f"engines|{engine.id}|api_key|{origin(engine.url)}"

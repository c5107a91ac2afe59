"""How much room a running engine says it has for conversations: better than any arithmetic, because it has measured."""

from collections.abc import Callable
from dataclasses import dataclass

from backend.engines.pages import Page

BLOCK = 16
"""Tokens: what vLLM gives out at a time, so a conversation takes up to 15 more than it has."""


@dataclass(frozen=True, slots=True)
class Room:
    """Either `tokens` that all conversations share, or `slots` for conversations of at most `context` tokens each."""

    tokens: int | None = None
    block: int = BLOCK
    slots: int | None = None
    context: int | None = None


@dataclass(frozen=True, slots=True)
class RoomPage:
    """Where a kind tells it, and how that is read."""

    path: str
    read: Callable[[Page], Room | None]


def count(value: object) -> int | None:
    return value if type(value) is int and 0 < value < 2**40 else None

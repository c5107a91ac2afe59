"""What a fake engine was asked, and the questions of the product that are not people's."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.fakes import tokens
from tests.fakes.script import Step

Json: TypeAlias = dict[str, Any]


@dataclass
class Asked:
    """One request to `/v1/chat/completions`."""

    headers: dict[str, str]
    raw: bytes
    body: Json
    at: float = field(default_factory=time.monotonic)
    prompt_tokens: int = 0
    cached_tokens: int = 0

    @property
    def messages(self) -> list[Json]:
        messages = self.body.get("messages")
        return messages if isinstance(messages, list) else []

    @property
    def last_text(self) -> str:
        return tokens.text_of(self.messages[-1].get("content")) if self.messages else ""

    @property
    def continues(self) -> bool:
        """It asks for the rest of its last message."""
        return bool(self.body.get("continue_final_message")) and not self.body.get("add_generation_prompt", True)


@dataclass(frozen=True)
class Aborted:
    """A client that went away: when, and how many steps it had been sent."""

    asked: Asked
    at: float
    steps: int


def limit_of(body: Json) -> int | None:
    """The most tokens it may get, under whatever name it asks for them."""
    limit = body.get("max_tokens", body.get("max_completion_tokens"))
    return limit if isinstance(limit, int) else None


def is_title(asked: Asked) -> bool:
    """Titles are the only answers of at most 32 tokens that the product asks for."""
    limit = limit_of(asked.body)
    return limit is not None and limit <= 32


_NUMBERS = ("One, ", "two, ", "three, ", "four, ", "five, ", "six, ", "seven, ", "eight, ", "nine, ", "ten.")
PROBES: dict[str, Sequence[Step]] = {
    "Count from one to ten in words.": _NUMBERS,
    "Name the days of the week.": ("Monday, ", "Tuesday, ", "Wednesday, ", "Thursday."),
    "What colour is this?": ("Red.",),
}


def is_probe(asked: Asked) -> bool:
    """What the product asks an engine to learn what it can do, before anybody asks anything."""
    limit = limit_of(asked.body)
    question = tokens.text_of(asked.messages[0].get("content")) if asked.messages else ""
    return question in PROBES and limit is not None and limit <= 12

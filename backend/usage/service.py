"""Counting what engines were asked to do."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from backend.engines.events import Usage
from backend.usage.models import Cause, UsageRecord

_CHARACTERS_PER_TOKEN = 3.5  # of ordinary European prose, for engines that do not count
_MOST_CHARACTERS_PER_TOKEN = 8  # nothing but white space or one repeated word is written with fewer tokens
_USUAL_ANSWER = 500  # tokens; how long one gets is only known at its end


@dataclass(frozen=True)
class Call:
    """One call of an engine: who caused it, and what it wrote."""

    user_id: UUID | None  # nobody: the command line
    model_id: UUID | None  # none: what an engine has and nobody has published yet
    engine_id: UUID
    message_id: UUID | None
    cause: Cause
    key_id: UUID | None = None


def record(session: AsyncSession, call: Call, usage: Usage | None, *, prompt_characters: int, written: int) -> None:
    """Count a call; `written` characters and those of the prompt stand in where the engine sent no usage."""
    session.add(UsageRecord(**facts(call, usage, prompt_characters=prompt_characters, written=written)))


def facts(call: Call, usage: Usage | None, *, prompt_characters: int, written: int) -> dict[str, Any]:
    """What a row says of a call, by column."""
    return {
        "user_id": call.user_id,
        "model_id": call.model_id,
        "engine_id": call.engine_id,
        "message_id": call.message_id,
        "key_id": call.key_id,
        "cause": call.cause,
        "prompt_tokens": usage.prompt_tokens if usage else estimate(prompt_characters),
        "cached_tokens": usage.cached_tokens if usage else None,
        "completion_tokens": usage.completion_tokens if usage else estimate(written),
        "estimated": usage is None,
    }


def estimate(characters: int) -> int:
    return round(characters / _CHARACTERS_PER_TOKEN)


def at_least(text: str) -> int:
    """Tokens that `text` cannot have fewer of, whatever it is."""
    return len(text) // _MOST_CHARACTERS_PER_TOKEN


def estimate_cost(prompt_tokens: int, longest_answer: int | None) -> int:
    """Tokens of prompt and answer, roughly."""
    return prompt_tokens + min(longest_answer or _USUAL_ANSWER, _USUAL_ANSWER)

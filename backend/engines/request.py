"""What is asked of an engine: a closed list of fields, each with its bounds. Nothing else reaches the wire."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypedDict

import orjson

JSON: TypeAlias = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None


class ChatMessage(TypedDict):
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class ChatRequest:
    """`extra` holds fields that not every engine knows; a dialect puts them there, never a person."""

    model: str
    messages: Sequence[ChatMessage]
    max_tokens: int | None = None
    temperature: float | None = None
    extra: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def goes_on(self) -> bool:
        """The engine continues the last message instead of beginning a new one."""
        return bool(self.messages) and self.messages[-1]["role"] == "assistant"


def body_of(request: ChatRequest) -> bytes:
    """The bytes of a streaming request. `ValueError` for a field that is unknown or out of bounds: our own fault."""
    fields: dict[str, JSON] = {
        "model": request.model,
        "messages": [{"role": message["role"], "content": message["content"]} for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    options: dict[str, JSON] = {"max_tokens": request.max_tokens, "temperature": request.temperature, **request.extra}
    for name, value in options.items():
        if value is None:
            continue
        if name not in _BOUNDS or not _BOUNDS[name](value):
            raise ValueError(f"{name} is not a field an engine is sent, or its value is out of bounds")
        fields[name] = value
    return orjson.dumps(fields)


def _is_count(value: JSON) -> bool:
    return type(value) is int and 1 <= value <= 1_000_000


def _is_bool(value: JSON) -> bool:
    return isinstance(value, bool)


def _between(low: float, high: float) -> Callable[[JSON], bool]:
    def check(value: JSON) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high

    return check


def _is_salt(value: JSON) -> bool:
    """What vLLM accepts: at most 128 characters, none of `@ / \\ NUL`."""
    return isinstance(value, str) and 0 < len(value) <= 128 and not set(value) & set("@/\\\0")


def _are_stops(value: JSON) -> bool:
    """Four is the most that vLLM and OpenAI take."""
    return isinstance(value, list | tuple) and 0 < len(value) <= 4 and all(_is_short(stop) for stop in value)


def _is_short(value: JSON) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200


def _are_template_options(value: JSON) -> bool:
    return isinstance(value, Mapping) and len(value) <= 10 and all(_is_bool(option) for option in value.values())


_BOUNDS: dict[str, Callable[[JSON], bool]] = {
    "max_tokens": _is_count,
    "max_completion_tokens": _is_count,
    "temperature": _between(0, 2),
    "top_p": _between(0, 1),
    "priority": _between(-1_000_000, 1_000_000),
    "seed": _between(0, 2**31 - 1),
    "stop": _are_stops,
    "cache_salt": _is_salt,
    "add_generation_prompt": _is_bool,
    "continue_final_message": _is_bool,
    "chat_template_kwargs": _are_template_options,
    "reasoning_effort": _is_short,
}

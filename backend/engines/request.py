"""What is asked of an engine: a closed list of fields, each with its bounds. Nothing else reaches the wire."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict

import orjson

JSON: TypeAlias = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None


class TextPart(TypedDict):
    type: Literal["text"]
    text: str


class ImageUrl(TypedDict):
    url: str


class ImagePart(TypedDict):
    """A picture as a data URL of our own bytes: an engine is never given an address to fetch."""

    type: Literal["image_url"]
    image_url: ImageUrl


Part: TypeAlias = TextPart | ImagePart


class ChatMessage(TypedDict):
    role: Literal["system", "user", "assistant"]
    content: str | list[Part]


Thinking: TypeAlias = Literal["", "off", "on", "low", "medium", "high"]
"""Empty: as the engine does by itself. The last three ask for an effort."""


@dataclass(frozen=True)
class ChatRequest:
    """One question in words that belong to no engine; a dialect turns them into the fields its engine knows."""

    model: str
    messages: Sequence[ChatMessage]
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: Sequence[str] | None = None
    seed: int | None = None
    response_format: Mapping[str, JSON] | None = None
    thinking: Thinking = ""
    salt: str | None = None
    """Only requests with the same salt share a prefix cache."""
    priority: int | None = None
    """0 before 1 before 2; sent where the engine was started with priorities."""
    session: str | None = None
    """Always the same for a conversation, and opaque: routers keep a conversation on one engine by it."""
    fairness: str | None = None
    """Always the same for a person, and opaque: routers share out by it."""
    continues: bool = False
    """The answer goes on with the last message, which is the assistant's own."""


def checked(options: Mapping[str, JSON]) -> dict[str, JSON]:
    """Those that are set. `ValueError` for a field that is unknown or out of bounds: our own fault."""
    fields: dict[str, JSON] = {}
    for name, value in options.items():
        if value is None:
            continue
        if name not in _BOUNDS or not _BOUNDS[name](value):
            raise ValueError(f"{name} is not a field an engine is sent, or its value is out of bounds")
        fields[name] = value
    return fields


def prompt_fields(model: str, messages: Sequence[ChatMessage], *, continues: bool = False) -> dict[str, JSON]:
    """What an engine makes its prompt from, be it to answer or to count. `ValueError` as above."""
    fields: dict[str, JSON] = {
        "model": model,
        "messages": [{"role": message["role"], "content": _content(message["content"])} for message in messages],
    }
    if continues:
        if not messages or messages[-1]["role"] != "assistant":
            raise ValueError("only a message of the assistant can be continued")
        fields |= {"add_generation_prompt": False, "continue_final_message": True}
    return fields


def _content(content: str | list[Part]) -> JSON:
    if isinstance(content, str):
        return content
    if not content:
        raise ValueError("a message without parts says nothing")
    return [_part(part) for part in content]


def _part(part: Mapping[str, object]) -> JSON:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}} if _PICTURE.fullmatch(url):
            return {"type": "image_url", "image_url": {"url": url}}
    raise ValueError("a part of a message is text, or a picture as a data URL")


_PICTURE = re.compile(r"data:image/(?:png|jpeg|webp);base64,[A-Za-z0-9+/]+={0,2}")


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
    return (
        isinstance(value, Mapping)
        and len(value) <= 10
        and all(_is_bool(option) or _is_short(option) for option in value.values())
    )


def _is_format(value: JSON) -> bool:
    return (
        isinstance(value, Mapping)
        and value.get("type") in ("text", "json_object", "json_schema")
        and len(orjson.dumps(value)) <= _MAX_FORMAT_BYTES
    )


_MAX_FORMAT_BYTES = 64 << 10

_BOUNDS: dict[str, Callable[[JSON], bool]] = {
    "max_tokens": _is_count,
    "max_completion_tokens": _is_count,
    "temperature": _between(0, 2),
    "top_p": _between(0, 1),
    "priority": _between(-1_000_000, 1_000_000),
    "seed": _between(0, 2**31 - 1),
    "stop": _are_stops,
    "cache_salt": _is_salt,
    "chat_template_kwargs": _are_template_options,
    "reasoning_effort": _is_short,
    "response_format": _is_format,
    "store": _is_bool,
}

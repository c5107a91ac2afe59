"""What a program may ask, checked field by field. From what is left here an engine's request is built anew.

Three kinds of fields: those that are understood; those that change nothing and that clients send all the same, which
are passed over; and those that would change the answer and are not there yet, which are refused by name. `null` is as
if a field were not there. A name that nobody knows is refused, too: it might have mattered.
"""

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, Literal, TypeAlias

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from backend.core.i18n import _
from backend.core.text import one_line
from backend.engines.request import JSON, Thinking
from web.api import schemas
from web.api.errors import Refused

MOST_MESSAGES = 2_000
MOST_PARTS = 200
MOST_PICTURES = 20
MOST_TOKENS = 1_000_000
MOST_STOPS, LONGEST_STOP = 4, 200

#: About who asks and how it is kept or paid: nothing here depends on it.
_WITHOUT_EFFECT: Final = frozenset({
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prediction", "verbosity", "parallel_tool_calls",
})  # fmt: skip

_WITHOUT_EFFECT_ON_A_MESSAGE: Final = frozenset({
    "name", "refusal", "annotations", "reasoning", "reasoning_content", "reasoning_details",
})  # fmt: skip

#: What clients send for what they do not want, by name; anything else under that name is refused.
_NOT_YET: Final[dict[str, Callable[[Any], bool]]] = {
    "n": lambda value: value == 1,
    "tools": lambda value: value == [],
    "tool_choice": lambda value: value in ("none", "auto"),
    "functions": lambda value: value == [],
    "function_call": lambda value: value in ("none", "auto"),
    "audio": lambda _value: False,
    "modalities": lambda value: value == ["text"],
    "logprobs": lambda value: value is False,
    "top_logprobs": lambda value: value == 0,
    "logit_bias": lambda value: value == {},
    "frequency_penalty": lambda value: value == 0,
    "presence_penalty": lambda value: value == 0,
    "web_search_options": lambda _value: False,
}

_NOT_YET_ON_A_MESSAGE: Final = frozenset({"tool_calls", "function_call", "audio"})
_ROLES_NOT_YET: Final = frozenset({"tool", "function"})
_PARTS_NOT_YET: Final = frozenset({"input_audio", "file", "refusal"})

_EFFORTS: Final[dict[str, Thinking]] = {
    "none": "off", "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high",
}  # fmt: skip

_DATA_URL = re.compile(r"data:image/(?:png|jpeg|jpg|webp|gif);base64,", re.IGNORECASE)


def _refused(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("refused", "{sentence}", {"sentence": sentence})


def _text(value: object) -> object:
    """Without NUL, at which an engine in C would stop reading."""
    return value.replace("\0", "") if isinstance(value, str) else value


def _parts(content: object) -> object:
    """Text alone is one part of text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("type"), str) and part["type"] in _PARTS_NOT_YET:
            raise _refused(_("Parts of the type “{name}” are not supported yet.").format(name=part["type"]))
    return content


def _role(role: object) -> object:
    if isinstance(role, str) and role in _ROLES_NOT_YET:
        raise _refused(_("Messages of the role “{name}” are not supported yet.").format(name=role))
    return "system" if role == "developer" else role


def _listed(stop: object) -> object:
    return [stop] if isinstance(stop, str) else stop


def _address(url: object) -> object:
    """Nothing is ever fetched, neither by us nor by an engine."""
    if isinstance(url, str) and not _DATA_URL.match(url):
        raise _refused(_("A picture is sent as a data URL (PNG, JPEG, WebP, GIF; base64). Nothing is fetched."))
    return url


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class TextPart(_Strict):
    type: Literal["text"]
    text: Annotated[str, BeforeValidator(_text)]


class PictureAddress(_Strict):
    url: Annotated[str, BeforeValidator(_address)]
    detail: str | None = None  # all pictures are scaled alike


class PicturePart(_Strict):
    type: Literal["image_url"]
    image_url: PictureAddress


Part: TypeAlias = Annotated[TextPart | PicturePart, Field(discriminator="type")]


class Message(_Strict):
    role: Annotated[Literal["system", "user", "assistant"], BeforeValidator(_role)]
    content: Annotated[list[Part], BeforeValidator(_parts), Field(min_length=1, max_length=MOST_PARTS)]

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def pictures(self) -> list[str]:
        return [part.image_url.url for part in self.content if isinstance(part, PicturePart)]


class StreamOptions(_Strict):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # against readers of lengths on the way; the chunks here follow the engine


class Completion(_Strict):
    """A request to `/v1/chat/completions`."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int | None, Field(ge=1, le=MOST_TOKENS)] = None
    max_completion_tokens: Annotated[int | None, Field(ge=1, le=MOST_TOKENS)] = None
    temperature: Annotated[float | None, Field(ge=0, le=2, allow_inf_nan=False)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1, allow_inf_nan=False)] = None
    stop: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=LONGEST_STOP)]] | None,
        BeforeValidator(_listed),
        Field(max_length=MOST_STOPS),
    ] = None
    seed: Annotated[int | None, Field(ge=-(2**63), lt=2**63)] = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None

    @property
    def limit(self) -> int | None:
        """Of tokens; both names mean the same, and the newer one counts."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def thinking(self) -> Thinking | None:
        return _EFFORTS[self.reasoning_effort] if self.reasoning_effort else None

    @property
    def engine_seed(self) -> int | None:
        """Engines take fewer numbers than programs do; the same one is always the same."""
        return None if self.seed is None else self.seed % 2**31

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def format(self) -> dict[str, JSON] | None:
        return schemas.checked(self.response_format) if self.response_format else None


def read(body: bytes) -> Completion:
    """Raises Refused with the field that is wrong."""
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Refused(_("The body is not valid JSON.")) from None
    if not isinstance(asked, dict):
        raise Refused(_("The body has to be a JSON object."))
    _prune(asked, _WITHOUT_EFFECT)
    for name in asked.keys() & _NOT_YET.keys():
        if not _NOT_YET[name](asked.pop(name)):
            raise Refused(_("“{name}” is not supported yet.").format(name=name), param=name)
    _look_through(asked.get("messages"))
    try:
        completion = Completion.model_validate(asked)
    except ValidationError as error:
        raise _first_of(error) from None
    if not any(message.role == "user" for message in completion.messages):
        raise Refused(_("There is no message of the role “user”."), param="messages")
    _check_pictures(completion.messages)
    if completion.response_format:
        schemas.checked(completion.response_format)
    return completion


def _prune(fields: dict[str, Any], without_effect: Iterable[str]) -> None:
    for name in without_effect:
        fields.pop(name, None)
    for name in [name for name, value in fields.items() if value is None]:
        del fields[name]


def _look_through(messages: object) -> None:
    """What clients send with messages beside what is understood."""
    for number, message in enumerate(messages if isinstance(messages, list) else ()):
        if not isinstance(message, dict):
            continue
        _prune(message, _WITHOUT_EFFECT_ON_A_MESSAGE)
        for name in message.keys() & _NOT_YET_ON_A_MESSAGE:
            if message.pop(name):
                sentence = _("“{name}” is not supported yet.").format(name=name)
                raise Refused(sentence, param=f"messages[{number}].{name}")


def _check_pictures(messages: list[Message]) -> None:
    count = 0
    for number, message in enumerate(messages):
        count += len(message.pictures)
        if message.pictures and message.role != "user":
            sentence = _("Pictures belong to messages of the role “user”.")
            raise Refused(sentence, param=f"messages[{number}].content")
    if count > MOST_PICTURES:
        sentence = _("These are {count} pictures; at most {most} are read.")
        raise Refused(sentence.format(count=count, most=MOST_PICTURES), param="messages")


def _first_of(error: ValidationError) -> Refused:
    """One at a time: a client shows one, and the first is the one that a person would mend first."""
    found = error.errors(include_url=False, include_input=False)[0]
    param = _path(found)
    match found["type"]:
        case "missing":
            return Refused(_("“{name}” is missing.").format(name=param), param=param)
        case "extra_forbidden":
            return Refused(_("“{name}” is not supported.").format(name=param), param=param)
        case "refused":
            return Refused(found["msg"], param=param)
    return Refused(_("“{name}” cannot be used: {why}.").format(name=param, why=_lowered(found["msg"])), param=param)


def _lowered(message: str) -> str:
    return message[:1].lower() + message[1:]


def _path(found: ErrorDetails) -> str:
    """As a programmer would write it: `messages[0].content[1].text`. Bounded, for it repeats names that were sent."""
    path = ""
    steps = found["loc"]
    for number, step in enumerate(steps):
        if isinstance(step, int):
            path += f"[{step}]"
        elif steps[max(0, number - 2) : number][:1] != ("content",):  # else it is the type of a part, not a field
            path += f".{step}" if path else step
    return one_line(path, 100)

"""What differs between kinds of engines, as values. A file of this folder holds one kind, or a family of them.

A dialect says what an engine may be sent and in which words (`body`, `headers`), what it tells beside its answers
(`describe`, `sees`, `version`, `counter`, `health_path`, `metrics`, `room`), and what it can be told to do
(`lifecycle`).
Reading an answer needs none: `reading.py` understands all of them at once.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from re import Pattern
from typing import TypeAlias

import orjson

from backend.core.i18n import _
from backend.engines.counting import Counter
from backend.engines.dialects.lifecycle import Lifecycle
from backend.engines.events import EngineFailed, Failure
from backend.engines.kinds import Kind
from backend.engines.metrics import Metrics
from backend.engines.pages import Site, UpstreamModel
from backend.engines.request import JSON, ChatRequest, Thinking, checked, prompt_fields
from backend.engines.room import RoomPage

Fields: TypeAlias = dict[str, JSON]

Describe: TypeAlias = Callable[[Site, Sequence[UpstreamModel], bool], Awaitable[Sequence[UpstreamModel]]]
"""Adds to a list of models what the engine tells on other pages; with True also what costs a request a model."""


class Continuation(StrEnum):
    """What an engine does with the fields that ask it to go on with an answer."""

    OBEYED = "obeyed"
    PASSED_OVER = "passed over"  # it may go on all the same, by its template
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Version:
    """The page on which it stands, and the key."""

    page: str
    key: str


def no_thinking_fields(_thinking: Thinking) -> Fields:
    return {}


def as_it_is(options: Fields, _model: str) -> Fields:
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    kind: Kind
    name: str
    """As its makers write it."""

    # What it is sent
    strict: bool = False
    """What it does not know is an error, down to options that the template of a model does not read."""
    limit_field: str = "max_tokens"
    salted: bool = False
    priority: Callable[[int], float] | None = None
    """From 0 first, 1, 2 to the engine's own scale; None where it has none."""
    think: Callable[[Thinking], Fields] = no_thinking_fields
    always: Mapping[str, JSON] | None = None
    stream_options: Mapping[str, JSON] | None = None
    adjust: Callable[[Fields, str], Fields] = as_it_is
    """The last word on the optional fields of a request to a model."""
    session_headers: tuple[str, ...] = ()
    fairness_headers: tuple[str, ...] = ()
    not_here: Pattern[str] | None = None
    """Names of models that this engine would pass on to somebody else's servers."""

    # What it tells
    continuation: Continuation = Continuation.PASSED_OVER
    refuses_pictures: bool = False
    """It says no to a picture that the model cannot see; others may pass over it."""
    counter: Counter | None = None
    version: Version | None = None
    describe: Describe | None = None
    sees: Callable[[Site, str], Awaitable[bool | None]] | None = None
    health_path: str | None = None
    """Asked where an engine that has died may still list its models."""
    metrics: Metrics | None = None
    """How busy it is. The numbers of a router in front of engines are not the engines'."""
    room: RoomPage | None = None

    # What it can be told
    lifecycle: Lifecycle | None = None

    def body(self, request: ChatRequest, *, priorities: bool = False) -> bytes:
        """The bytes of a streaming request. `ValueError` for what is out of bounds, which is our own fault."""
        self.must_have(request.model)
        if request.continues and self.continuation is Continuation.REFUSED:
            raise ValueError(f"{self.name} cannot be asked to go on with an answer")
        options: Fields = {
            self.limit_field: request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stop": list(request.stop) if request.stop else None,
            "seed": request.seed,
            "response_format": request.response_format,
            **self.think(request.thinking),
            **(self.always or {}),
        }
        if self.salted:
            options["cache_salt"] = request.salt
        if priorities and self.priority is not None and request.priority is not None:
            options["priority"] = self.priority(request.priority)
        fields: Fields = {
            **prompt_fields(request.model, request.messages, continues=request.continues),
            "stream": True,
            "stream_options": {"include_usage": True, **(self.stream_options or {})},
            **checked(self.adjust(options, request.model)),
        }
        return orjson.dumps(fields)

    def headers(self, request: ChatRequest, session_header: str = "") -> dict[str, str]:
        """By which routers keep a conversation on one engine; `session_header` is one that an admin named."""
        headers = {}
        if request.session:
            names = (*self.session_headers, *filter(None, [session_header]))
            headers = dict.fromkeys(names, _opaque(request.session))
        if request.fairness:
            headers |= dict.fromkeys(self.fairness_headers, _opaque(request.fairness))
        return headers

    def has(self, model: str) -> bool:
        """False: it only passes it on."""
        return self.not_here is None or not self.not_here.search(model)

    def without_thinking(self, thinks: bool | None) -> Thinking:
        """The wish not to think, of a model that `thinks` or not; one that is strict would refuse it for one that does
        not."""
        return "off" if thinks or not self.strict else ""

    def must_have(self, model: str) -> None:
        """Raises `EngineFailed` for a model that only seems to be here."""
        if not self.has(model):
            sentence = _("This model runs on servers of its maker, so nothing is sent to it.")
            raise EngineFailed(Failure.BAD_REQUEST, sentence, detail="the model leaves the house")


def _opaque(value: str) -> str:
    """Letters, digits and hyphens, so that no value ends a header."""
    if not 0 < len(value) <= 128 or not value.isascii() or not value.replace("-", "").isalnum():
        raise ValueError("a session or a person is named by letters and digits only")
    return value

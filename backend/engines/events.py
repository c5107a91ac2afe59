"""What an engine can tell us, in one vocabulary for all of them, and the one way it can fail."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self, TypeAlias


@dataclass(frozen=True, slots=True)
class Delta:
    """Text of the answer, to be appended to what came before."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of the thinking that comes before an answer; never sent back to an engine."""

    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """The engine's own count. It may be told more than once; the last one holds."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """Why the engine stopped: `stop`, `length`, `tool_calls`, `content_filter`, `abort` or a word of its own."""

    reason: str


Event: TypeAlias = Delta | Reasoning | Usage | Finish


class Failure(StrEnum):
    """Kinds of failure that call for different ways on: this table is the one place that says what each means."""

    passes: bool
    """It may be over in a moment."""
    lasts: bool
    """It will not, until somebody has seen to it."""
    elsewhere: bool
    """Another endpoint may not have it."""
    fault: bool
    """Tells of the endpoint, as opposed to the request or the load of the moment: circuit breakers count it."""
    suspicious: bool
    """The engine is looked at without waiting for its turn. What it said is about itself and repeats no question."""
    verdict: bool
    """What was asked for does not work there, and would not another time."""
    unserved: bool
    """The engine has not done anything for it."""
    cuts: bool
    """It breaks off an answer that has begun, as opposed to refusing it."""
    engines: bool
    """Only an engine fails so: told of any address, it explores no network."""

    UNREACHABLE = "unreachable", "passes lasts elsewhere fault suspicious unserved cuts"
    AUTH = "auth", "lasts elsewhere fault suspicious unserved engines"
    UNKNOWN_MODEL = "unknown_model", "lasts elsewhere unserved"
    OVERFLOW = "overflow", "verdict unserved"
    BAD_REQUEST = "bad_request", "verdict unserved"
    OVERLOADED = "overloaded", "passes elsewhere unserved"
    LOADING = "loading", "passes elsewhere suspicious unserved engines"
    TIMEOUT = "timeout", "elsewhere fault suspicious cuts"
    DEAD = "dead", "elsewhere fault suspicious verdict"
    CUT = "cut", "elsewhere fault suspicious cuts"
    NONSENSE = "nonsense", "elsewhere fault verdict"
    EMPTY = "empty", "verdict"

    def __new__(cls, word: str, meanings: str) -> Self:
        kind = str.__new__(cls, word)
        kind._value_ = word
        means = set(meanings.split())
        assert means <= cls.__annotations__.keys()
        for meaning in cls.__annotations__:
            setattr(kind, meaning, meaning in means)
        return kind


@dataclass(frozen=True, slots=True)
class Overflow:
    """How far a request is beyond the model's window, as far as the engine said so."""

    window: int | None = None
    prompt_tokens: int | None = None
    at_least: bool = False
    """`prompt_tokens` is where the engine stopped counting."""
    answer_only: bool = False
    """The prompt fits; it is `max_tokens` that does not."""


class EngineFailed(Exception):
    """No answer, or only a part of one. `str()` is a sentence for the reader.

    `detail` is what the engine said, for the log and for admins: bounded, without keys, and never shown to people.
    """

    def __init__(
        self,
        kind: Failure,
        sentence: str,
        *,
        detail: str = "",
        retry_after: float | None = None,
        overflow: Overflow | None = None,
    ) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after
        self.overflow = overflow

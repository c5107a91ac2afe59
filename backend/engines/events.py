"""What an engine can tell us, in one vocabulary for all of them, and the one way it can fail."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


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
    """Kinds of failure that call for different ways on."""

    UNREACHABLE = "unreachable"
    AUTH = "auth"
    UNKNOWN_MODEL = "unknown_model"
    OVERFLOW = "overflow"
    BAD_REQUEST = "bad_request"
    OVERLOADED = "overloaded"
    LOADING = "loading"
    TIMEOUT = "timeout"
    DEAD = "dead"
    CUT = "cut"
    NONSENSE = "nonsense"
    EMPTY = "empty"


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

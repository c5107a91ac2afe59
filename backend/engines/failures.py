"""Turns what an engine, a proxy or the network says about a failure into one `EngineFailed`.

The sentence is ours and the same for every engine. The engine's own words go into `detail`.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import orjson

from backend.core.i18n import _
from backend.core.text import one_line
from backend.engines.events import EngineFailed, Failure, Overflow
from backend.engines.overflow import find_overflow

MAX_DETAIL = 500

_STATUS = {
    401: Failure.AUTH,
    403: Failure.AUTH,
    404: Failure.NONSENSE,  # not about a model (those are found by their words): the address is no engine's
    405: Failure.NONSENSE,
    408: Failure.OVERLOADED,  # a router's queue gave up
    424: Failure.DEAD,  # TGI: the generation failed
    429: Failure.OVERLOADED,
    499: Failure.CUT,  # Ollama: it was told that nobody waits any more
    502: Failure.UNREACHABLE,
    503: Failure.OVERLOADED,
    504: Failure.TIMEOUT,
}
_WORDS = {
    "authentication_error": Failure.AUTH,
    "invalid_api_key": Failure.AUTH,
    "model_not_found": Failure.UNKNOWN_MODEL,
    "no_available_workers": Failure.UNREACHABLE,
    "not_supported_error": Failure.BAD_REQUEST,
    "unavailable_error": Failure.LOADING,
    "overloaded": Failure.OVERLOADED,
    "rate_limit_exceeded": Failure.OVERLOADED,
    "insufficient_quota": Failure.BAD_REQUEST,  # comes as 429, but waiting does not help
}
_MESSAGES = (
    (re.compile(r"\bmodel\b.{0,300}?(does not exist|not found)", re.IGNORECASE | re.DOTALL), Failure.UNKNOWN_MODEL),
    (
        re.compile(
            r"loading model|model is (currently )?(loading|starting|scaling)|temporarily unavailable", re.IGNORECASE
        ),
        Failure.LOADING,
    ),
    (
        # Routers whose engines are away: Envoy, then vllm-router and SGLang's gateway
        re.compile(
            r"no healthy upstream|no available workers|no workers are currently available|error sending request",
            re.IGNORECASE,
        ),
        Failure.UNREACHABLE,
    ),
    (re.compile(r"llm is unavailable|enginecore encountered|failed to load model", re.IGNORECASE), Failure.DEAD),
    (re.compile(r"queue is full|server busy|maximum pending requests", re.IGNORECASE), Failure.OVERLOADED),
    (re.compile(r"input is not supported", re.IGNORECASE), Failure.BAD_REQUEST),
    (
        re.compile(r"roles must alternate|system role not supported", re.IGNORECASE),
        Failure.BAD_REQUEST,
    ),  # llama.cpp: 500
)
_KEYS = re.compile(r"(?i:bearer)\s+[^\s\"',}]+|\bsk-[\w*-]{4,}|\bhf_\w{8,}")


class Complaint(NamedTuple):
    """An engine's error, whatever envelope it came in."""

    message: str
    words: tuple[str, ...] = ()
    code: int | None = None
    prompt_tokens: int | None = None
    window: int | None = None


def failed(
    kind: Failure, detail: str = "", *, retry_after: float | None = None, overflow: Overflow | None = None
) -> EngineFailed:
    """`kind` with the sentence that belongs to it."""
    return EngineFailed(
        kind, _sentence(kind, overflow), detail=bounded(detail), retry_after=retry_after, overflow=overflow
    )


def refused(status: int, body: bytes, *, retry_after: float | None = None, secret: str | None = None) -> EngineFailed:
    """The failure behind an HTTP answer that is not 200."""
    text = body.decode("utf-8", "replace")
    complaint = read_complaint(_json(body)) or Complaint(text)
    return _judge(complaint, status, f"{status}: {complaint.message or text}", retry_after, secret)


def broken_off(payload: object, *, secret: str | None = None) -> EngineFailed:
    """The failure behind an error that came inside a stream that had begun with 200."""
    complaint = read_complaint(payload) or Complaint(str(payload))
    return _judge(complaint, complaint.code or 500, complaint.message, None, secret)


def read_complaint(payload: object) -> Complaint | None:
    """The error in a decoded body: nested, a bare string, flat, or FastAPI's `detail`."""
    if not isinstance(payload, Mapping):
        return None
    error = payload.get("error") or payload
    if isinstance(error, str):
        return Complaint(error, _strings(payload.get("error_type")))
    if not isinstance(error, Mapping):
        return Complaint(str(error))
    message = error.get("message") or error.get("detail") or ""
    return Complaint(
        message if isinstance(message, str) else str(message),
        _strings(error.get("type"), error.get("code"), error.get("error_type")),
        _status(error.get("code")) or _status(error.get("http_status_code")),
        _count(error.get("n_prompt_tokens")),
        _count(error.get("n_ctx")),
    )


def bounded(detail: str, secret: str | None = None) -> str:
    """`detail` in one printable line of at most `MAX_DETAIL` characters, without keys."""
    if secret:
        detail = detail.replace(secret, "[key]")
    detail = _KEYS.sub("[key]", detail[: 20 * MAX_DETAIL])
    return one_line("".join(c if c.isprintable() else " " for c in detail), MAX_DETAIL)


def _judge(
    complaint: Complaint, status: int, detail: str, retry_after: float | None, secret: str | None
) -> EngineFailed:
    overflow = find_overflow(
        complaint.message, words=complaint.words, prompt_tokens=complaint.prompt_tokens, window=complaint.window
    )
    kind = Failure.OVERFLOW if overflow else _kind(complaint, status)
    return failed(kind, bounded(detail, secret), retry_after=retry_after, overflow=overflow)


def _kind(complaint: Complaint, status: int) -> Failure:
    """The engine's own words weigh more than the status: proxies and clones pick statuses freely."""
    if status in (401, 403):
        return Failure.AUTH
    for word in complaint.words:
        if kind := _WORDS.get(word.lower()):
            return kind
    for pattern, kind in _MESSAGES:
        if pattern.search(complaint.message[:2_000]):
            return kind
    if kind := _STATUS.get(status):
        return kind
    if status < 400:
        return Failure.NONSENSE
    return Failure.BAD_REQUEST if status < 500 else Failure.DEAD


def _sentence(kind: Failure, overflow: Overflow | None) -> str:
    match kind:
        case Failure.UNREACHABLE:
            return _("The engine cannot be reached.")
        case Failure.AUTH:
            return _("The engine does not accept Parley’s key. An admin can correct it.")
        case Failure.UNKNOWN_MODEL:
            return _("The engine does not have this model any more.")
        case Failure.OVERFLOW:
            return _overflow_sentence(overflow or Overflow())
        case Failure.BAD_REQUEST:
            return _("The engine refused the request.")
        case Failure.OVERLOADED:
            return _("The engine is too busy to take this question.")
        case Failure.LOADING:
            return _("The model is still starting.")
        case Failure.TIMEOUT:
            return _("The engine took too long.")
        case Failure.DEAD:
            return _("The engine reported a fault of its own.")
        case Failure.CUT:
            return _("The engine broke off before the end of the answer.")
        case Failure.NONSENSE:
            return _("What came back was not an engine’s answer.")
        case Failure.EMPTY:
            return _("The engine sent no text.")


def _overflow_sentence(overflow: Overflow) -> str:
    over = (overflow.prompt_tokens or 0) - (overflow.window or 0)
    numbers = {"window": f"{overflow.window or 0:,}", "over": f"{over:,}"}
    if overflow.answer_only:
        return _("The longest answer allowed here does not fit this model. An admin can lower it.")
    if overflow.window and overflow.prompt_tokens and not overflow.at_least:
        return _("This is too long for the model: over by %(over)s tokens.") % numbers
    if overflow.window:
        return _("This conversation is longer than the %(window)s tokens the model can read.") % numbers
    return _("This conversation is longer than the model can read.")


def _json(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _strings(*values: object) -> tuple[str, ...]:
    return tuple(value for value in values if isinstance(value, str))


def _status(code: object) -> int | None:
    return code if type(code) is int and 400 <= code <= 599 else None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 < value < 1_000_000_000 else None

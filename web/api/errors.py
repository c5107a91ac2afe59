"""Every failure of the API in OpenAI's shape, so that the clients people use know what to do about it.

    {"error": {"message": "…", "type": "invalid_request_error", "param": "messages[0].content", "code": null}}

Whatever an engine said stays in the log. What is told is our own sentence, or nothing but the kind of failure.
"""

import math
from dataclasses import dataclass

import orjson
from starlette.responses import Response
from starlette.types import Scope

from backend.core.errors import AppError, BadInput, Forbidden, NotSignedIn, TooMany
from backend.core.i18n import _
from backend.engines.events import EngineFailed, Failure
from backend.engines.registry import NoEngineAvailable

PREFIX = "/v1/"
_BUSY_SECONDS = 5  # after which to come again, where nobody said so
_LONGEST_RETRY = 300  # an engine may ask for hours; who comes back after minutes loses nothing

_INVALID = "invalid_request_error"
_OURS = "server_error"


class InvalidKey(NotSignedIn):
    """No key, or none that works."""


class OutOfScope(Forbidden):
    """A key that works, and not for this."""


class Refused(BadInput):
    """A request that cannot be answered as it is; `param` is the field."""

    status = 400

    def __init__(self, sentence: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(sentence)
        self.param = param
        self.code = code


class ModelNotFound(Refused):
    """There is no such model, or not for this person: the two look alike."""

    status = 404

    def __init__(self, name: str) -> None:
        sentence = _("The model “{name}” does not exist, or you may not use it. GET /v1/models lists yours.")
        super().__init__(sentence.format(name=name), param="model", code="model_not_found")


class TooSlow(BadInput):
    """The body of a request did not come."""

    status = 408


@dataclass(frozen=True)
class Problem:
    """What a client is told."""

    status: int
    message: str
    type: str
    code: str | None = None
    param: str | None = None
    retry_after: int | None = None

    def body(self) -> bytes:
        said = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return orjson.dumps({"error": said})

    def reply(self) -> Response:
        headers = {}
        if self.retry_after is not None:
            headers["retry-after"] = str(min(self.retry_after, _LONGEST_RETRY))
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return Response(self.body(), self.status, headers, "application/json")


def is_for(scope: Scope) -> bool:
    """Whether it is a program that asks, and not a browser."""
    path: str = scope["path"]
    return path.startswith(PREFIX)


def problem_of(error: Exception) -> Problem:
    """Of an expected failure; anything else is a fault of ours, of which nothing is told."""
    if isinstance(error, EngineFailed):
        return _of_engine(error)
    if isinstance(error, NoEngineAvailable):
        return _busy(503, str(error), "engine_unavailable", error.retry_after)
    if isinstance(error, Refused):
        return Problem(error.status, str(error), _INVALID, error.code, error.param)
    if isinstance(error, InvalidKey):
        return Problem(401, str(error), "authentication_error", "invalid_api_key")
    if isinstance(error, OutOfScope):
        return Problem(403, str(error), "permission_error", "insufficient_permissions")
    if isinstance(error, TooMany):
        return _busy(429, str(error), "rate_limit_exceeded", error.retry_after, kind="rate_limit_error")
    if isinstance(error, AppError):
        return _of_app(error)
    return Problem(500, _("Something went wrong on our side."), _OURS, "server_error")


def _of_app(error: AppError) -> Problem:
    """What pages raise as well: their sentences speak of pages, so some get another one here."""
    match error.status:
        case 404:
            return Problem(404, _("There is nothing at this address."), _INVALID, "unknown_url")
        case 405:
            return Problem(405, _("This address does not take that method."), _INVALID, "method_not_allowed")
        case 413:
            return Problem(413, _("The request is too large."), _INVALID, "request_too_large")
        case 503:
            return _busy(503, str(error), "unavailable", error.retry_after)
        case status if status < 500:
            return Problem(status, str(error), _INVALID)
    return Problem(error.status, _("Something went wrong on our side."), _OURS, "server_error")


def _busy(status: int, sentence: str, code: str, after: float | None, *, kind: str = _OURS) -> Problem:
    return Problem(status, sentence, kind, code, retry_after=math.ceil(after) if after else _BUSY_SECONDS)


def _of_engine(failure: EngineFailed) -> Problem:
    sentence = str(failure)
    match failure.kind:
        case Failure.OVERFLOW:
            only_answer = failure.overflow is not None and failure.overflow.answer_only
            param = "max_tokens" if only_answer else "messages"
            return Problem(400, sentence, _INVALID, "context_length_exceeded", param)
        case Failure.BAD_REQUEST:
            return Problem(400, sentence, _INVALID, "engine_refused")
        case Failure.OVERLOADED | Failure.LOADING | Failure.UNREACHABLE:
            return _busy(503, sentence, f"engine_{failure.kind.value}", failure.retry_after)
        case Failure.TIMEOUT:
            return Problem(504, sentence, _OURS, "engine_timeout")
    return Problem(502, sentence, _OURS, "engine_failed")

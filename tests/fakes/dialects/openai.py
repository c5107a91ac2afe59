"""Hosted services: strict about fields, `usage: null` on every chunk, and something random in each delta."""

import secrets
from typing import TYPE_CHECKING, ClassVar

from backend.engines.kinds import Kind
from tests.fakes import tokens
from tests.fakes.asked import Json
from tests.fakes.dialects.vllm import VLLM
from tests.fakes.script import Break, Fault, Status, event

if TYPE_CHECKING:
    from tests.fakes.engine import FakeEngine


def complaint(status: int, message: str, kind: str, code: str | None = None, **headers: str) -> Status:
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return Status(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


class Plain(VLLM):
    """A server that nobody knows. Some vendors send comments before the first word, and know no reasoning."""

    kind = Kind.OPENAI
    owner = "somebody"
    counts_cached = False
    no_key = complaint(401, "Incorrect API key provided: sk-12*****89.", "invalid_request_error", "invalid_api_key")
    busy = complaint(429, "Rate limit reached for requests", "requests", "rate_limit_exceeded", Retry_After="7")
    known: frozenset[str] | None = frozenset(
        {
            "model", "messages", "max_tokens", "temperature", "top_p", "stop", "seed", "stream", "stream_options",
            "response_format", "reasoning_effort", "add_generation_prompt", "continue_final_message",
        }
    )  # fmt: skip

    def unknown_model(self, engine: "FakeEngine", body: Json) -> Status | None:
        return None if body.get("model") in engine.models else self._no_model(body.get("model"))

    def _no_model(self, name: object) -> Status:
        message = f"The model `{name}` does not exist or you do not have access to it."
        return complaint(404, message, "invalid_request_error", "model_not_found")

    def malformed(self, _engine: "FakeEngine", _body: Json) -> Status | None:
        return None

    def too_long(self, engine: "FakeEngine", body: Json) -> Status | None:
        count = len(tokens.encode_body(body))
        return None if count < engine.window else self._too_long(count, engine.window)

    def _too_long(self, count: int, window: int) -> Status:
        message = (
            f"This model's maximum context length is {window} tokens. However, your messages resulted in {count} "
            "tokens. Please reduce the length of the messages."
        )
        return complaint(400, message, "invalid_request_error", "context_length_exceeded")

    def refusal(self, status: int, message: str, kind: str = "invalid_request_error") -> Status:
        return complaint(status, message, kind)

    def refusals(self, engine: "FakeEngine") -> dict[str, Status]:
        quota = "You exceeded your current quota, please check your plan and billing details."
        return {
            "auth": self.no_key,
            "bad request": complaint(429, quota, "insufficient_quota", "insufficient_quota"),
            "dead": complaint(500, "The server had an error while processing your request.", "server_error"),
            "overflow": self._too_long(9_000, engine.window),
            "overloaded": self.busy,
            "unknown model": self._no_model("nope"),
        }

    def page(self, _engine: "FakeEngine", _method: str, _path: str, _raw: bytes) -> Status | None:
        return None

    def cards(self, engine: "FakeEngine") -> list[Json]:
        return [{"id": name, "object": "model", "created": 1, "owned_by": self.owner} for name in engine.models]

    def opening(self, common: Json) -> bytes:
        return b": PROCESSING\n\n" + super().opening(common)

    def last_delta(self) -> Json:
        return {}

    def chunk(self, common: Json, delta: Json, reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**common, "choices": [choice], "usage": None}

    def fault(self, fault: Fault) -> list[bytes | Break]:
        return [event({"error": {"message": fault.message, "type": "server_error", "param": None, "code": None}})]


class Hosted(Plain):
    kind = Kind.HOSTED
    owner = "openai"
    signature: ClassVar = {"server": "cloudflare", "openai-processing-ms": "12", "x-request-id": "req_1"}
    known = frozenset(
        {
            "model", "messages", "max_completion_tokens", "temperature", "top_p", "stop", "seed", "stream",
            "stream_options", "response_format", "reasoning_effort", "store",
        }
    )  # fmt: skip

    def malformed(self, _engine: "FakeEngine", body: Json) -> Status | None:
        if body.get("store") is not False:
            return complaint(400, "what people write would be kept", "invalid_request_error")
        return None

    def chunk(self, common: Json, delta: Json, reason: str | None = None) -> Json:
        return super().chunk(common, delta, reason) | {"obfuscation": secrets.token_hex(3)}

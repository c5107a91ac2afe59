"""SGLang: any name is answered, errors are flat, and reasoning has the longer key, present even when it is null."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from backend.engines.kinds import Kind
from tests.fakes import tokens
from tests.fakes.asked import Json
from tests.fakes.dialects.vllm import VLLM
from tests.fakes.script import DONE, Break, Fault, Status

if TYPE_CHECKING:
    from tests.fakes.engine import FakeEngine


def flat(status: int, message: str, kind: str = "BadRequestError") -> Status:
    return Status(status, {"object": "error", "message": message, "type": kind, "param": None, "code": status})


class SGLang(VLLM):
    kind = Kind.SGLANG
    owner = "sglang"
    version = "0.5.23"
    reasoning = "reasoning_content"
    busy = flat(503, "The request queue is full.", "Service Unavailable")

    def refuses_key(self, engine: "FakeEngine", path: str, headers: Mapping[str, str]) -> Status | None:
        if path.startswith(("/health", "/ready", "/metrics")) or engine.api_key is None:
            return None
        return None if headers.get("authorization") == f"Bearer {engine.api_key}" else self.no_key

    def unknown_model(self, _engine: "FakeEngine", _body: Json) -> Status | None:
        return None

    def too_long(self, engine: "FakeEngine", body: Json) -> Status | None:
        count = len(tokens.encode_body(body))
        if count < engine.window:
            return None
        return flat(
            400, f"The input ({count} tokens) is longer than the model's context length ({engine.window} tokens)."
        )

    def refusal(self, status: int, message: str, kind: str = "BadRequestError") -> Status:
        return flat(status, message, kind)

    def refusals(self, engine: "FakeEngine") -> dict[str, Status]:
        long = f"The input (9000 tokens) is longer than the model's context length ({engine.window} tokens)."
        return {
            "auth": self.no_key,
            "bad request": flat(400, "temperature must be non-negative", "Bad Request"),
            "dead": flat(500, "Internal server error: scheduler died", "InternalServerError"),
            "overflow": flat(400, long),
            "overloaded": self.busy,
        }

    def page(self, engine: "FakeEngine", method: str, path: str, raw: bytes) -> Status | None:
        match method, path:
            case "GET", "/server_info":
                return Status(200, {"version": engine.version, "model_path": engine.weights})
            case "GET", "/model_info":
                return Status(200, {"model_path": engine.weights})
            case "GET", "/version" | "/is_sleeping":
                return None
            case "GET", "/api/tags":  # it imitates Ollama here
                return Status(200, {"models": [{"name": name, "digest": ""} for name in engine.models]})
        return super().page(engine, method, path, raw)

    def chunk(self, common: Json, delta: Json, reason: str | None = None) -> Json:
        choice: Json = {"index": 0, "delta": {"reasoning_content": None, **delta}, "finish_reason": reason}
        if reason is not None:
            choice["matched_stop"] = None
        return {**common, "choices": [choice]}

    def fault(self, fault: Fault) -> list[bytes | Break]:
        error = {"object": "error", "message": fault.message, "type": "InternalServerError", "param": None}
        return [self.frame({"error": error | {"code": fault.code}}), DONE]

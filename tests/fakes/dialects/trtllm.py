"""TensorRT-LLM: forbids what it does not know, ends its frames with a space, and when it fails it just hangs up."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from backend.engines.kinds import Kind
from tests.fakes import tokens
from tests.fakes.asked import Json
from tests.fakes.dialects.sglang import SGLang, flat
from tests.fakes.script import HANG_UP, Break, Fault, Status, dumps

if TYPE_CHECKING:
    from tests.fakes.engine import FakeEngine


class TRTLLM(SGLang):
    kind = Kind.TRTLLM
    owner = "tensorrt_llm"
    version = "1.3.0rc2"
    known = frozenset(
        {
            "messages", "model", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p",
            "seed", "stop", "stream", "stream_options", "response_format", "reasoning_effort", "chat_template_kwargs",
            "user", "add_generation_prompt", "cache_salt", "priority",
        }
    )  # fmt: skip
    busy = flat(500, "not seen", "InternalServerError")

    def refuses_key(self, engine: "FakeEngine", path: str, headers: Mapping[str, str]) -> Status | None:
        return None  # it has no keys

    def unknown_fields(self, body: Json) -> Status | None:
        if body.get("priority") is not None and not 0 <= body["priority"] <= 1:
            return flat(400, "priority: Input should be less than or equal to 1")
        return super().unknown_fields(body)

    def too_long(self, engine: "FakeEngine", body: Json) -> Status | None:
        count = len(tokens.encode_body(body))
        if count < engine.window:
            return None
        return flat(
            400, f"The sum of prompt length ({count}) exceeds the model's maximum context length of {engine.window}."
        )

    def refusals(self, engine: "FakeEngine") -> dict[str, Status]:
        gone = b"LLM is unavailable. Please check the server logs for more details."
        return {
            "bad request": flat(400, "Extra inputs are not permitted: include_reasoning"),
            "dead": Status(503, gone, {"content-type": "text/plain"}),
            "overflow": flat(400, f"The prompt exceeds the model's maximum context length of {engine.window}."),
        }

    def page(self, engine: "FakeEngine", method: str, path: str, raw: bytes) -> Status | None:
        match method, path:
            case "GET", "/health":
                return self.refusals(engine)["dead"] if engine.is_dead else Status(200)
            case "GET", "/version":
                return Status(200, {"version": engine.version})
            case "GET", "/prometheus/metrics":
                return Status(200, b"trtllm_kv_cache_utilization 0.5\n", {"content-type": "text/plain"})
        return None

    def cards(self, engine: "FakeEngine") -> list[Json]:
        return [{"id": name, "object": "model", "created": 1, "owned_by": self.owner} for name in engine.models]

    def chunk(self, common: Json, delta: Json, reason: str | None = None) -> Json:
        return {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    def frame(self, payload: Json) -> bytes:
        return b"data: " + dumps(payload) + b" \n\n"

    def fault(self, _fault: Fault) -> list[bytes | Break]:
        return [HANG_UP]

"""TGI: narrow bounds, errors as two strings, an empty id, and a role with every piece of text."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from backend.engines.kinds import Kind
from tests.fakes import tokens
from tests.fakes.asked import Asked, Json
from tests.fakes.dialects.vllm import VLLM
from tests.fakes.script import DONE, Break, Fault, Status, event

if TYPE_CHECKING:
    from tests.fakes.engine import FakeEngine


def complaint(status: int, message: str, kind: str) -> Status:
    return Status(status, {"error": message, "error_type": kind})


class TGI(VLLM):
    kind = Kind.TGI
    version = "3.3.5"
    no_key = Status(401)
    busy = complaint(429, "Model is overloaded", "overloaded")
    counts_cached = False

    def refuses_key(self, engine: "FakeEngine", path: str, headers: Mapping[str, str]) -> Status | None:
        open_to_all = engine.api_key is None or path in ("/health", "/info", "/metrics")
        return None if open_to_all or headers.get("authorization") == f"Bearer {engine.api_key}" else self.no_key

    def unknown_model(self, _engine: "FakeEngine", _body: Json) -> Status | None:
        return None

    def malformed(self, _engine: "FakeEngine", body: Json) -> Status | None:
        if body.get("temperature") is not None and not body["temperature"] > 0:
            return complaint(422, "Input validation error: `temperature` must be strictly positive", "validation")
        if body.get("top_p") is not None and not 0 < body["top_p"] < 1:
            return complaint(422, "Input validation error: `top_p` must be > 0.0 and < 1.0", "validation")
        form = body.get("response_format")
        if form is not None and (form.get("type") not in ("json_object", "json", "regex") or "value" not in form):
            return complaint(422, "Failed to deserialize the JSON body: response_format", "validation")
        return None

    def too_long(self, engine: "FakeEngine", body: Json) -> Status | None:
        count = len(tokens.encode_body(body))
        return None if count < engine.window else self._too_long(count, engine.window)

    def _too_long(self, count: int, window: int) -> Status:
        words = f"`inputs` tokens + `max_new_tokens` must be <= {window}. Given: {count} `inputs` tokens and 0"
        return complaint(422, f"Input validation error: {words}", "validation")

    def refusals(self, engine: "FakeEngine") -> dict[str, Status]:
        return {
            "auth": self.no_key,
            "bad request": complaint(422, "Input validation error: `stop` supports up to 4 sequences", "validation"),
            "dead": complaint(424, "Request failed during generation: Server error: CUDA", "generation"),
            "overflow": self._too_long(9_000, engine.window),
            "overloaded": self.busy,
        }

    def page(self, engine: "FakeEngine", method: str, path: str, raw: bytes) -> Status | None:
        match method, path:
            case "GET", "/health":
                sick = complaint(503, "unhealthy", "healthcheck")
                return sick if engine.is_dead else Status(200)
            case "GET", "/info":
                return Status(200, self._info(engine))
            case "GET", "/metrics":
                return Status(200, f"tgi_queue_size {engine.waiting}\n".encode(), {"content-type": "text/plain"})
            case "POST", "/chat_tokenize":
                return self._tokenize(engine, json.loads(raw))
        return None

    def _info(self, engine: "FakeEngine") -> Json:
        return {
            "model_id": engine.models[0],
            "sha": engine.weights,
            "version": engine.version,
            "max_input_tokens": engine.window - 1,
            "max_total_tokens": engine.window,
        }

    def _tokenize(self, engine: "FakeEngine", body: Json) -> Status:
        engine.counted.append(body)
        found = [{"id": number, "text": "", "start": 0, "stop": 0} for number in tokens.encode_body(body)]
        return Status(200, {"tokenize_response": found, "templated_text": ""})

    def cards(self, engine: "FakeEngine") -> list[Json]:
        return [{"id": name, "object": "model", "created": 0, "owned_by": name} for name in engine.models]

    def common(self, engine: "FakeEngine", asked: Asked) -> Json:
        return super().common(engine, asked) | {"id": ""}

    def opening(self, _common: Json) -> bytes:
        return b""

    def thought(self, common: Json, text: str) -> bytes:
        """It has no parser: what models think stands in the text."""
        return self.word(common, f"<think>{text}</think>")

    def chunk(self, common: Json, delta: Json, reason: str | None = None) -> Json:
        delta = {"role": "assistant", "content": "", **delta}
        reason = "stop_sequence" if reason == "stop" else reason
        return {**common, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}

    def fault(self, fault: Fault) -> list[bytes | Break]:
        return [event({"error": {"message": fault.message, "http_status_code": fault.code}}), DONE]

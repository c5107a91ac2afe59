"""llama.cpp: one model, or a router for several; it pings, times its answers, and after an error sends no `[DONE]`."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from backend.engines.kinds import Kind
from tests.fakes import tokens
from tests.fakes.asked import Json
from tests.fakes.dialects.vllm import VLLM
from tests.fakes.script import Break, Fault, Status, event

if TYPE_CHECKING:
    from tests.fakes.engine import FakeEngine


def complaint(status: int, message: str, kind: str = "invalid_request_error", **more: object) -> Status:
    return Status(status, {"error": {"code": status, "message": message, "type": kind, **more}})


class LlamaCpp(VLLM):
    kind = Kind.LLAMACPP
    version = "b11434-6f41b9c1"
    reasoning = "reasoning_content"
    no_key = complaint(401, "Invalid API Key", "authentication_error")
    signature: ClassVar = {"server": "llama.cpp"}

    def refuses_key(self, engine: "FakeEngine", path: str, headers: Mapping[str, str]) -> Status | None:
        if path in ("/health", "/v1/health") or engine.api_key is None:
            return None
        given = (headers.get("authorization", "").removeprefix("Bearer "), headers.get("x-api-key"))
        return None if engine.api_key in given else self.no_key

    def unknown_model(self, engine: "FakeEngine", body: Json) -> Status | None:
        if len(engine.models) == 1 or body.get("model") in engine.models:
            return None
        return complaint(400, f"model '{body.get('model')}' not found")

    def malformed(self, engine: "FakeEngine", body: Json) -> Status | None:
        pictures = any(isinstance(message.get("content"), list) for message in body.get("messages", ()))
        if pictures and not engine.sees:
            return complaint(
                500,
                "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
                "server_error",
            )
        return None

    def disorder(self, engine: "FakeEngine", body: Json) -> Status | None:
        """Whatever a template says is a fault of the server."""
        if super().disorder(engine, body) is None:
            return None
        words = "Conversation roles must alternate user/assistant/user/assistant/..."
        return complaint(500, f"Error: Jinja Exception: {words}", "server_error")

    def too_long(self, engine: "FakeEngine", body: Json) -> Status | None:
        count = len(tokens.encode_body(body))
        return None if count < engine.window else self._too_long(count, engine.window)

    def _too_long(self, count: int, window: int) -> Status:
        message = f"request ({count} tokens) exceeds the available context size ({window} tokens), try increasing it"
        return complaint(400, message, "exceed_context_size_error", n_prompt_tokens=count, n_ctx=window)

    def refusals(self, engine: "FakeEngine") -> dict[str, Status]:
        return {
            "auth": self.no_key,
            "bad request": complaint(400, "Field 'max_tokens': expected a number"),
            "dead": complaint(500, "Compute error.", "server_error"),
            "loading": self.loading,
            "overflow": self._too_long(9_000, engine.window),
            "unknown model": complaint(400, "model 'nope' not found"),
        }

    def page(self, engine: "FakeEngine", method: str, path: str, raw: bytes) -> Status | None:
        match method, path:
            case "GET", "/health" | "/v1/health":
                return Status(200, {"status": "ok"})
            case "GET", "/props":
                return Status(200, self._props(engine))
            case "GET", "/models":
                return Status(200, self.models(engine))
            case "GET", "/metrics":
                numbers = (
                    f"llamacpp:requests_processing {engine.running}\nllamacpp:requests_deferred {engine.waiting}\n"
                )
                return Status(200, numbers.encode(), {"content-type": "text/plain; version=0.0.4"})
            case "POST", "/v1/chat/completions/input_tokens":
                return self._count(engine, json.loads(raw))
            case "POST", "/models/load" | "/models/unload" if len(engine.models) > 1:
                return self._move(engine, json.loads(raw)["model"], loads=path == "/models/load")
        return complaint(404, "File Not Found", "not_found_error")

    def _props(self, engine: "FakeEngine") -> Json:
        return {
            "build_info": engine.version,
            "model_path": engine.weights,
            "modalities": {"vision": engine.sees, "audio": False},
            "total_slots": engine.seats or 4,
        }

    def _count(self, engine: "FakeEngine", body: Json) -> Status:
        engine.counted.append(body)
        return Status(200, {"object": "response.input_tokens", "input_tokens": len(tokens.encode_body(body))})

    def _move(self, engine: "FakeEngine", name: str, *, loads: bool) -> Status:
        if name not in engine.models:
            return complaint(404, f"model '{name}' not found", "not_found_error")
        (engine.loaded.add if loads else engine.loaded.discard)(name)
        return Status(200, {"success": True})

    def models(self, engine: "FakeEngine") -> Json:
        cards = self.cards(engine)
        return {"models": [{"name": card["id"]} for card in cards], "object": "list", "data": cards}

    def cards(self, engine: "FakeEngine") -> list[Json]:
        return [self._card(engine, name) for name in engine.models]

    def _card(self, engine: "FakeEngine", name: str) -> Json:
        card: Json = {"id": name, "object": "model", "created": 1, "owned_by": "llamacpp"}
        if len(engine.models) == 1:
            return card | {"meta": {"n_ctx": engine.window, "n_ctx_train": 131_072}}
        state = "loaded" if name in engine.loaded else "unloaded"
        meta = {"meta": {"n_ctx": engine.window}} if state == "loaded" else {}
        return card | meta | {"path": f"/models/{name}.gguf", "status": {"value": state}}

    def opening(self, common: Json) -> bytes:
        return b":\n\n" + self.frame(self.chunk(common, {"role": "assistant", "content": None}))

    def last_delta(self) -> Json:
        return {}

    def chunk(self, common: Json, delta: Json, reason: str | None = None) -> Json:
        choice = {"finish_reason": reason, "index": 0, "delta": delta}
        return {"choices": [choice], **common, "system_fingerprint": "b11434-6f41b9c1"}

    def usage_frame(self, common: Json, usage: Json) -> bytes:
        return event({"choices": [], **common, "usage": usage, "timings": {"cache_n": 0, "predicted_ms": 12.5}})

    def fault(self, fault: Fault) -> list[bytes | Break]:
        return [event({"error": {"code": fault.code, "message": fault.message, "type": "server_error"}})]

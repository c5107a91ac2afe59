"""Ollama: cuts what is too long without a word, loads models by itself, and on a failure ends with an empty delta."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from backend.engines.kinds import Kind
from tests.fakes.asked import Json
from tests.fakes.dialects.vllm import VLLM
from tests.fakes.script import Break, Fault, Status

if TYPE_CHECKING:
    from tests.fakes.engine import FakeEngine


def complaint(status: int, message: str, kind: str) -> Status:
    return Status(status, {"error": {"message": message, "type": kind, "param": None, "code": None}})


class Ollama(VLLM):
    kind = Kind.OLLAMA
    version = "0.14.2"
    busy = complaint(503, "server busy, please try again.  maximum pending requests exceeded", "api_error")
    counts_cached = False

    def refuses_key(self, _engine: "FakeEngine", _path: str, _headers: Mapping[str, str]) -> Status | None:
        return None  # a key is ignored

    def unknown_model(self, engine: "FakeEngine", body: Json) -> Status | None:
        if body.get("model") in engine.models:
            engine.loaded.add(body["model"])
            return None
        return complaint(404, f"model '{body.get('model')}' not found", "not_found_error")

    def malformed(self, _engine: "FakeEngine", _body: Json) -> Status | None:
        return None

    def too_long(self, _engine: "FakeEngine", _body: Json) -> Status | None:
        return None  # the oldest turns are dropped

    def refusals(self, _engine: "FakeEngine") -> dict[str, Status]:
        return {
            "bad request": complaint(400, "invalid temperature", "invalid_request_error"),
            "dead": complaint(500, "llama runner process has terminated: exit status 2", "api_error"),
            "overflow": complaint(400, "input length exceeds the context length", "invalid_request_error"),
            "overloaded": self.busy,
            "unknown model": complaint(404, "model 'nope' not found", "not_found_error"),
        }

    def page(self, engine: "FakeEngine", method: str, path: str, raw: bytes) -> Status | None:
        match method, path:
            case "GET", "/":
                return Status(200, b"Ollama is running", {"content-type": "text/plain"})
            case "GET", "/api/version":
                return Status(200, {"version": engine.version})
            case "GET", "/api/tags":
                entries = [{"name": name, "digest": f"{engine.weights}:{name}"} for name in engine.models]
                return Status(200, {"models": entries})
            case "GET", "/api/ps":
                return Status(200, {"models": [self._running(engine, name) for name in sorted(engine.loaded)]})
            case "POST", "/api/show":
                return Status(200, self._shown(engine))
            case "POST", "/api/generate":
                return self._generate(engine, json.loads(raw))
        return Status(404, b"404 page not found", {"content-type": "text/plain"})

    def _running(self, engine: "FakeEngine", name: str) -> Json:
        forever = name in engine.kept
        return {
            "name": name,
            "context_length": engine.window,
            "size_vram": 5_137_025_024,
            "expires_at": "2318-03-12T10:09:06.123456789Z" if forever else "2026-12-04T14:38:31.837538+01:00",
        }

    def _shown(self, engine: "FakeEngine") -> Json:
        return {
            "parameters": 'stop    "<|im_end|>"',
            "model_info": {"general.architecture": "llama", "llama.context_length": 131_072},
            "capabilities": ["completion", *(["vision"] if engine.sees else [])],
        }

    def _generate(self, engine: "FakeEngine", body: Json) -> Status:
        name, keep = body["model"], body.get("keep_alive", "5m")
        if name not in engine.models:
            return Status(404, {"error": f"model '{name}' not found"})
        (engine.loaded.discard if keep == 0 else engine.loaded.add)(name)
        (engine.kept.add if keep == -1 else engine.kept.discard)(name)
        return Status(
            200, {"model": name, "response": "", "done": True, "done_reason": "unload" if keep == 0 else "load"}
        )

    def cards(self, engine: "FakeEngine") -> list[Json]:
        return [{"id": name, "object": "model", "created": 1, "owned_by": "library"} for name in engine.models]

    def last_delta(self) -> Json:
        return {}

    def chunk(self, common: Json, delta: Json, reason: str | None = None) -> Json:
        delta = {"content": "", **delta} if reason is None else delta
        return {
            **common,
            "system_fingerprint": "fp_ollama",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        }

    def fault(self, _fault: Fault) -> list[bytes | Break]:
        empty = {"index": 0, "delta": {"content": ""}, "finish_reason": None}
        return [self.frame({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "", "choices": [empty]})]

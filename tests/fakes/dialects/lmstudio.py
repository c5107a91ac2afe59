"""LM Studio: lists what it has on disk, and tells of a failure in an event of its own, or not at all."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from backend.engines.kinds import Kind
from tests.fakes import tokens
from tests.fakes.asked import Json
from tests.fakes.dialects.vllm import VLLM
from tests.fakes.script import Break, Fault, Status, dumps

if TYPE_CHECKING:
    from tests.fakes.engine import FakeEngine


class LMStudio(VLLM):
    kind = Kind.LMSTUDIO
    owner = "organization_owner"
    counts_cached = False

    def refuses_key(self, engine: "FakeEngine", _path: str, headers: Mapping[str, str]) -> Status | None:
        right = engine.api_key is None or headers.get("authorization") == f"Bearer {engine.api_key}"
        return None if right else self.no_key

    no_key = Status(401, {"error": {"message": "Malformed LM Studio API token provided", "type": "invalid_request"}})

    def unknown_model(self, engine: "FakeEngine", body: Json) -> Status | None:
        if body.get("model") in engine.models:
            engine.loaded.add(body["model"])
            return None
        return Status(404, {"error": {"message": f'Model "{body.get("model")}" not found', "code": "model_not_found"}})

    def malformed(self, _engine: "FakeEngine", body: Json) -> Status | None:
        form = (body.get("response_format") or {}).get("type")
        if form in (None, "text", "json_schema"):
            return None
        return Status(400, {"error": "'response_format.type' must be 'json_schema' or 'text'"})

    def too_long(self, engine: "FakeEngine", body: Json) -> Status | None:
        count = len(tokens.encode_body(body))
        message = (
            f"The number of tokens to keep from the initial prompt is greater than the context length (n_keep: {count}"
            f">= n_ctx: {engine.window}). Try to load the model with a larger context length."
        )
        return Status(400, {"error": message}) if count >= engine.window else None

    def refusals(self, engine: "FakeEngine") -> dict[str, Status]:
        return {
            "auth": self.no_key,
            "bad request": Status(400, {"error": "'messages' field is required"}),
            "dead": Status(400, {"error": 'Failed to load model "a". Error: insufficient system resources.'}),
            "overflow": Status(400, {"error": f"Reached context length of {engine.window} tokens with this model."}),
            "unknown model": Status(404, {"error": {"message": 'Model "nope" not found', "code": "model_not_found"}}),
        }

    def page(self, engine: "FakeEngine", method: str, path: str, raw: bytes) -> Status | None:
        match method, path:
            case "GET", "/api/v1/models":
                return Status(200, {"models": [self._described(engine, name) for name in engine.models]})
            case "POST", "/api/v1/models/load":
                engine.loaded.add(json.loads(raw)["model"])
                return Status(200, {"status": "loaded"})
            case "POST", "/api/v1/models/unload":
                engine.loaded.discard(json.loads(raw)["instance_id"].removesuffix(":1"))
                return Status(200, {})
        # It says so with 200, and notes the mistake in its own log.
        return Status(200, {"error": f"Unexpected endpoint or method. ({method} {path})"})

    def _described(self, engine: "FakeEngine", name: str) -> Json:
        instance = {"id": f"{name}:1", "config": {"context_length": engine.window, "parallel": 4}}
        return {
            "type": "llm",
            "key": name,
            "loaded_instances": [instance] if name in engine.loaded else [],
            "max_context_length": 131_072,
            "capabilities": {"vision": engine.sees, "trained_for_tool_use": False},
        }

    def cards(self, engine: "FakeEngine") -> list[Json]:
        return [{"id": name, "object": "model", "owned_by": self.owner} for name in engine.models]

    def last_delta(self) -> Json:
        return {}

    def fault(self, fault: Fault) -> list[bytes | Break]:
        told = {"error": {"message": fault.message}, "message": fault.message}
        return [b"event: error\ndata: " + dumps(told) + b"\n\n"]

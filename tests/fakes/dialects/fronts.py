"""Routers, with a vLLM or an SGLang behind them: their own pages, and their own words when they fail."""

from typing import TYPE_CHECKING, ClassVar

from backend.engines.kinds import Kind
from tests.fakes.asked import Json
from tests.fakes.dialects.sglang import SGLang
from tests.fakes.dialects.vllm import VLLM
from tests.fakes.script import Status

if TYPE_CHECKING:
    from tests.fakes.engine import FakeEngine

_TEXT = {"content-type": "text/plain; charset=utf-8"}


class VllmRouter(VLLM):
    """It passes on to an engine what it does not know itself."""

    kind = Kind.VLLM_ROUTER

    def refusals(self, engine: "FakeEngine") -> dict[str, Status]:
        return super().refusals(engine) | {
            "overloaded": Status(429),
            "queue": Status(408),
            "unreachable": Status(503, b"No available workers (all circuits open or unhealthy)", _TEXT),
            "engine away": Status(500, b"Request failed: error sending request for url (http://gpu-1:8000/v1)", _TEXT),
        }

    def page(self, engine: "FakeEngine", method: str, path: str, raw: bytes) -> Status | None:
        match method, path:
            case "GET", "/list_workers":
                return Status(200, {"urls": ["http://gpu-1:8000", "http://gpu-2:8000"]})
            case "GET", "/workers":
                return Status(200, {"workers": [], "total": 0, "stats": {}})
            case "GET", "/health" if engine.is_dead:  # one of them; the others answer
                return Status(503, b'Unhealthy servers: ["http://gpu-1:8000"]', _TEXT)
            case "GET", "/health":
                return Status(200, b"All servers healthy", _TEXT)
        return super().page(engine, method, path, raw)


class SMG(SGLang):
    """The SGLang Model Gateway has its own list of models, in few words, and passes nothing on."""

    kind = Kind.SMG
    owner = "local"

    def refusals(self, engine: "FakeEngine") -> dict[str, Status]:
        none = {
            "error": {"code": "no_available_workers", "message": "No available workers", "type": "Service Unavailable"}
        }
        return super().refusals(engine) | {"overloaded": Status(429), "unreachable": Status(503, none)}

    def page(self, _engine: "FakeEngine", method: str, path: str, _raw: bytes) -> Status | None:
        match method, path:
            case "GET", "/workers":
                return Status(200, {"workers": [{"url": "http://gpu-1:30000", "is_healthy": True}], "total": 1})
            case "GET", "/health":
                return Status(200, b"OK", _TEXT)
        return Status(404)

    def cards(self, engine: "FakeEngine") -> list[Json]:
        return [{"id": name, "object": "model", "owned_by": self.owner} for name in engine.models]


class ProductionStack(VLLM):
    kind = Kind.PRODUCTION_STACK

    def unknown_model(self, engine: "FakeEngine", body: Json) -> Status | None:
        return None if body.get("model") in engine.models else self._no_model(body.get("model"))

    def _no_model(self, name: object) -> Status:
        words = f"Model '{name}' not found. Available models can be listed at /v1/models."
        return Status(404, {"error": words})

    def refusals(self, engine: "FakeEngine") -> dict[str, Status]:
        return super().refusals(engine) | {
            "loading": Status(503, {"error": "Model 'fake-8b' is temporarily unavailable. Please try again later."}),
            "unknown model": self._no_model("nope"),
        }

    def page(self, engine: "FakeEngine", method: str, path: str, raw: bytes) -> Status | None:
        match method, path:
            case "GET", "/engines":
                return Status(200, [{"engine_id": "a", "serving_models": engine.models, "created": 1}])
            case "GET", "/health":
                return Status(200, {"status": "healthy"})
        return super().page(engine, method, path, raw)

    def cards(self, engine: "FakeEngine") -> list[Json]:
        """Without root and context, which stay with the engines."""
        return [
            {"id": name, "object": "model", "created": 1, "owned_by": "vllm", "parent": None} for name in engine.models
        ]


class LlmD(VLLM):
    kind = Kind.LLMD
    signature: ClassVar = {"server": "envoy", "x-session-token": "Z3B1LTI="}

    def refusals(self, engine: "FakeEngine") -> dict[str, Status]:
        dropped = {"x-llm-d-request-dropped-reason": "rejected-saturated", **_TEXT}
        return super().refusals(engine) | {
            "overloaded": Status(429, b"inference error: InferencePoolResourceExhausted - system saturated", dropped),
            "unreachable": Status(503, b"no healthy upstream", _TEXT),
        }

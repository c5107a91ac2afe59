"""What a fake engine does like vLLM 0.32; the other kinds say where they differ from it."""

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from backend.engines.kinds import Kind
from tests.fakes import refusals, tokens
from tests.fakes.asked import Asked, Json
from tests.fakes.script import DONE, Break, Fault, Status, event, refusal

if TYPE_CHECKING:
    from tests.fakes.engine import FakeEngine


class VLLM:
    kind = Kind.VLLM
    owner = "vllm"
    version = "0.32.0"
    reasoning = "reasoning"
    known: frozenset[str] | None = None
    """The fields it takes; None: what it does not know it passes over."""
    counts_cached = True
    signature: ClassVar[Mapping[str, str]] = {"server": "uvicorn"}
    """Headers of everything it says."""

    # Before an answer

    def refuses_key(self, engine: "FakeEngine", path: str, headers: Mapping[str, str]) -> Status | None:
        if engine.api_key is None or not path.startswith("/v1/"):
            return None
        return None if headers.get("authorization") == f"Bearer {engine.api_key}" else self.no_key

    no_key = Status(401, {"error": "Unauthorized"})
    loading = refusals.LOADING
    busy = refusals.BUSY

    def complaint(self, engine: "FakeEngine", body: Json) -> Status | None:
        """What is refused, in its order."""
        return (
            self.unknown_fields(body)
            or self.unknown_model(engine, body)
            or self.malformed(engine, body)
            or self.disorder(engine, body)
            or self.too_long(engine, body)
        )

    def unknown_fields(self, body: Json) -> Status | None:
        strange = sorted(body.keys() - self.known) if self.known is not None else []
        return self.refusal(400, f"Extra inputs are not permitted: {', '.join(strange)}") if strange else None

    def unknown_model(self, engine: "FakeEngine", body: Json) -> Status | None:
        name = body.get("model")
        if name is None or name in (*engine.models, *engine.adapters):
            return None
        return refusals.unknown_model(name, engine.models)

    def malformed(self, engine: "FakeEngine", body: Json) -> Status | None:
        return refusals.malformed(body, sees=engine.sees)

    def disorder(self, engine: "FakeEngine", body: Json) -> Status | None:
        return refusals.disorder(body["messages"], alternating=engine.alternating, system_role=engine.system_role)

    def too_long(self, engine: "FakeEngine", body: Json) -> Status | None:
        return refusals.too_long(body, engine.window)

    def refusal(self, status: int, message: str, kind: str = "BadRequestError") -> Status:
        return refusal(status, message, kind)

    def bad_json(self, raw: bytes) -> Status:
        return refusals.bad_json(raw)

    def refusals(self, engine: "FakeEngine") -> dict[str, Status]:
        """The errors it has before an answer begins, by what they are about."""
        long = refusals.too_long(
            {"messages": [{"role": "user", "content": "x" * 4 * (engine.window + 1)}]}, engine.window
        )
        assert long is not None
        scaling = Status(503, {"error": "The model is currently scaling. Please try again later."})
        dead = "EngineCore encountered an issue. See stack trace (above) for the root cause."
        return {
            "auth": self.no_key,
            "bad request": refusal(400, "temperature must be non-negative, got -1.0.", param="temperature"),
            "dead": refusal(500, dead, "InternalServerError"),
            "loading": scaling,
            "overflow": long,
            "overloaded": refusals.BUSY,
            "unknown model": refusals.unknown_model("nope", engine.models),
        }

    # Its pages

    def page(self, engine: "FakeEngine", method: str, path: str, raw: bytes) -> Status | None:
        match method, path:
            case "GET", "/health" | "/ping":
                return Status(500 if engine.is_dead else 200)
            case "GET", "/version":
                return Status(200, {"version": engine.version})
            case "GET", "/metrics":
                return Status(200, engine.metrics().encode(), {"content-type": "text/plain; version=1.0.0"})
            case "POST", "/tokenize":
                return self.tokenize(engine, json.loads(raw))
            case "POST", "/detokenize":
                return Status(200, {"prompt": tokens.decode(json.loads(raw)["tokens"])})
        return self.sleep(engine, method, path)

    def sleep(self, engine: "FakeEngine", method: str, path: str) -> Status | None:
        """Only in its development mode."""
        if not engine.dev_mode:
            return None
        match method, path:
            case "GET", "/is_sleeping":
                return Status(200, {"is_sleeping": engine.is_asleep})
            case "POST", "/sleep" | "/wake_up":
                engine.is_asleep = path == "/sleep"
                return Status(200)
        return None

    def models(self, engine: "FakeEngine") -> Json:
        return {"object": "list", "data": self.cards(engine)}

    def cards(self, engine: "FakeEngine") -> list[Json]:
        cards = [self.card(name, engine.weights, None, engine.window) for name in engine.models]
        return cards + [self.card(name, f"/adapters/{name}", engine.models[0], None) for name in engine.adapters]

    def card(self, name: str, root: str, parent: str | None, window: int | None) -> Json:
        now = int(time.time())
        permission = {"id": f"modelperm-{secrets.token_hex(8)}", "object": "model_permission", "created": now}
        return {
            "id": name,
            "object": "model",
            "created": now,
            "owned_by": self.owner,
            "root": root,
            "parent": parent,
            "max_model_len": window,
            "permission": [permission],
        }

    def tokenize(self, engine: "FakeEngine", body: Json) -> Status:
        engine.counted.append(body)
        found = tokens.encode_body(body) if "messages" in body else tokens.encode(body["prompt"])
        return Status(200, {"count": len(found), "max_model_len": engine.window, "tokens": found, "token_strs": None})

    # Its stream

    def common(self, engine: "FakeEngine", asked: Asked) -> Json:
        name = asked.headers.get("x-request-id") or secrets.token_hex(8)
        return {
            "id": f"chatcmpl-{name}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": engine.models[0],
        }

    def opening(self, common: Json) -> bytes:
        return self.frame(self.chunk(common, {"role": "assistant", "content": ""}))

    def word(self, common: Json, text: str) -> bytes:
        return self.frame(self.chunk(common, {"content": text}))

    def thought(self, common: Json, text: str) -> bytes:
        return self.frame(self.chunk(common, {self.reasoning: text}))

    def ending(self, common: Json, reason: str, usage: Json | None) -> bytes:
        ending = self.frame(self.chunk(common, self.last_delta(), reason))
        return ending + (self.usage_frame(common, usage) if usage else b"") + self.done

    done = DONE

    def last_delta(self) -> Json:
        return {"content": ""}

    def usage_frame(self, common: Json, usage: Json) -> bytes:
        return self.frame({**common, "choices": [], "usage": usage, "system_fingerprint": "vllm-fake"})

    def chunk(self, common: Json, delta: Json, reason: str | None = None) -> Json:
        choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        if reason is not None:
            choice["stop_reason"] = None
        return {**common, "choices": [{**choice, "token_ids": None}]}

    def frame(self, payload: Json) -> bytes:
        return event(payload)

    def fault(self, fault: Fault) -> Sequence[bytes | Break]:
        """What it sends when it fails in the middle of an answer, to the end."""
        error = {"message": fault.message, "type": "InternalServerError", "param": None, "code": fault.code}
        return [self.frame({"error": error}), DONE]

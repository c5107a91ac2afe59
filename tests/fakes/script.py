"""What a fake engine is told to send, step by step.

A script is a sequence of steps. One made of words (`str`, `Thought`) is wrapped the way its kind of engine does it, for
vLLM a role chunk first, then a chunk for each step, then finish, usage and `[DONE]`. A script that holds `bytes` is
sent exactly as it stands, and its end is the end of the response. Pauses, events to wait for and ways to break may
stand anywhere.
"""

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias


@dataclass(frozen=True)
class Thought:
    """A piece of reasoning, in the engine's own field."""

    text: str


@dataclass(frozen=True)
class Pause:
    seconds: float


class Break(Enum):
    """Ways a response ends badly."""

    RESET = auto()
    """The connection is reset in the middle of an HTTP chunk."""
    HANG_UP = auto()
    """The connection is closed in the middle of an HTTP chunk."""
    STALL = auto()
    """Nothing more is sent, and the connection stays open."""


RESET, HANG_UP, STALL = Break.RESET, Break.HANG_UP, Break.STALL


@dataclass(frozen=True)
class Fault:
    """The engine fails in the middle, in the words and in the way of its kind; what follows is not sent."""

    message: str = "CUDA out of memory"
    code: int = 500


Step: TypeAlias = str | bytes | Thought | Pause | Break | Fault | asyncio.Event | threading.Event


@dataclass(frozen=True)
class Status:
    """Instead of a stream, a plain HTTP answer, `after` so many seconds (for ever, for an engine that hangs)."""

    status: int
    body: bytes | Mapping[str, object] | list[object] = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    after: float = 0

    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else dumps(self.body)

    def all_headers(self) -> dict[str, str]:
        return {"content-type": "application/json", **self.headers}


Script: TypeAlias = Sequence[Step] | Status

HANG = Status(503, after=float("inf"))
"""Takes the request and never answers it."""


def dumps(payload: object) -> bytes:
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


def event(payload: object) -> bytes:
    return b"data: " + dumps(payload) + b"\n\n"


def T(text: str) -> bytes:  # noqa: N802 — scripts are full of it
    """One event with one piece of text and nothing else."""
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


def finish(reason: str = "stop") -> bytes:
    return event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})


def usage(prompt: int, completion: int) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return event({"choices": [], "usage": counts})


def error(message: str, kind: str = "InternalServerError", code: int | str | None = 500) -> bytes:
    return event({"error": {"message": message, "type": kind, "param": None, "code": code}})


def refusal(status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> Status:
    """An error before the stream, in vLLM's envelope."""
    return Status(status, {"error": {"message": message, "type": kind, "param": param, "code": status}})


def after(script: Sequence[Step], prefix: str) -> list[Step]:
    """What is left of `script` once `prefix` was said. One that does not begin so, or is exact, stays whole."""
    said = "".join(step for step in script if isinstance(step, str))
    if any(isinstance(step, bytes) for step in script) or not said.startswith(prefix):
        return list(script)
    steps = list(script)
    while steps and (prefix or isinstance(steps[0], Break)):  # what broke the first part off is over, too
        step = steps.pop(0)
        if isinstance(step, str):
            if len(step) > len(prefix):
                steps.insert(0, step[len(prefix) :])
            prefix = prefix[len(step) :]
    return steps


DONE = b"data: [DONE]\n\n"
END = finish() + DONE


def cut(script: bytes, pause: float = 0.02) -> list[Step]:
    """`script` in the writing of the cases: each `|` ends a write and waits 20 ms before the next."""
    return cut_at([piece for piece in script.split(b"|") if piece], pause)


def cut_at(pieces: Sequence[bytes], pause: float = 0.02) -> list[Step]:
    """One write for each piece, with a pause between them."""
    steps: list[Step] = []
    for piece in pieces:
        steps += [piece, Pause(pause)]
    return steps[:-1]

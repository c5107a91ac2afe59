"""An answer in OpenAI's shapes, put together from our own words: nothing an engine sent but text and numbers is in it.

What comes in one read of the engine leaves in one chunk, and all of a chunk but its text is made once for each answer.
So a token costs little more than being read.
"""

from collections.abc import Sequence
from typing import Final

import orjson

from backend.engines.events import Delta, Event, Finish, Reasoning, Usage

DONE: Final = b"data: [DONE]\n\n"
WAITING: Final = b": waiting\n\n"

_REASONS: Final = frozenset({"stop", "length", "content_filter"})


class Gathered:
    """What an engine said so far, as far as it is not text."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.ended_by: str | None = None
        self.written = 0  # characters, those of the reasoning among them

    @property
    def finish_reason(self) -> str:
        """In OpenAI's words; an engine's own are not handed on."""
        return self.ended_by if self.ended_by in _REASONS else "stop"

    def take(self, events: Sequence[Event]) -> list[Delta | Reasoning]:
        """The text among `events`; neighbours of one kind become one."""
        runs: list[Delta | Reasoning] = []
        pieces: list[str] = []
        kind: type[Delta] | type[Reasoning] = Delta
        for event in events:
            match event:
                case Delta() | Reasoning():
                    if type(event) is not kind:
                        if pieces:
                            runs.append(kind("".join(pieces)))
                        kind, pieces = type(event), []
                    pieces.append(event.text)
                case Usage():
                    self.usage = event
                case Finish():
                    self.ended_by = event.reason
        if pieces:
            runs.append(kind("".join(pieces)))
        self.written += sum(len(run.text) for run in runs)
        return runs


class Chunks:
    """A streamed answer. The first chunk names the role, as clients expect it."""

    def __init__(self, answer_id: str, model: str, created: int, *, with_usage: bool) -> None:
        head = {"id": answer_id, "object": "chat.completion.chunk", "created": created, "model": model}
        self._head = b"data: " + orjson.dumps(head)[:-1]
        self._with_usage = with_usage
        self._end = b',"usage":null}\n\n' if with_usage else b"}\n\n"
        begin = self._head + b',"choices":[{"index":0,"delta":{'
        self._before = {Delta: begin + b'"content":', Reasoning: begin + b'"reasoning_content":'}
        self._after = b'},"logprobs":null,"finish_reason":null}]' + self._end
        self._role = begin + b'"role":"assistant","content":""' + self._after
        self._begun = False

    def of(self, runs: Sequence[Delta | Reasoning]) -> bytes:
        text = b"".join([self._before[type(run)] + orjson.dumps(run.text) + self._after for run in runs])
        return text if self._begun else self.begin() + text

    def begin(self) -> bytes:
        self._begun = True
        return self._role

    def end(self, gathered: Gathered, usage: dict[str, object]) -> bytes:
        last = b',"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"%b"}]'
        said = b"" if self._begun else self.begin()
        said += self._head + last % gathered.finish_reason.encode() + self._end
        if self._with_usage:
            said += self._head + b',"choices":[],"usage":' + orjson.dumps(usage) + b"}\n\n"
        return said + DONE


def failure(body: bytes) -> bytes:
    """An error in a stream that has begun; no `[DONE]` follows it."""
    return b"data: " + body + b"\n\n"


def usage_of(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens or 0},
    }


def whole(
    answer_id: str, model: str, created: int, runs: Sequence[Delta | Reasoning], reason: str, usage: Usage
) -> bytes:
    message: dict[str, object] = {
        "role": "assistant",
        "content": "".join(run.text for run in runs if type(run) is Delta),
        "refusal": None,
    }
    if thought := "".join(run.text for run in runs if type(run) is Reasoning):
        message["reasoning_content"] = thought
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return orjson.dumps({
        "id": answer_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": usage_of(usage),
    })  # fmt: skip

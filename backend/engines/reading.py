"""From the bytes of one response to events, and at its end to a verdict: is this a whole answer?

An engine can fail inside a response that began with 200, in seven shapes; some just stop. So an answer is whole only
when a finish reason came, or `[DONE]` after text, or when the response was one JSON completion. Everything else fails.
"""

import json
from collections.abc import Mapping

import orjson

from backend.core.i18n import _
from backend.engines.events import Delta, EngineFailed, Event, Failure, Finish, Reasoning, Usage
from backend.engines.failures import bounded, broken_off, failed
from backend.engines.repeats import Frame
from backend.engines.sse import EventParser, ServerEvent
from backend.engines.thinking import ThinkingSplitter

MAX_ANSWER_CHARACTERS = 8 << 20
_MAX_COUNT = 1_000_000_000  # two of them still fit into a column
_MAX_REASON = 40
_LOOK_EVERY, _LONGEST_LOOK = 4, 512  # chunks
_PIECE = 2_048  # bytes

_REASONS = {"stop_sequence": "stop", "eos_token": "stop"}  # TGI's words
_WITHOUT_TEXT = frozenset({"tool_calls", "function_call", "content_filter", "abort"})
"""Reasons that explain an answer without text; after any other, no text is a failure."""


class AnswerReader:
    """Reads one response. `failure` is set instead of raised, so that what came before it in a read is not lost."""

    def __init__(
        self,
        *,
        begins: bool = True,
        secret: str | None = None,
        max_characters: int = MAX_ANSWER_CHARACTERS,
        parser: EventParser | None = None,
    ) -> None:
        """`begins` is false when the engine goes on with a text, where `<think>` is only text."""
        self.failure: EngineFailed | None = None
        self.done = False
        """`[DONE]` has come."""
        self.finish_reason: str | None = None
        self.has_text = False
        self._whole = False
        self._saw_data = False
        self._first_bytes = b""
        self._usage: Usage | None = None
        self._thinking = ThinkingSplitter() if begins else None
        self._half = ""
        self._room = max_characters
        self._secret = secret
        self._parser = parser or EventParser()
        self._frame: Frame | None = None
        self._look_in = self._look_every = _LOOK_EVERY

    def feed(self, data: bytes) -> list[Event]:
        if not self._saw_data:
            self._first_bytes = (self._first_bytes + data)[:200]
        events: list[Event] = []
        while data and not self.is_over:
            if self._frame is not None:
                data = self._read_quickly(self._frame, data, events)
            piece, data = _first_piece(data)
            if piece:
                events += self._read(self._parser.feed(piece))
        if not self.is_over and (pending := self._parser.pending()):
            events += self._read_early(pending)
        if self._parser.too_long and not self.is_over:
            self.failure = failed(Failure.NONSENSE, "a single event is longer than this client reads")
        return events

    def close(self, because: EngineFailed | None = None) -> list[Event]:
        """Nothing more comes: the last events, and `failure` unless the answer is whole.

        `because` is what ended it; an engine's own words, and a complete answer, count more.
        """
        events: list[Event] = []
        if not self.done and self.failure is None:
            events = self._read([event for event in self._parser.close() if _is_complete(event)])
        self._flush(events)
        if self.failure is None:
            self.failure = because if because and not self.is_whole else self._verdict()
        return events

    @property
    def is_over(self) -> bool:
        return self.done or self.failure is not None

    @property
    def is_whole(self) -> bool:
        return self.finish_reason is not None or self._whole or (self.done and self.has_text)

    def _verdict(self) -> EngineFailed | None:
        if self.has_text or self.finish_reason in _WITHOUT_TEXT:
            return None if self.is_whole else failed(Failure.CUT, "the stream ended without a finish reason")
        begin = self._first_bytes.lstrip()
        if self.is_whole:
            return failed(Failure.EMPTY, "the response ended without any text")
        if self.done or self._saw_data or begin[:1] in (b"", b":") or _is_event_stream(begin):
            return failed(Failure.CUT, "the stream ended before any text")
        return failed(Failure.NONSENSE, bounded(begin.decode("utf-8", "replace"), self._secret))

    def _read_quickly(self, frame: Frame, data: bytes, events: list[Event]) -> bytes:
        """What is left for the careful way. An event that is open is ended first."""
        if self._half:
            return data
        if open_bytes := self._parser.until_next(data):
            events += self._read(self._parser.feed(data[:open_bytes]))
            data = data[open_bytes:]
        if not data or self.is_over:
            return b""
        text, length = frame.read(data)
        if length:
            self._take(text, frame.kind, events, damaged=False)
            self._look_in = self._look_every = _LOOK_EVERY
        return data[length:]

    def _look_for_repeats(self, data: bytes) -> None:
        """At every so-manieth chunk that was read the careful way; less often where that did not help."""
        self._look_in -= 1
        if self._look_in == 0:
            self._frame = Frame.of(data)
            self._look_every = min(2 * self._look_every, _LONGEST_LOOK)
            self._look_in = self._look_every

    def _read(self, server_events: list[ServerEvent]) -> list[Event]:
        events: list[Event] = []
        for name, data in server_events:
            self._saw_data = True
            if data[:1] != b"{":
                data = data.strip()
            if data[:1] == b"{":
                self._read_json(name, data, events)
            elif data == b"[DONE]":
                self.done = True
            elif name == b"error":
                self.failure = broken_off(data.decode("utf-8", "replace"), secret=self._secret)
            if self.done or self.failure is not None:
                break
        return events

    def _read_early(self, pending: bytes) -> list[Event]:
        """A bare JSON error is read as soon as it is complete; the stream around it may stay open for ever."""
        payload = _load_tolerantly(pending)
        return self._read(self._parser.close()) if isinstance(payload, dict) and "error" in payload else []

    def _read_json(self, name: bytes, data: bytes, events: list[Event]) -> None:
        damaged = False
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            chunk, damaged = _load_tolerantly(data), True
        if not isinstance(chunk, dict):
            # Passing over a chunk would be a silent hole in the text.
            self.failure = failed(Failure.NONSENSE, bounded(data.decode("utf-8", "replace"), self._secret))
        elif chunk.get("error") or name == b"error" or chunk.get("object") == "error":
            self._flush(events)
            self.failure = broken_off(chunk, secret=self._secret)
        else:
            if (choice := _our_choice(chunk.get("choices"))) is not None:
                self._read_choice(choice, events, damaged)
                if not damaged and not name:
                    self._look_for_repeats(data)
            if usage := chunk.get("usage"):
                self._count(usage, events)

    def _read_choice(self, choice: dict[str, object], events: list[Event], damaged: bool) -> None:
        part = choice.get("delta")
        if not isinstance(part, dict):
            part = self._whole_message(choice)
        if (thought := part.get("reasoning") or part.get("reasoning_content")) and isinstance(thought, str):
            self._take(thought, Reasoning, events, damaged)
        if (text := part.get("content")) and isinstance(text, str):
            self._take(text, Delta, events, damaged)
        if (reason := choice.get("finish_reason")) and isinstance(reason, str) and self.finish_reason is None:
            self._finish(reason, choice, events)

    def _whole_message(self, choice: dict[str, object]) -> dict[str, object]:
        """The message of a completion that was not streamed. One that only repeats streamed text is none."""
        message = choice.get("message")
        if not isinstance(message, dict) or self.has_text:
            return {}
        self._whole = True
        return message

    def _take(self, text: str, kind: type[Delta | Reasoning], events: list[Event], damaged: bool) -> None:
        if damaged or self._half:
            text = self._mend(text)
        if "\0" in text:
            text = text.replace("\0", "")  # Postgres cannot hold it
        self._room -= len(text)
        if self._room < 0:
            self.failure = EngineFailed(
                Failure.NONSENSE, _("The answer outgrew what can be kept."), detail="the answer is too long"
            )
        elif text:
            self.has_text = True
            if kind is Reasoning or self._thinking is None:
                events.append(kind(text))
                return
            events += self._thinking.feed(text)
            if self._thinking.settled:
                self._thinking = None

    def _finish(self, reason: str, choice: Mapping[str, object], events: list[Event]) -> None:
        self._flush(events)
        if reason == "error":
            self.failure = broken_off(choice, secret=self._secret)
            return
        self.finish_reason = _REASONS.get(reason, reason[:_MAX_REASON])
        events.append(Finish(self.finish_reason))

    def _flush(self, events: list[Event]) -> None:
        if self._half:
            self._half = ""
            self._take("\ufffd", Delta, events, damaged=False)
        if self._thinking is not None:
            events += self._thinking.close()

    def _count(self, usage: object, events: list[Event]) -> None:
        if not isinstance(usage, dict):
            return
        prompt, completion = _number(usage.get("prompt_tokens")), _number(usage.get("completion_tokens"))
        details = usage.get("prompt_tokens_details")
        cached = _number(details.get("cached_tokens")) if isinstance(details, dict) else None
        if prompt is None or completion is None:
            return
        counted = Usage(prompt, completion, cached)
        if counted != self._usage:
            self._usage = counted
            events.append(counted)

    def _mend(self, text: str) -> str:
        """Surrogates from `\\ud800` escapes: pairs joined, also over two deltas, lone ones replaced."""
        text = self._half + text
        self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        text = text[: len(text) - len(self._half)]
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _first_piece(data: bytes) -> tuple[bytes, bytes]:
    """As much as is read the careful way before it is looked whether there is a shorter one; and the rest."""
    if len(data) <= 2 * _PIECE or (end := data.find(b"\n\n", _PIECE)) < 0:
        return data, b""
    return data[: end + 2], data[end + 2 :]


def _load_tolerantly(data: bytes) -> object:
    """What orjson refuses and engines send: lone surrogates, NaN among log probabilities, raw control characters."""
    try:
        return json.loads(data.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None


def _is_complete(event: ServerEvent) -> bool:
    _name, data = event
    return not data.startswith(b"{") or isinstance(_load_tolerantly(data), dict)


def _is_event_stream(begin: bytes) -> bool:
    """Whether it begins with a field, or with what has come of one."""
    field = begin.partition(b"\n")[0].partition(b":")[0]
    return any(name.startswith(field) for name in (b"data", b"event", b"id", b"retry"))


def _our_choice(choices: object) -> dict[str, object] | None:
    """We ask for one; a server told to make several numbers them."""
    if isinstance(choices, list):
        for choice in choices:
            if isinstance(choice, dict) and not choice.get("index"):
                return choice
    return None


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _MAX_COUNT else None

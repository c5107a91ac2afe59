"""A running answer in the memory of the process that writes it.

Readers see the whole text so far rather than a queue of pieces: a slow one skips, a late one joins, and none of them
can hold the writer up.
"""

import asyncio
import time
from collections.abc import Iterable
from enum import StrEnum

from backend.core.text import one_line
from backend.engines.events import Delta, Event, Finish, Reasoning, Usage

_LONGEST_REASON = 40  # the width of the column


class Phase(StrEnum):
    """What a running answer is doing, as shown to its reader; only `Status` is stored."""

    WAITING = "waiting"  # nothing was sent to the engine yet
    READING = "reading"  # the engine has the prompt
    THINKING = "thinking"
    WRITING = "writing"


class LiveAnswer:
    """Collects what the engine sends; wakes those who wait for news."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.phase = Phase.WAITING
        self.finished = False
        self.usage: Usage | None = None
        self.ended_by: str | None = None
        self.first_text_at: float | None = None  # time.monotonic()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._version = 0
        self._news: asyncio.Event = asyncio.Event()

    @property
    def text(self) -> str:
        return _joined(self._text)

    @property
    def reasoning(self) -> str:
        return _joined(self._reasoning)

    @property
    def version(self) -> int:
        """Grows with every change; a reader that has seen this one has seen all."""
        return self._version

    def enter(self, phase: Phase) -> None:
        if phase is not self.phase:
            self.phase = phase
            self._changed()

    def take(self, events: Iterable[Event]) -> None:
        """All events of one read of the socket at once: one wake-up for all of them."""
        for event in events:
            match event:
                case Delta(text):
                    self._text.append(text)
                    self.phase = Phase.WRITING
                case Reasoning(text):
                    self._reasoning.append(text)
                    self.phase = Phase.THINKING
                case Usage():
                    self.usage = event
                case Finish(reason):
                    self.ended_by = one_line(reason, _LONGEST_REASON)
        if self.first_text_at is None and (self._text or self._reasoning):
            self.first_text_at = time.monotonic()
        self._changed()

    def finish(self) -> None:
        """The row is final; readers take the last look from there."""
        self.finished = True
        self._changed()

    async def news(self, seen: int) -> None:
        """Return once there is something newer than version `seen`; at once when there is."""
        while self._version <= seen and not self.finished:
            await self._news.wait()

    def _changed(self) -> None:
        self._version += 1
        self._news.set()
        self._news = asyncio.Event()


def _joined(pieces: list[str]) -> str:
    """Join in place, so that reading twice does not join twice."""
    if len(pieces) > 1:
        pieces[:] = ["".join(pieces)]
    return pieces[0] if pieces else ""

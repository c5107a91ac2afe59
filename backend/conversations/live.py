"""A running answer in the memory of the process that writes it.

Readers see the whole text so far rather than a queue of pieces: a slow one skips, a late one joins, and none of them
can hold the writer up.
"""

import asyncio
import time
from collections.abc import Iterable
from enum import StrEnum

from backend.conversations.models import Message
from backend.core.text import one_line
from backend.engines.events import Delta, Event, Finish, Reasoning, Usage
from backend.engines.pool import Place

_LONGEST_REASON = 40  # the width of the column
TICK_SECONDS = 0.05  # twenty updates a second are as many as a reader can tell apart
_SLOWEST_TICK = 0.08  # a reader does not see the difference, and in a crowd it saves a third of the work
_CROWD = 10_000  # answers with news that make the tick a second longer


class Phase(StrEnum):
    """What a running answer is doing, as shown to its reader; only `Status` is stored."""

    WAITING = "waiting"  # nothing was sent to the engine yet
    READING = "reading"  # the engine has the prompt
    THINKING = "thinking"
    WRITING = "writing"


class Tick:
    """Wakes the readers of all answers that have news at the same moment.

    One wake-up of the event loop for hundreds of answers costs a fraction of one for each piece of each answer.
    """

    def __init__(self) -> None:
        self._waiting: list[LiveAnswer] = []
        self._crowd = 0  # how many it were the last time

    def soon(self, live: "LiveAnswer") -> None:
        if not self._waiting:
            seconds = min(TICK_SECONDS + self._crowd / _CROWD, _SLOWEST_TICK)
            asyncio.get_running_loop().call_later(seconds, self._wake)
        self._waiting.append(live)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._crowd = len(waiting)
        for live in waiting:
            live.wake()


class LiveAnswer:
    """Collects what the engine sends; wakes those who wait for news.

    One that is picked up again begins with the text it had.
    """

    def __init__(self, attempt: int, text: str = "", reasoning: str = "", *, tick: Tick | None = None) -> None:
        self.attempt = attempt
        self.phase = Phase.WAITING
        self.place: Place | None = None  # in the queue, while it waits there
        self.finished = False
        self.usage: Usage | None = None
        self.ended_by: str | None = None
        self.first_text_at: float | None = None  # time.monotonic()
        self.begins_with = len(text) + len(reasoning)  # characters
        self.row: Message | None = None  # the final one, where this process wrote it
        self._text = [text]
        self._reasoning = [reasoning]
        self._tick = tick
        self._version = 0
        self._shown = 0  # the version that readers were last woken for
        self._news: asyncio.Event = asyncio.Event()

    @property
    def text(self) -> str:
        return _joined(self._text)

    @property
    def reasoning(self) -> str:
        return _joined(self._reasoning)

    @property
    def written(self) -> int:
        """Characters that came from the engine since it was started or taken up again."""
        return len(self.text) + len(self.reasoning) - self.begins_with

    @property
    def version(self) -> int:
        """Grows with every change; a reader that has seen this one has seen all."""
        return self._version

    def wait(self, place: Place) -> None:
        """It is not its turn yet, or not again after an engine refused it."""
        if place != self.place:
            self.phase, self.place = Phase.WAITING, place
            self._grown(at_once=False)

    def enter(self, phase: Phase) -> None:
        if phase is not self.phase:
            self.phase = phase
            self.place = None
            self._version += 1
            self.wake()

    def take(self, events: Iterable[Event]) -> None:
        """All events of one read of the socket at once; the first text is shown at once, the rest with the tick."""
        phase = self.phase
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
        if self.first_text_at is None and self.phase in (Phase.THINKING, Phase.WRITING):
            self.first_text_at = time.monotonic()
        self._grown(at_once=self.phase is not phase)

    def set(self, phase: Phase, text: str, reasoning: str, place: Place | None = None) -> None:
        """For a copy of an answer that another process writes."""
        at_once = phase is not self.phase
        self.phase, self.place, self._text, self._reasoning = phase, place, [text], [reasoning]
        self._grown(at_once=at_once)

    def finish(self, row: Message | None = None) -> None:
        """The row is final; readers take the last look at it."""
        self.row = row
        self.finished = True
        self._version += 1
        self.wake()

    async def news(self, seen: int) -> None:
        """Return once there is something newer than version `seen`; at once when there is."""
        while self._shown <= seen and not self.finished:
            await self._news.wait()

    def wake(self) -> None:
        self._shown = self._version
        self._news.set()
        self._news = asyncio.Event()

    def _grown(self, *, at_once: bool) -> None:
        waits_already = self._version > self._shown
        self._version += 1
        if at_once or self._tick is None:
            self.wake()
        elif not waits_already:
            self._tick.soon(self)


def _joined(pieces: list[str]) -> str:
    """Join in place, so that reading twice does not join twice."""
    if len(pieces) > 1:
        pieces[:] = ["".join(pieces)]
    return pieces[0]

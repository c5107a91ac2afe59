"""Ends a wait for bytes that lasts too long, at the price of a few assignments a read instead of a timer a read."""

import asyncio
from types import TracebackType
from typing import Self

import aiohttp

_LOOK_AGAIN = 1.0  # while nobody waits
_LET_READ = 0.01


class Silence:
    """Watches one response while it is a context; when a wait is too long, the pending read raises `TimeoutError`.

    Only waiting counts: a caller that takes a minute for work of its own does not make the engine late.
    """

    def __init__(self, content: aiohttp.StreamReader, started: float, first: float, idle: float) -> None:
        self.seconds = first
        """The limit that was exceeded."""
        self._content = content
        self._first = first
        self._idle = idle
        self._loop = asyncio.get_running_loop()
        self._text_at = started
        self._begun = False
        self._since: float | None = None
        self._bytes_before = 0
        self._end: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._arm(self._text_at + self._first)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def begins(self) -> None:
        """The caller is about to wait for bytes."""
        self._since = self._loop.time()
        self._bytes_before = self._content.total_bytes

    def ends(self) -> None:
        self._since = None

    def broken(self, *, by_text: bool) -> None:
        """The engine got on with the answer. The first text starts the shorter limit, for the gaps in it."""
        self._text_at = self._loop.time()
        if by_text and not self._begun:
            self._begun = True
            self._arm(self._text_at + self._idle)

    def allow(self, seconds: float) -> None:
        """The answer is complete; what may follow it gets this long and no longer."""
        if self._end is None:
            self._end = self._loop.time() + seconds
            self._arm(self._end)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._check)

    def _check(self) -> None:
        now = self._loop.time()
        if self._since is None:
            self._arm(now + min(self._idle, self._first, _LOOK_AGAIN))
            return
        if self._content.total_bytes > self._bytes_before:
            # Bytes have come and the reader is about to wake: after a pause of the whole process all is due at once.
            self._arm(now + _LET_READ)
            return
        limits = [(self._text_at + self._first, self._first)]
        if self._begun:
            limits.append((self._since + self._idle, self._idle))
        if self._end is not None:
            limits.append((self._end, 0.0))
        due, seconds = min(limits)
        if now < due:
            self._arm(due)
        else:
            self.seconds = seconds
            self._content.set_exception(TimeoutError())

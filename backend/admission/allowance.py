"""How many answers at once the engines of a model take, as far as their refusals have taught.

A refusal (429, 503) lowers the number to what ran at that moment; answers that were taken raise it one by one, and
quiet doubles it, until it is the set limit again.
"""

from math import inf

_QUIET = 10.0  # seconds without a refusal after which twice as many are tried
_ENOUGH = 1024  # a model without a set limit is trusted again from here on
_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # nothing is sent for so long to an engine that refuses although it does nothing


class Allowance:
    """Of one model. Time is passed in."""

    def __init__(self) -> None:
        self._learned: int | None = None  # None: as many as are set
        self._taken = 0  # answers since it was raised last
        self._doubles_at = inf
        self._paused_until = -inf

    def limit(self, is_set: int | None, now: float) -> float:
        """How many may run now."""
        while self._learned is not None and now >= self._doubles_at:
            self._learned *= 2
            self._doubles_at += _QUIET
            if self._learned >= (is_set or _ENOUGH):
                self._learned = None
        if now < self._paused_until:
            return 0
        limit = inf if is_set is None else max(1, is_set)
        return limit if self._learned is None else min(limit, self._learned)

    def refused(self, others: int, now: float, retry_after: float | None) -> None:
        """An engine refused one while it had `others`."""
        fewer = max(1, others)
        self._learned = fewer if self._learned is None else min(self._learned, fewer)
        self._taken = 0
        self._doubles_at = now + _QUIET
        pause = retry_after or (0 if others else _PAUSE)
        self._paused_until = max(self._paused_until, now + min(pause, _LONGEST_PAUSE))

    def accepted(self) -> None:
        """An answer came."""
        if self._learned is not None:
            self._taken += 1
            if self._taken >= self._learned:
                self._learned += 1
                self._taken = 0

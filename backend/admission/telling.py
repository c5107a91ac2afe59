"""Telling those who wait where they stand: soon, then about once a second, and only what has changed."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from backend.admission.fair import Fair
from backend.admission.lines import Key
from backend.admission.wishes import Place

_SOON = 0.05  # seconds: whoever has to wait sees quickly where
_SHARE = 20  # this may take one twentieth of the process
_AT_ONCE = 100  # places that are worked out before others have their turn

Tell = Callable[[str, Sequence[tuple[int, Place]]], None]


class Places:
    """`tell` gets the places that changed, for one process at a time."""

    def __init__(self, fair: Fair, tell: Tell, *, every: float) -> None:
        self._fair = fair
        self._tell = tell
        self._every = every
        self._told: dict[Key, Place] = {}
        self._rest: Iterator[tuple[Key, Place]] | None = None  # of the round that has begun
        self._spent = 0.0  # seconds that this round took so far
        self._not_before = 0.0
        self._is_stale = False
        self._timer: asyncio.Handle | None = None

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()

    def changed(self) -> None:
        """Somebody came or went."""
        self._is_stale = True
        if self._timer is None:
            wait = max(_SOON, self._not_before - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._go_on)

    def forget(self, key: Key) -> None:
        """It waits no more, or it has to be told again."""
        self._told.pop(key, None)

    def _go_on(self) -> None:
        began = time.perf_counter()
        if self._rest is None:
            self._rest, self._spent, self._is_stale = self._fair.places(time.monotonic()), 0.0, False
        some = list(islice(self._rest, _AT_ONCE))
        changed: defaultdict[str, list[tuple[int, Place]]] = defaultdict(list)
        for key, place in some:
            if self._told.get(key) != place and self._fair.is_running(key) is False:
                self._told[key] = place
                changed[key[0]].append((key[1], place))
        for process, places in changed.items():
            self._tell(process, places)
        self._spent += time.perf_counter() - began
        if some:
            self._timer = asyncio.get_running_loop().call_soon(self._go_on)
            return
        self._rest = self._timer = None
        self._not_before = time.monotonic() + max(self._every, _SHARE * self._spent)
        if self._is_stale:
            self.changed()

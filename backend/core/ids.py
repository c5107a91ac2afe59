"""Time-ordered ids, so that rows lie in the order they were made and no index page is hit at random."""

import secrets
import threading
import time
from datetime import UTC, datetime
from uuid import UUID


class _Clock:
    """Milliseconds and a counter of 12 bits within them, as one number that only grows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def tick(self) -> tuple[int, int]:
        with self._lock:
            self._last = max((time.time_ns() // 1_000_000) << 12, self._last + 1)
            return self._last >> 12, self._last & 0xFFF


_clock = _Clock()


def new_id() -> UUID:
    """A UUIDv7 (RFC 9562) that is greater than every one this process made before.

    Two ids of one millisecond would otherwise come in random order, and an answer could sort before its question.
    """
    milliseconds, counter = _clock.tick()
    return UUID(int=milliseconds << 80 | 0x7 << 76 | counter << 64 | 0b10 << 62 | secrets.randbits(62))


def made_at(id_: UUID) -> datetime:
    """When a UUIDv7 was made, to the millisecond."""
    return datetime.fromtimestamp((id_.int >> 80) / 1000, UTC)

"""How many answers of this process each engine is writing."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID


class Traffic:
    def __init__(self) -> None:
        self._running: Counter[UUID] = Counter()  # by engine

    def running_on(self, engine_id: UUID) -> int:
        return self._running[engine_id]

    @contextmanager
    def answering(self, engine_id: UUID) -> Iterator[None]:
        self._running[engine_id] += 1
        try:
            yield
        finally:
            self._running[engine_id] -= 1
            if not self._running[engine_id]:
                del self._running[engine_id]

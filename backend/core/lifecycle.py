"""Whether this process is on its way out; known before uvicorn has closed a single connection."""

from collections.abc import Callable


class Lifecycle:
    """`stop` runs what was registered, once; from then on the process takes no new work."""

    def __init__(self) -> None:
        self.stopping = False
        self._on_stop: list[Callable[[], None]] = []

    def on_stop(self, work: Callable[[], None]) -> None:
        self._on_stop.append(work)

    def stop(self) -> None:
        if not self.stopping:
            self.stopping = True
            for work in self._on_stop:
                work()

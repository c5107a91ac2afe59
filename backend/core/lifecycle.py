"""Whether this process is on its way out; known before uvicorn has closed a single connection."""

from collections.abc import Callable


class Lifecycle:
    """`stop` runs what was registered, once; from then on the process takes no new work."""

    def __init__(self) -> None:
        self.stopping = False
        self._on_stop: list[Callable[[], None]] = []
        self._busy: list[Callable[[], bool]] = []

    def on_stop(self, work: Callable[[], None]) -> None:
        self._on_stop.append(work)

    def busy_while(self, check: Callable[[], bool]) -> None:
        """Once stopping, the process goes on answering for as long as `check` is true, up to the end of the drain."""
        self._busy.append(check)

    @property
    def is_busy(self) -> bool:
        return any(check() for check in self._busy)

    def stop(self) -> None:
        if not self.stopping:
            self.stopping = True
            for work in self._on_stop:
                work()

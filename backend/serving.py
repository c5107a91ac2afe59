"""`parley serve`: the web app under uvicorn, in one process or in several that share the port.

With several, the first process serves nobody. It holds the sockets, starts the others, each of which is what a single
one would be, starts again what ends, and passes on the signal to stop. They meet in the database only.
"""

import gc
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from subprocess import Popen
from types import FrameType

import uvicorn

from backend.core.lifecycle import Lifecycle
from backend.core.settings import Settings
from backend.core.telemetry import configure_logging
from backend.embedded import processes
from backend.main import create_app

log = logging.getLogger(__name__)

# Python's own 700 has the collector look thousands of times a second at a crowd; what lasts is frozen (`main.py`).
_GC_THRESHOLD = (50_000, 20, 20)
_AFTER_DRAIN_SECONDS = 5  # for the last events to reach their readers, and the last rows the database
_BEFORE_KILL_SECONDS = 3
_LOOK_EVERY = 0.2
# A process that ended sooner than this after its start is started again after a pause, which grows.
_WELL_AFTER = 5.0
_SURELY_STARTED_AFTER = 30.0  # on the slowest machine, too
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


def serve(settings: Settings, *, process: int | None = None, sockets: list[socket.socket] | None = None) -> None:
    """Returns after SIGTERM or SIGINT, once the answers in progress had `drain_seconds` to end.

    `process` and `sockets` are given to one of several.
    """
    configure_logging(process=process)
    gc.set_threshold(*_GC_THRESHOLD)
    lifecycle = Lifecycle()
    config = uvicorn.Config(
        create_app(settings, lifecycle=lifecycle),
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # it would write query strings, and those may hold one-time secrets
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_AFTER_DRAIN_SECONDS,
    )
    _Server(config, lifecycle, drain_seconds=settings.drain_seconds).run(sockets)


class _Server(uvicorn.Server):
    """Keeps the doors open while answers in progress end, and tells everybody else that it is about to stop.

    uvicorn by itself would refuse new connections from the first moment on, and then wait for every open stream.
    """

    def __init__(self, config: uvicorn.Config, lifecycle: Lifecycle, *, drain_seconds: float) -> None:
        super().__init__(config)
        self._lifecycle = lifecycle
        self._drain_seconds = drain_seconds
        self._told_to_stop = False
        self._closing_time = 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins the drain, a second one cuts it short."""
        if self._told_to_stop:
            super().handle_exit(sig, frame)
        self._told_to_stop = True

    async def on_tick(self, counter: int) -> bool:
        if self._told_to_stop and not self._lifecycle.stopping:
            log.info("told to stop: no new answers from now on")
            self._lifecycle.stop()
            self._closing_time = time.monotonic() + self._drain_seconds
        if self._lifecycle.stopping and (not self._lifecycle.is_busy or time.monotonic() >= self._closing_time):
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._lifecycle.stop()
        await super().shutdown(sockets)


# Several processes


def serve_several(settings: Settings) -> None:
    """Returns after SIGTERM or SIGINT, once all of them have ended."""
    configure_logging(process=0)
    settings.secrets()  # what is missing is said once, not by each of them
    sockets = _listening_sockets(settings)
    try:
        _Supervisor([_Worker(number + 1, sockets) for number in range(settings.processes)], settings).run()
    finally:
        for listener in sockets:
            listener.close()


def _listening_sockets(settings: Settings) -> list[socket.socket]:
    """On every address that the host has: two for `localhost`. They are listened on by whoever serves."""
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return [_bound(family, address) for family, address in {(each[0], each[4]) for each in found}]
    except OSError as problem:
        raise SystemExit(f"Cannot listen on {settings.host}, port {settings.port}: {problem.strerror}.") from problem


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind(address)
    return listener


class _Worker:
    """One of the processes that serve, started again whenever it ends."""

    def __init__(self, number: int, sockets: Sequence[socket.socket]) -> None:
        self.number = number
        self._sockets = [listener.fileno() for listener in sockets]
        self._process: Popen[bytes] | None = None
        self._started = 0.0
        self._due: float | None = None
        self._pause = 0.0

    def begin(self) -> None:
        handed_over = ",".join(map(str, self._sockets))
        command = [sys.executable, "-m", "backend", "serve", "--process", str(self.number), "--sockets", handed_over]
        self._process = processes.start(command, output=sys.stdout.fileno(), keep=self._sockets)
        self._started, self._due = time.monotonic(), None

    @property
    def is_well(self) -> bool:
        return self.exit_code is None and time.monotonic() - self._started >= _SURELY_STARTED_AFTER

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.poll() if self._process else 0

    def look(self) -> None:
        """Start it again when it has ended: at once, or after a pause where it had hardly begun."""
        moment = time.monotonic()
        if self._due is not None:
            if moment >= self._due:
                self.begin()
        elif (code := self.exit_code) is not None:
            hardly_begun = moment - self._started < _WELL_AFTER
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE) if hardly_begun else 0.0
            self._due = moment + self._pause
            log.error("process %d ended (%d); it is started again in %.0f s", self.number, code, self._pause)

    def signal(self, number: int) -> None:
        if self._process is not None and self.exit_code is None:
            self._process.send_signal(number)


class _Supervisor:
    def __init__(self, workers: Sequence[_Worker], settings: Settings) -> None:
        self._workers = workers
        self._patience = settings.drain_seconds + _AFTER_DRAIN_SECONDS + _BEFORE_KILL_SECONDS
        self._signals: list[int] = []
        self._woken = threading.Event()
        self._any_was_well = False

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hear)
        for worker in self._workers:
            worker.begin()
        try:
            while not self._signals:
                self._woken.wait(_LOOK_EVERY)
                self._look()
        finally:
            self._stop()

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)
        self._woken.set()

    def _look(self) -> None:
        """Raises SystemExit where none was ever well and one ended by itself: it cannot start, and so cannot any."""
        self._any_was_well = self._any_was_well or any(worker.is_well for worker in self._workers)
        for worker in self._workers:
            code = worker.exit_code
            if not self._any_was_well and code is not None and code > 0:
                raise SystemExit(code)
            worker.look()

    def _stop(self) -> None:
        """Every signal goes to all of them; who takes longer than a drain can take is killed."""
        deadline = time.monotonic() + self._patience
        signals = self._signals or [int(signal.SIGTERM)]
        passed_on = 0
        while any(worker.exit_code is None for worker in self._workers):
            if time.monotonic() >= deadline:
                signals.append(signal.SIGKILL)
            for number in signals[passed_on:]:
                for worker in self._workers:
                    worker.signal(number)
                passed_on += 1
            self._woken.wait(_LOOK_EVERY / 4)
            self._woken.clear()

"""One of our own programs that answers over HTTP: started, awaited, stopped, and cleaned up after a kill -9."""

import contextlib
import http.client
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from backend.embedded import processes
from backend.embedded.errors import CannotRun


class Service:
    """`ready_url` answers 200 once the program can do its work; until then anything else, or nothing."""

    def __init__(
        self,
        title: str,
        name: str,
        command: Sequence[str],
        *,
        ready_url: str,
        env: Mapping[str, str],
        folder: Path,
        patience: float,
    ) -> None:
        self.title = title
        self.log = folder / "logs" / f"{name}.log"
        self._command = command
        self._ready_url = urlsplit(ready_url)
        self._env = env
        self._pid_file = folder / "run" / f"{name}.pid"
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None

    def end_what_was_left(self) -> None:
        """Stop the program an earlier, killed run started; a stranger who has its process id by now is left alone."""
        try:
            pid, started = self._pid_file.read_text().split()
        except (FileNotFoundError, ValueError):
            return
        processes.end_left_over(int(pid), started, patience=5)
        self._pid_file.unlink(missing_ok=True)

    def begin(self) -> None:
        with self.log.open("ab") as output:
            # Killed outright when we are: without the database, which stops then too, it could finish nothing.
            self._process = processes.start(self._command, output=output, env=self._env, death_signal=signal.SIGKILL)
        self._pid_file.write_text(f"{self._process.pid} {processes.started_at(self._process.pid)}\n")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    def is_ready(self) -> bool:
        where = self._ready_url
        connection = http.client.HTTPConnection(where.hostname or "127.0.0.1", where.port, timeout=2)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", where.path)
            return connection.getresponse().status == 200
        return False

    def wait_until_ready(self, seconds: float) -> bool:
        """False when it is still busy with itself after `seconds`; raises `CannotRun` when it ended."""
        deadline = time.monotonic() + seconds
        while not self.is_ready():
            if not self.running:
                why = processes.last_words(self.log)
                raise CannotRun(f"{self.title} did not start: {why} (its log is {self.log})")
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def stop(self) -> None:
        if self._process is not None:
            processes.end(self._process, signal.SIGTERM, patience=self._patience)
            self._process = None
        self._pid_file.unlink(missing_ok=True)

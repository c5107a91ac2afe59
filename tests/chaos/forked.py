"""`parley serve` as a fork of a process that has loaded it already: a start costs a tenth of what it costs otherwise.

The process is one like any other; only its modules were read before it began.
"""

import multiprocessing
import os
import signal
import sys
from pathlib import Path

from tests import quick
from tests.served import Served

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["__main__", "tests.chaos.forked", "uvloop", "httptools"])


class Forked(Served):
    def start(self) -> None:
        self._forked = _FORKS.Process(target=_run, args=(self._environment, self._output), daemon=True)
        self._forked.start()

    @property
    def is_running(self) -> bool:
        return self._forked.is_alive()

    @property
    def workers(self) -> dict[int, int]:
        return {}

    def signal(self, number: int) -> None:
        assert self._forked.pid
        os.kill(self._forked.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._forked.join()

    def end(self) -> None:
        if self.is_running:
            self.kill()


def _run(environment: dict[str, str], output: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with output.open("ab") as written:
        os.dup2(written.fileno(), 1)
        os.dup2(written.fileno(), 2)
    sys.argv = ["parley", "serve"]
    sys.exit(quick.serve())

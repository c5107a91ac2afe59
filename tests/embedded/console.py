"""`parley run` as a person starts it: a program of its own whose lines can be awaited."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"http://127\.0\.0\.1:\d+/\S*")


class Console:
    """Runs `parley …` with only these settings; whatever it started is gone when it has ended."""

    def __init__(self, *arguments: str, **settings: object) -> None:
        surroundings = {name: value for name, value in os.environ.items() if not name.startswith("PARLEY_")}
        ours = {f"PARLEY_{name.upper()}": str(value) for name, value in settings.items()}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "backend", *arguments],
            cwd=ROOT,
            env=surroundings | ours,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.text = ""
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            while piece := output.read(1):
                self.text += piece

    def until(self, words: str, seconds: float = 60) -> str:
        """Everything it said, once it has said this."""
        deadline = time.monotonic() + seconds
        while words not in self.text:
            assert time.monotonic() < deadline and self._reader.is_alive(), f"no {words!r} in:\n{self.text}"
            time.sleep(0.02)
        return self.text

    def link(self) -> str:
        self.until("Ctrl-C stops it")
        found = LINK.search(self.text)
        assert found, self.text
        return found.group()

    def exit_code(self, seconds: float = 60) -> int:
        code = self.process.wait(seconds)
        self._reader.join()
        return code

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.exit_code()

    def __enter__(self) -> "Console":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.exit_code()


def parley(*arguments: str, **settings: object) -> Console:
    """A command that ends by itself."""
    with Console(*arguments, **settings) as console:
        console.exit_code()
    return console

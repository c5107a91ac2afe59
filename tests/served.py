"""`parley serve` in processes of its own, as an operator starts it, for tests that end them by signals."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from backend.core.settings import Settings
from backend.embedded import processes

ROOT = Path(__file__).parents[1]


class Served:
    """A `parley serve` with what it says. `module="tests.quick"` scales its waits down."""

    def __init__(self, settings: Settings, output: Path, *, module: str = "backend", **more: object) -> None:
        assert settings.secret_key is not None
        ours: dict[str, object] = {
            "database_url": settings.database_url,
            "secret_key": settings.secret_key.get_secret_value(),
            "port": settings.port,
            "data_dir": settings.data_dir,
            "engines": json.dumps([{"name": engine.name, "url": engine.url} for engine in settings.engines]),
            "probe_seconds": settings.probe_seconds,
            "titles": 0,
        } | more
        surroundings = {name: value for name, value in os.environ.items() if not name.startswith("PARLEY_")}
        self.address = f"http://127.0.0.1:{ours['port']}"
        self._command = [sys.executable, "-m", module, "serve"]
        self._environment = surroundings | {f"PARLEY_{name.upper()}": str(value) for name, value in ours.items()}
        self._output = output
        self._seen: set[int] = set()
        output.write_bytes(b"")
        self.start()

    def start(self) -> None:
        """Once more, after it ended."""
        with self._output.open("ab") as written:
            self.process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdout=written, stderr=subprocess.STDOUT
            )

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """As the kernel does it: at once, without a last word."""
        self.process.kill()
        self.process.wait()

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._output.read_text().splitlines()]

    @property
    def workers(self) -> dict[int, int]:
        """Process id by number."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and f"/{self.process.pid}/".encode() in _parents(entry):
                command = (entry / "cmdline").read_bytes().split(b"\0")
                if b"--process" in command and processes.started_at(int(entry.name)):
                    found[int(command[command.index(b"--process") + 1])] = int(entry.name)
        self._seen |= set(found.values())
        return found

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.address}/readyz", timeout=2, verify=False).status_code == 200
        except httpx.TransportError:
            return False

    def until(self, what: Callable[[], object], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, self._output.read_text()
            time.sleep(0.1)

    @property
    def is_gone(self) -> bool:
        _ = self.workers
        return self.process.poll() is not None and not any(processes.started_at(pid) for pid in self._seen)

    def end(self) -> None:
        for pid in (self.process.pid, *self.workers.values(), *self._seen):
            if processes.started_at(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def _parents(entry: Path) -> bytes:
    try:
        return b"/%s/" % (entry / "stat").read_bytes().rpartition(b")")[2].split()[1]
    except (FileNotFoundError, ProcessLookupError):
        return b""


Serve = Callable[..., Served]


async def ready(served: Served) -> None:
    async with asyncio.timeout(60), httpx.AsyncClient(verify=False, timeout=2) as client:
        while True:
            try:
                if (await client.get(f"{served.address}/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)


async def model_of(address: str, token: str) -> str:
    """The model that somebody signed in finds chosen, once there is one."""
    async with asyncio.timeout(60), httpx.AsyncClient(cookies={"sid": token}, verify=False) as client:
        while not (found := re.search(r'<option value="([^"]+)"', (await client.get(address)).text)):
            await asyncio.sleep(0.05)
        return found[1]

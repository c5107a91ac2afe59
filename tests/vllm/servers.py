"""The real servers: two of vLLM on the CPU, and vllm-router in front of both.

All of them listen on the loopback device only, write their logs into `.venv-vllm/logs`, and end with us, whatever ends
us. They are small: one thread and one gigabyte of KV cache each, 4,096 tokens of context, nothing compiled.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

from backend.embedded import processes
from tests.site import free_port

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv-vllm"
MODEL_FOLDER = VENV / "model"
MODEL = "smollm2"

VARIABLE = "PARLEY_TEST_VLLM"
"""Where the tests find the servers that `python -m tests.vllm` has started."""

ROUTER_SECONDS = 60.0
VLLM_SECONDS = 600.0
"""Until ready. Forty seconds on two idle cores, and minutes where others want them too."""

_VLLM = (
    *("--served-model-name", MODEL),
    *("--max-model-len", "4096"),
    *("--max-num-seqs", "8"),
    *("--max-num-queued-reqs", "128"),
    # Only whole blocks are found again. On a GPU one has 16 tokens; on the CPU 128 unless told otherwise, at least 32.
    *("--block-size", "32"),
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",
    *("--scheduling-policy", "priority"),
    *("--dtype", "float32"),
    "--enforce-eager",
    "--disable-uvicorn-access-log",
)

_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",  # else a C++ compiler works for half a minute at the first odd request
}

_ROUTER = (
    *("--policy", "consistent_hash"),
    *("--health-check-interval-secs", "1"),
    *("--worker-startup-check-interval", "1"),
    *("--log-level", "warning"),
)


class NotStarted(Exception):
    """A server ended, or was not ready in time; the text holds the end of its log."""


@dataclass(frozen=True)
class Server:
    name: str
    url: str  # without /v1
    pid: int  # of the process group, too

    @property
    def api(self) -> str:
        return f"{self.url}/v1"

    def kill(self) -> None:
        """As when the machine loses power: with everything it has started, in mid-answer or not."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Servers:
    replicas: tuple[Server, ...]
    router: Server

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Self:
        found = json.loads(text)
        return cls(tuple(Server(**replica) for replica in found["replicas"]), Server(**found["router"]))


@contextmanager
def running() -> Iterator[Servers]:
    """Both replicas start at the same time. Raises NotStarted."""
    with ExitStack() as stack:
        replicas = [stack.enter_context(_vllm(name)) for name in ("first", "second")]
        for replica in replicas:
            _wait(replica, VLLM_SECONDS)
        router = stack.enter_context(_router([replica.url for replica in replicas]))
        _wait(router, ROUTER_SECONDS)
        yield Servers(tuple(replicas), router)


@contextmanager
def _vllm(name: str) -> Iterator[Server]:
    port = str(free_port())
    command = ["vllm", "serve", str(MODEL_FOLDER), "--host", "127.0.0.1", "--port", port, *_VLLM]
    with _process(f"vllm-{name}", command, port, _ENVIRONMENT) as server:
        yield server


@contextmanager
def _router(workers: Sequence[str]) -> Iterator[Server]:
    port = str(free_port())
    command = ["vllm-router", "--worker-urls", *workers, "--host", "127.0.0.1", "--port", port, *_ROUTER]
    with _process("vllm-router", [*command, "--prometheus-port", str(free_port())], port, {}) as server:
        yield server


@contextmanager
def _process(name: str, command: Sequence[str], port: str, environment: Mapping[str, str]) -> Iterator[Server]:
    program, *arguments = command
    with _log(name).open("wb") as log:
        child = processes.start(
            [str(VENV / "bin" / program), *arguments],
            output=log,
            cwd=VENV,
            env={**os.environ, "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}", **environment},
        )
    server = Server(name, f"http://127.0.0.1:{port}", child.pid)
    try:
        yield server
    finally:
        _end(child, server)


def _end(child: subprocess.Popen[bytes], server: Server) -> None:
    processes.end(child, signal.SIGTERM, patience=20)
    server.kill()  # what it has started and not ended itself


def _log(name: str) -> Path:
    folder = VENV / "logs"
    folder.mkdir(exist_ok=True)
    return folder / f"{name}.log"


def _wait(server: Server, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not _is_ready(server.url):
        if processes.started_at(server.pid) is None or time.monotonic() > deadline:
            last = "\n".join(_log(server.name).read_text(errors="replace").splitlines()[-30:])
            raise NotStarted(f"{server.name} did not start:\n{last}")
        time.sleep(0.2)


def _is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/health", timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False

"""`python -m tests.load.llamacpp PORT SLOTS`: a real llama.cpp server with the demo model and so many slots.

Each slot holds one conversation, and nothing else keeps what a slot has lost: what is measured is who is sent where.
"""

import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from backend.embedded import processes
from backend.embedded.engine import BUNDLED, model_file
from tests.load.client import Broken
from tests.site import free_port

TOKENS = 1024  # of one slot
_PATIENCE = 60  # seconds for a machine that is busy with something else


def serve(port: int, slots: int) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model_file(None))
    params.model_alias = {BUNDLED}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = slots * TOKENS
    params.n_parallel = slots
    params.n_threads_http = 2 * slots + 4
    params.cache_ram_mib = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = True
    params.use_jinja = True
    params.ui = False
    params.offline = True
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while True:
        signal.pause()


@contextmanager
def running(slots: int, log: Path) -> Iterator[str]:
    """The address of such a server, once it is ready."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as file:
        command = [sys.executable, "-m", "tests.load.llamacpp", str(port), str(slots)]
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + _PATIENCE
            while not _is_ready(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise Broken(f"llama.cpp did not start:\n{log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.05)
            yield url
        finally:
            processes.end(process, signal.SIGTERM, patience=5)


def _is_ready(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=2) as response:
        return bool(response.status == 200)
    return False


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    serve(int(sys.argv[1]), int(sys.argv[2]))

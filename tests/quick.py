"""`parley serve` with the waits of tests, in one process or in several: `python -m tests.quick serve …`.

An operator has no use for these times, so they are no settings.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from backend import cli, main, serving
from backend.accounts.passwords import Passwords
from backend.conversations.turns import Timing
from backend.embedded import processes
from tests.site import CHEAP_PASSWORDS

TIMING = Timing(save_every=0.25, abandoned_after=1.25, reap_every=0.25, patience=10)


def _start_quick(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    return processes.start(["tests.quick" if word == "backend" else word for word in command], **options)


class _Processes:
    start = staticmethod(_start_quick)


def serve() -> int:
    timing = replace(TIMING, drain=float(os.environ.get("PARLEY_DRAIN_SECONDS", "10")))
    create = partial(main.create_app, timing=timing, passwords=Passwords(**CHEAP_PASSWORDS))
    with patch.object(serving, "create_app", create), patch.object(serving, "processes", _Processes):
        return cli.main()


if __name__ == "__main__":
    sys.exit(serve())

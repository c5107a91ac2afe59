"""What the tests measure: noted while they run, printed at the end, and written into docs/measurements.md on demand."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from backend.core.clock import now
from tests.load.report import DOCUMENT, Row, machine, markdown

VARIABLE = "PARLEY_TEST_NUMBERS"
"""The file that the tests note their numbers in; each line is a row."""

_BEGIN, _END = "<!-- written by `make test-vllm write=1`: begin -->", "<!-- end of test-vllm -->"


def note(row: Row) -> None:
    with Path(os.environ[VARIABLE]).open("a") as file:
        file.write(json.dumps(asdict(row)) + "\n")


def noted(file: Path) -> list[Row]:
    return [Row(**json.loads(line)) for line in file.read_text().splitlines()]


def write(rows: Sequence[Row], versions: str) -> None:
    text = DOCUMENT.read_text()
    before, _begin, rest = text.partition(_BEGIN)
    _old, _end, after = rest.partition(_END)
    told = f"Measured on {now():%Y-%m-%d} with {versions}; {machine()}."
    DOCUMENT.write_text(f"{before}{_BEGIN}\n\n{told}\n\n{markdown(rows)}\n\n{_END}{after}")

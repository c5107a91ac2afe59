"""What comes out: one table, one picture, and a page of documentation that keeps what people wrote around them."""

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "measurements.md"
PICTURE = DOCUMENT.parent / "pictures" / "first-text.svg"
_BEGIN, _END = "<!-- written by `make load write=1`: begin -->", "<!-- end -->"


@dataclass(frozen=True)
class Row:
    """One line of the table. `met` is None where there is no budget."""

    what: str
    measured: str
    must: str = ""
    met: bool | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        return {True: "met", False: "NOT MET", None: ""}[self.met]


@dataclass(frozen=True)
class Point:
    """Of the picture: people who started together, p99 until the first text in ms, and the budget for it."""

    people: int
    ms: float
    must: float | None


def at_most(
    what: str, value: float, must: float | None, unit: str, *, digits: int = 0, note: str = "", failed: int = 0
) -> Row:
    """A budget is not met by turns that failed, however quick they were."""
    note = "; ".join(part for part in (note, f"{failed} FAILED" if failed else "") if part)
    shown = f"{value:,.{digits}f} {unit}".strip()
    if must is None:
        return Row(what, shown, note=note)
    return Row(what, shown, f"≤ {must:g} {unit}".strip(), value <= must and not failed, note)


def at_least(what: str, value: float, must: float, unit: str, *, note: str = "", failed: int = 0) -> Row:
    note = "; ".join(part for part in (note, f"{failed} FAILED" if failed else "") if part)
    return Row(what, f"{value:,.0f} {unit}", f"≥ {must:,.0f} {unit}", value >= must and not failed, note)


def table(rows: Sequence[Row]) -> str:
    """For a terminal."""
    cells = [("what", "must", "measured", "", "")]
    cells += [(row.what, row.must, row.measured, row.verdict, row.note) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, [*widths, 0], strict=True)) for line in cells]
    return "\n".join(line.rstrip() for line in lines)


def markdown(rows: Sequence[Row]) -> str:
    lines = ["| what | must | measured | | how |", "|---|---|---|---|---|"]
    for row in rows:
        cells = (row.what, row.must, row.measured, f"**{row.verdict}**" if row.met is False else row.verdict, row.note)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def picture(points: Sequence[Point]) -> str:
    """Both axes double from line to line, so that a tenth and a ten-fold can be read alike."""
    from math import log2

    width, height, left, bottom = 560, 300, 56, 40
    numbers = [point.people for point in points]
    top = max(max(point.ms, point.must or 0) for point in points) * 1.5
    low = min(4.0, min(point.ms for point in points) / 1.5)

    def x(value: float) -> float:
        span = log2(max(numbers)) - log2(min(numbers)) or 1
        return left + (log2(value) - log2(min(numbers))) / span * (width - left - 30)

    def y(ms: float) -> float:
        return height - bottom - (log2(ms) - log2(low)) / (log2(top) - log2(low)) * (height - bottom - 20)

    def line(values: Sequence[tuple[int, float]], style: str) -> str:
        path = " ".join(f"{x(n):.1f},{y(ms):.1f}" for n, ms in values)
        return f'<polyline points="{path}" fill="none" {style}/>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12" fill="#555">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    mark = 1
    while mark <= top:
        if mark >= low:
            parts.append(f'<path d="M{left} {y(mark):.1f}H{width - 30}" stroke="#e5e5e5"/>')
            parts.append(f'<text x="{left - 8}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark} ms</text>')
        mark *= 2
    for point in points:
        parts.append(f'<text x="{x(point.people):.1f}" y="{height - 20}" text-anchor="middle">{point.people}</text>')
        parts.append(f'<circle cx="{x(point.people):.1f}" cy="{y(point.ms):.1f}" r="3.5" fill="#2563eb"/>')
        parts.append(
            f'<text x="{x(point.people):.1f}" y="{y(point.ms) - 9:.1f}" text-anchor="middle" fill="#2563eb">'
            f"{point.ms:.0f}</text>"
        )
    budget = [(point.people, point.must) for point in points if point.must]
    parts.append(line([(point.people, point.ms) for point in points], 'stroke="#2563eb" stroke-width="2"'))
    parts.append(line(budget, 'stroke="#b91c1c" stroke-dasharray="5 4"'))
    if budget:
        people, ms = budget[-1][0], budget[-1][1]
        parts.append(
            f'<text x="{x(people):.1f}" y="{y(ms) + 18:.1f}" text-anchor="middle" fill="#b91c1c">budget</text>'
        )
    parts.append(
        f'<text x="{(left + width) / 2}" y="{height - 4}" text-anchor="middle">'
        "people starting within 2 s; time to first text, 99th percentile</text></svg>"
    )
    return "\n".join(part for part in parts if part) + "\n"


def machine() -> str:
    """Where it was measured."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    memory = next((int(line.split()[1]) / 1024**2 for line in _lines("/proc/meminfo") if "MemTotal" in line), 0)
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, {platform.system()} {platform.release().split('-')[0]}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _revision() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=DOCUMENT.parent)
    return said.stdout.strip() or "unknown"


def section(rows: Sequence[Row], points: Sequence[Point], remarks: Sequence[str]) -> str:
    parts = [
        _BEGIN,
        f"Measured on {date.today():%Y-%m-%d} at revision {_revision()}, Python {platform.python_version()}, on "  # noqa: DTZ011
        f"{machine()}.",
        markdown(rows),
    ]
    if points:
        parts.append(f"![Time to first text over the number of people](pictures/{PICTURE.name})")
    parts += remarks
    return "\n\n".join(parts) + f"\n\n{_END}"


def spliced(document: str, written: str) -> str:
    """The document with its measured part replaced; everything outside the marks stays as people wrote it."""
    before, begin, rest = document.partition(_BEGIN)
    _old, end, after = rest.partition(_END)
    if not begin or not end:
        return f"{document.rstrip()}\n\n{written}\n"
    return before + written + after


def write(rows: Sequence[Row], points: Sequence[Point], remarks: Sequence[str]) -> None:
    if points:
        PICTURE.write_text(picture(points))
    DOCUMENT.write_text(spliced(DOCUMENT.read_text(), section(rows, points, remarks)))

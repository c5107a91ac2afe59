"""A measurement as a picture: three small charts side by side over the number of people, each with a scale from zero.

As a file it brings its own colours for light and dark; in a page the page's own rules dress it (`.chart`), because its
policy allows no style from elsewhere. Whoever does not see it hears the title and the description.
"""

import re
from collections.abc import Iterator, Sequence
from html import escape
from math import floor, log10
from typing import NamedTuple

from backend.bench.results import Level, Measurement
from backend.core.i18n import _
from backend.core.text import one_line

_WIDTH, _HEIGHT = 960, 250
_LEFT, _TOP, _INNER_WIDTH, _INNER_HEIGHT, _STEP = 52, 48, 236, 154, 316
_STYLE = (
    "svg{color-scheme:light dark;background:#fcfdfd}path{fill:none;stroke:#005c6a;stroke-width:2}"
    ".grid{stroke:#d9dfe0;stroke-width:1}.second{stroke:#ab7c3c;stroke-dasharray:5 4}circle{fill:#005c6a}"
    "circle.second{fill:#ab7c3c;stroke:none}text{fill:#414d51;font:12px system-ui,sans-serif}"
    ".strong{fill:#182428;font-weight:600}"
    "@media(prefers-color-scheme:dark){svg{background:#131718}path{stroke:#7cd2d6}.grid{stroke:#2c3436}"
    ".second{stroke:#d4a965}circle{fill:#7cd2d6}circle.second{fill:#d4a965}text{fill:#b3bdbe}.strong{fill:#e2e7e8}}"
)
# What no XML document may hold, even escaped.
_UNSAYABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _Series(NamedTuple):
    name: str
    values: Sequence[float | None]


class _Chart(NamedTuple):
    title: str
    series: Sequence[_Series]


def svg(measurement: Measurement, *, alone: bool = True, prefix: str = "bench") -> str:
    """A whole document, or (not `alone`) an element for a page, where `prefix` keeps its ids apart from others'."""
    title = _("{model} on {engine}").format(model=measurement.model, engine=measurement.engine)
    style = f"<style>{_STYLE}</style>" if alone else ""
    charts = "".join(
        "".join(_chart(chart, measurement.levels, _LEFT + column * _STEP))
        for column, chart in enumerate(_charts(measurement.levels))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart bench" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-labelledby="{prefix}-title {prefix}-desc">'
        f'<title id="{prefix}-title">{_text(title)}</title>'
        f'<desc id="{prefix}-desc">{_text(_described(measurement))}</desc>{style}{charts}</svg>'
    )


def _charts(levels: Sequence[Level]) -> tuple[_Chart, ...]:
    return (
        _Chart(_("Tokens/s for each"), (_Series(_("half of them"), [level.speed_p50 for level in levels]),)),
        _Chart(_("Tokens/s in all"), (_Series(_("in all"), [level.per_second for level in levels]),)),
        _Chart(
            _("Seconds to the first word"),
            (
                _Series(_("p50"), [level.first_p50 for level in levels]),
                _Series(_("p95"), [level.first_p95 for level in levels]),
            ),
        ),
    )


def _described(measurement: Measurement) -> str:
    lines = [
        _("{people} at once: {each} tokens/s each, {total} in all, first word after {wait} s (p95 {late} s).").format(
            people=level.people,
            each=_figure(level.speed_p50),
            total=_figure(level.per_second),
            wait=_figure(level.first_p50),
            late=_figure(level.first_p95),
        )
        for level in measurement.levels
    ]
    return " ".join([*lines, measurement.meaning])


def _chart(chart: _Chart, levels: Sequence[Level], left: int) -> Iterator[str]:
    highest = max((value for series in chart.series for value in series.values if value is not None), default=0.0)
    top = _round_up(highest)
    bottom = _TOP + _INNER_HEIGHT
    yield f'<text class="strong" x="{left}" y="18">{_text(chart.title)}</text>'
    for part in (0.0, 0.5, 1.0):
        y = bottom - part * _INNER_HEIGHT
        yield f'<path class="grid" d="M{left} {y:.1f}h{_INNER_WIDTH}"/>'
        yield f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{_figure(part * top)}</text>'
    places = [left + (number + 0.5) * _INNER_WIDTH / max(1, len(levels)) for number in range(len(levels))]
    for x, level in zip(places, levels, strict=True):
        yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{level.people}</text>'
    for number, series in enumerate(chart.series):
        yield from _line(series, places, bottom, top, "second" if number else "first")
    middle = left + _INNER_WIDTH / 2
    yield f'<text x="{middle:.1f}" y="{bottom + 38}" text-anchor="middle">{_text(_("people at once"))}</text>'
    if len(chart.series) > 1:
        kinds = (_("solid"), _("dashed"))
        names = ", ".join(f"{series.name} {kind}" for series, kind in zip(chart.series, kinds, strict=True))
        yield f'<text x="{left}" y="34">{_text(names)}</text>'


def _line(series: _Series, places: Sequence[float], bottom: int, top: float, style: str) -> Iterator[str]:
    points = [
        (x, bottom - value / top * _INNER_HEIGHT)
        for x, value in zip(places, series.values, strict=True)
        if value is not None
    ]
    if len(points) > 1:
        yield f'<path class="{style}" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + '"/>'
    for x, y in points:
        yield f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20 … so that the scale has readable numbers."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _text(text: str) -> str:
    return escape(_UNSAYABLE.sub("", one_line(text, 2_000)))

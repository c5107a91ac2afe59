"""How busy an engine is, as small charts beside the newest value in words."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from backend.core.i18n import _
from backend.engines.metrics import Load

_WIDTH, _HEIGHT = 120, 28

Values = Sequence[float | None]


@dataclass(frozen=True)
class Reading:
    name: str
    value: str  # the newest, in words
    beside: str  # small print
    picture: Markup


def readings(loads: Sequence[Load], prefix: str) -> list[Reading]:
    """Oldest first; what an engine never told is left out. `prefix` keeps the ids of the pictures apart."""
    if not loads:
        return []
    waiting = [load.waiting for load in loads]
    drawn = [
        _reading(_("Running"), [load.running for load in loads], _count, f"{prefix}-running", second=waiting),
        _reading(_("KV cache"), [load.kv for load in loads], _percent, f"{prefix}-kv", top=1.0),
        _reading(_("From the prefix cache"), [load.hit_rate for load in loads], _percent, f"{prefix}-hits", top=1.0),
        _reading(_("First token"), [load.ttft for load in loads], _seconds, f"{prefix}-ttft"),
        _reading(_("Tokens per second"), [load.tokens_per_second for load in loads], _count, f"{prefix}-speed"),
    ]
    return [reading for reading in drawn if reading]


def in_a_line(load: Load | None) -> str:
    """The newest values only; empty for an engine that tells nothing."""
    if load is None:
        return ""
    parts = [
        _("{count} running").format(count=load.running) if load.running is not None else "",
        _("{count} waiting").format(count=load.waiting) if load.waiting is not None else "",
        _("KV cache {share}").format(share=_percent(load.kv)) if load.kv is not None else "",
        _("{share} from the prefix cache").format(share=_percent(load.hit_rate)) if load.hit_rate is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def _reading(
    name: str, values: Values, words: Callable[[float], str], id_: str, *, top: float = 0.0, second: Values = ()
) -> Reading | None:
    known = [value for value in values if value is not None]
    others = [value for value in second if value is not None]
    if not known:
        return None
    newest = words(known[-1]) if values[-1] is not None else _("nothing new")
    beside = _("{count} waiting").format(count=_count(others[-1])) if others else ""
    top = top or max(*known, *others, 0.0) or 1.0
    said = _("Now {newest}; at most {most} in the last {count} readings.").format(
        newest=", ".join(filter(None, (newest, beside))), most=words(max(known)), count=len(values)
    )
    lines = [_path(values, top, ""), *([_path(second, top, "second")] if others else [])]
    picture = (
        f'<svg class="spark" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-labelledby="{id_}-title {id_}-desc"><title id="{id_}-title">{escape(name)}</title>'
        f'<desc id="{id_}-desc">{escape(said)}</desc>'
        f'<path class="base" d="M0 {_HEIGHT - 0.5}H{_WIDTH}"/>{"".join(lines)}</svg>'
    )
    return Reading(name, newest, beside, Markup(picture))  # noqa: S704 - numbers and our own words, escaped


def _path(values: Values, top: float, style: str) -> str:
    """A line with gaps where nothing was told; a value that stands alone is a short dash."""
    step = _WIDTH / max(1, len(values) - 1)
    drawn = "".join(_runs(values, top, step))
    return f'<path{f" class={chr(34)}{style}{chr(34)}" if style else ""} d="{drawn}"/>' if drawn else ""


def _runs(values: Values, top: float, step: float) -> Iterator[str]:
    run: list[str] = []
    for number, value in enumerate([*values, None]):
        if value is not None:
            run.append(f"{number * step:.1f} {_HEIGHT - 1 - min(value / top, 1.0) * (_HEIGHT - 3):.1f}")
        elif run:
            yield "M" + "L".join(run) + ("" if len(run) > 1 else "h2")
            run = []


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _percent(value: float) -> str:
    return f"{value * 100:.0f} %"


def _seconds(value: float) -> str:
    return _("{seconds} s").format(seconds=f"{value:.2f}" if value < 10 else f"{value:,.0f}")

"""A measurement as lines for a terminal."""

from collections.abc import Iterator

from backend.bench.results import Level, Measurement
from backend.core.i18n import _, ngettext

_HEAD = (
    ("", "", _("first word"), "", _("tokens/s"), "", "", "", ""),
    (
        _("people"),
        _("answers"),
        _("p50"),
        _("p95"),
        _("each p50"),
        _("each p5"),
        _("in all"),
        _("failed"),
        _("seconds"),
    ),
)
_WIDTHS = (7, 8, 11, 9, 10, 9, 9, 7, 9)


def head() -> Iterator[str]:
    for cells in _HEAD:
        yield _line(*cells)


def row(level: Level) -> str:
    about = "~" if level.estimated else ""
    return _line(
        f"{level.people}",
        f"{level.answered}",
        figure(level.first_p50, 2, " s"),
        figure(level.first_p95, 2, " s"),
        about + figure(level.speed_p50, 1),
        about + figure(level.speed_p5, 1),
        f"{about}{level.per_second:,.1f}",
        f"{level.failed or '-'}",
        f"{level.seconds:.1f}",
    )


def foot(measurement: Measurement) -> Iterator[str]:
    """What went wrong, what it means, and what one has to know to compare it."""
    for level in measurement.levels:
        for sentence, count in level.failures.items():
            yield _("{count} of the answers for {people} failed: {sentence}").format(
                count=count, people=level.people, sentence=sentence
            )
    yield ""
    yield measurement.meaning
    if measurement.levels:
        yield ""
        yield from conditions(measurement)


def conditions(measurement: Measurement) -> Iterator[str]:
    plan = measurement.plan
    questions = ngettext("one question", "{count} questions", plan.turns).format(count=plan.turns)
    yield _(
        "Each person asked {questions} in one chat and got at most {tokens} tokens to each; all of a line asked at the "
        "same moment."
    ).format(questions=questions, tokens=plan.answer_tokens)
    yield _(
        "Every chat began with a mark that is new in this run ({mark}), so no engine answered from what it read in an "
        "earlier one; within a chat its cache helped as it helps people."
    ).format(mark=measurement.mark)
    if measurement.warm_up is not None:
        yield _("A first short answer, which is not counted, took {seconds} s.").format(
            seconds=f"{measurement.warm_up:.1f}"
        )
    if measurement.thinks:
        yield _("The model thinks before it answers: its first word is one of its thoughts.")
    if measurement.estimated:
        yield _("~ is an estimate: the engine sent no count, and 3.5 characters were taken for a token.")


def figure(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:,.{digits}f}{unit}"


def _line(*cells: str) -> str:
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()

"""What the numbers mean, in two or three sentences: where it is comfortable, what comes first beyond that, and what a
benchmark with one request at a time would have made of it."""

from itertools import takewhile

from backend.bench.results import Ended, Level, Measurement
from backend.core.i18n import _, ngettext

READING = 15.0
"""Tokens/s. Fast readers take in about 5 words, 7 tokens, a second; at twice that nobody waits for the text."""

PATIENCE = 5.0
"""Seconds until the first word. After more than that people begin to do something else."""

_FULL = 0.9  # of the highest total: from there on more people only share it


def of(measurement: Measurement) -> str:
    """Empty as long as there is nothing to say."""
    levels = measurement.levels
    if not levels:
        return _nothing(measurement)
    said = [_comfort(levels), _alone(levels), _end(measurement.ended)]
    if measurement.estimated:
        said.append(_("The engine did not count its tokens; their numbers are estimates from the length of the text."))
    return " ".join(filter(None, said))


def is_comfortable(level: Level) -> bool:
    """Whether everybody got an answer, after a short wait, at more than reading speed. An answer that came in one piece
    has no speed and is as fast as one can read."""
    return (
        not level.failed
        and level.answered > 0
        and (level.speed_p50 is None or level.speed_p50 >= READING)
        and (level.first_p95 is None or level.first_p95 <= PATIENCE)
    )


def _nothing(measurement: Measurement) -> str:
    if measurement.ended is None:
        return ""
    if measurement.problem:
        return _("Nothing could be measured: {problem}").format(problem=measurement.problem)
    return _("It ended before there was anything to measure.")


def _comfort(levels: tuple[Level, ...]) -> str:
    good = list(takewhile(is_comfortable, levels))
    beyond = levels[len(good)] if len(good) < len(levels) else None
    if not good:
        assert beyond is not None
        return _("Even for {people} it is not comfortable: {why}.").format(
            people=_people(beyond.people), why=_why(beyond)
        )
    speeds = [level.speed_p50 for level in good if level.speed_p50 is not None]
    waits = [level.first_p95 for level in good if level.first_p95 is not None]
    said = _up_to(good[-1].people).format(
        people=good[-1].people,
        speed=_speed(min(speeds, default=None)),
        wait=_seconds(max(waits, default=None)),
    )
    if beyond is None:
        return said + _("; more were not tried.")
    return said + _("; with {people}, {why}.").format(people=_number(beyond.people), why=_why(beyond))


def _up_to(people: int) -> str:
    if people == 1:
        return _("One person alone reads at {speed} and waits at most {wait} for the first word")
    return _("Up to {people} people at once each read at {speed} and wait at most {wait} for the first word")


def _why(level: Level) -> str:
    """The worst of what is not comfortable."""
    if level.failed:
        asked = level.answered + level.failed + level.unfinished
        return _("{failed} of {asked} answers failed").format(failed=level.failed, asked=asked)
    if level.first_p95 is not None and level.first_p95 > PATIENCE:
        return _("one in twenty waits {wait} or longer for the first word").format(wait=_seconds(level.first_p95))
    return _("each reads at {speed}").format(speed=_speed(level.speed_p50))


def _alone(levels: tuple[Level, ...]) -> str:
    """What one request at a time says, beside what many together get."""
    alone, last = levels[0], levels[-1]
    if alone.people != 1 or len(levels) < 2 or not alone.answered:
        return ""
    most = max(level.per_second for level in levels)
    full = next(level for level in levels if level.per_second >= _FULL * most)
    said = _("A benchmark with one request at a time would have said {speed} and {wait} to the first word").format(
        speed=_speed(alone.speed_p50), wait=_seconds(alone.first_p50)
    )
    if full.people == 1:
        shared = _(", and hidden that several people only share that: in all it writes no more for them ({total}).")
        return said + shared.format(total=_speed(most))
    each = _(", while each of {people} gets {speed} after {wait}").format(
        people=_number(last.people), speed=_speed(last.speed_p50), wait=_seconds(last.first_p50)
    )
    total = _("; in all the engine writes up to {total}, reached with {people}.").format(
        total=_speed(most), people=_people(full.people)
    )
    return said + each + total


def _end(ended: Ended | None) -> str:
    match ended:
        case Ended.TIME:
            return _("The time was over before all of it was measured.")
        case Ended.TOKENS:
            return _("More people would have taken more tokens than allowed.")
        case Ended.FAILED:
            return _("The last step brought no answer at all, so it was the last.")
        case Ended.CANCELLED:
            return _("It was ended by hand.")
        case Ended.PEOPLE:
            return _("It was ended because people were waiting for the model.")
        case Ended.LOST:
            return _("It broke off, because the process that measured ended.")
        case _:
            return ""


def _people(count: int) -> str:
    return ngettext("one person", "{count} people", count).format(count=count)


def _number(count: int) -> str:
    return _("one") if count == 1 else f"{count:,}"


def _speed(speed: float | None) -> str:
    """An answer that came in one piece has none."""
    if speed is None:
        return _("no measurable speed")
    return _("{speed} tokens/s").format(speed=f"{speed:,.0f}" if speed >= 10 else f"{speed:.1f}")


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return _("an unknown time")
    return _("{seconds} s").format(
        seconds=f"{seconds:.0f}"
        if seconds >= 10
        else f"{seconds:.1f}"
        if seconds >= 1
        else f"{seconds:.2f}"
        if seconds >= 0.01
        else f"{seconds:.3f}"
    )

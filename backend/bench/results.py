"""What a measurement found: one `Sample` for each answer, one `Level` for each number of people, the whole as JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from backend.bench import plan as plans
from backend.bench.plan import Plan
from backend.engines.events import Usage
from backend.usage.service import estimate

FORMAT = 1


class Ended(StrEnum):
    """Why a measurement came to its end."""

    DONE = "done"
    TIME = "time"
    TOKENS = "tokens"
    FAILED = "failed"  # no answer came at all for one number of people
    CANCELLED = "cancelled"
    PEOPLE = "people"  # somebody waited for this model, and people go first
    LOST = "lost"  # the process that measured is gone


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. Times are seconds on one clock; `first` is the first text of whatever kind, thinking included."""

    asked: float
    ended: float
    first: float | None = None
    last: float | None = None
    characters: int = 0
    prompt_characters: int = 0
    usage: Usage | None = None
    failure: str | None = None
    finished: bool = False
    thought: bool = False

    @property
    def tokens(self) -> int:
        return self.usage.completion_tokens if self.usage else estimate(self.characters)

    @property
    def prompt_tokens(self) -> int:
        return self.usage.prompt_tokens if self.usage else estimate(self.prompt_characters)

    @property
    def wait(self) -> float | None:
        return None if self.first is None else self.first - self.asked

    @property
    def speed(self) -> float | None:
        """Tokens/s while it was written: those after the first, by the time they took. None if all came at once."""
        if self.first is None or self.last is None or self.last <= self.first or self.tokens < 2:
            return None
        return (self.tokens - 1) / (self.last - self.first)


@dataclass(frozen=True, slots=True)
class Level:
    """`people` who all waited for answers at the same time."""

    people: int
    seconds: float
    answered: int
    unfinished: int  # cut off by the end of the measurement, not by the engine
    failures: dict[str, int]
    first_p50: float | None
    first_p95: float | None
    speed_p50: float | None
    speed_p5: float | None  # 19 of 20 answers were faster
    per_second: float
    prompt_tokens: int
    cached_tokens: int | None
    completion_tokens: int
    estimated: bool  # the engine did not count (all of) them

    @property
    def failed(self) -> int:
        return sum(self.failures.values())


@dataclass(frozen=True, slots=True)
class Measurement:
    """The record. `ended` is None while it runs."""

    made_at: datetime
    engine: str
    kind: str | None
    version: str | None
    model: str
    mark: str
    plan: Plan
    levels: tuple[Level, ...] = ()
    ended: Ended | None = None
    warm_up: float | None = None
    problem: str = ""
    thinks: bool = False
    meaning: str = field(default="", compare=False)

    @property
    def estimated(self) -> bool:
        return any(level.estimated for level in self.levels)

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "made_at": self.made_at.isoformat(timespec="seconds"),
            "engine": self.engine,
            "kind": self.kind,
            "version": self.version,
            "model": self.model,
            "mark": self.mark,
            "plan": self.plan.as_json(),
            "warm_up_seconds": self.warm_up,
            "levels": [asdict(level) for level in self.levels],
            "ended": self.ended,
            "problem": self.problem,
            "thinks": self.thinks,
            "estimated": self.estimated,
            "meaning": self.meaning,
        }


def from_json(stored: Mapping[str, Any]) -> Measurement:
    return Measurement(
        made_at=datetime.fromisoformat(stored["made_at"]),
        engine=stored["engine"],
        kind=stored["kind"],
        version=stored["version"],
        model=stored["model"],
        mark=stored["mark"],
        plan=plans.from_json(stored["plan"]),
        levels=tuple(Level(**level) for level in stored["levels"]),
        ended=Ended(stored["ended"]) if stored["ended"] else None,
        warm_up=stored["warm_up_seconds"],
        problem=stored["problem"],
        thinks=stored["thinks"],
        meaning=stored["meaning"],
    )


def level_of(people: int, samples: Sequence[Sample]) -> Level:
    """The figures of one level. Waits and speeds are of whole answers; the total counts what was written of others."""
    whole = [sample for sample in samples if sample.finished]
    waits = [sample.wait for sample in whole if sample.wait is not None]
    speeds = [sample.speed for sample in whole if sample.speed is not None]
    begun = min((sample.asked for sample in samples), default=0.0)
    seconds = max((sample.ended for sample in samples), default=0.0) - begun
    tokens = sum(sample.tokens for sample in samples)
    cached = [sample.usage.cached_tokens for sample in whole if sample.usage and sample.usage.cached_tokens is not None]
    return Level(
        people=people,
        seconds=round(seconds, 3),
        answered=len(whole),
        unfinished=sum(not sample.finished and sample.failure is None for sample in samples),
        failures=dict(Counter(sample.failure for sample in samples if sample.failure is not None)),
        first_p50=percentile(waits, 50),
        first_p95=percentile(waits, 95),
        speed_p50=percentile(speeds, 50),
        speed_p5=percentile(speeds, 5),
        per_second=round(tokens / seconds, 3) if seconds > 0 else 0.0,
        prompt_tokens=sum(sample.prompt_tokens for sample in samples),
        cached_tokens=sum(cached) if cached else None,
        completion_tokens=tokens,
        estimated=any(sample.usage is None and sample.characters for sample in samples),
    )


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Between the two nearest values (linear interpolation), as numpy's default."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return round(ordered[below] + (ordered[above] - ordered[below]) * (place - below), 4)

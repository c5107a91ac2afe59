"""Levels and measurements made up for tests that are not about measuring."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from backend.bench import meaning
from backend.bench.plan import Plan
from backend.bench.results import Ended, Level, Measurement


def level(people: int, **changed: Any) -> Level:
    """Everybody is served well, unless `changed`."""
    usual = Level(
        people=people,
        seconds=10,
        answered=people * 3,
        unfinished=0,
        failures={},
        first_p50=0.2,
        first_p95=0.4,
        speed_p50=50.0,
        speed_p5=45.0,
        per_second=40.0 * people,
        prompt_tokens=1_000 * people,
        cached_tokens=500 * people,
        completion_tokens=300 * people,
        estimated=False,
    )
    return replace(usual, **changed)


def measurement(*levels: Level, **changed: Any) -> Measurement:
    found = Measurement(
        made_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
        engine="gpu-1",
        kind="vllm",
        version="0.32.0",
        model="linden-8b",
        mark="0123456789ab",
        plan=Plan(tuple(each.people for each in levels) or (1,)),
        levels=levels,
        ended=Ended.DONE,
        warm_up=0.5,
    )
    found = replace(found, **changed)
    return replace(found, meaning=meaning.of(found))

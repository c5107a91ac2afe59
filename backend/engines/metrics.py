"""How much an engine has to do: its own numbers, read in the background.

Every kind has names of its own for the same things, some have had others before, and some tell nothing. Counters are
turned into rates between two readings. What an engine writes here is hostile until proved otherwise: it is bounded by
the client, read with one expression that runs through it once, and what is no sensible number is passed over.
"""

import math
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cache

import orjson

from backend.core.clock import now
from backend.engines.events import EngineFailed, Failure

KEPT = 60
"""Readings an engine's charts are drawn from: ten minutes, if it is looked at every ten seconds."""

_MOST_SLOTS = 100_000


class Number(StrEnum):
    """What Parley wants to know. Gauges first, then counters, of which only the growth tells something."""

    RUNNING = "running"
    WAITING = "waiting"
    KV = "kv"  # share of the KV cache in use
    HIT_RATE = "hit_rate"
    TTFT_SUM = "ttft_sum"  # seconds
    TTFT_COUNT = "ttft_count"
    GENERATED = "generated"  # tokens
    HITS = "hits"  # tokens of prompts that were found in the prefix cache
    QUERIES = "queries"  # tokens of prompts that were looked for
    MISSES = "misses"  # tokens that were not found, where that is what is counted


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where a kind tells its numbers, and under which names; of several names the first that is there counts."""

    path: str
    names: Mapping[Number, tuple[str, ...]]
    tells_slots: bool = False
    """On llama.cpp's pages `/slots` and `/props`."""
    missing: str = ""
    """What to do where it does not tell them."""


_SHARES = frozenset({Number.KV, Number.HIT_RATE})

Numbers = Mapping[Number, float]


@dataclass(frozen=True, slots=True)
class Load:
    """How busy an engine was at one moment, or since the reading before; None where it does not tell."""

    at: datetime
    running: int | None = None
    waiting: int | None = None
    kv: float | None = None  # share of the KV cache in use, 0 to 1
    hit_rate: float | None = None  # share of the prompts that came from the prefix cache, 0 to 1
    ttft: float | None = None  # seconds to the first token, of the answers that began since the reading before
    tokens_per_second: float | None = None  # written, for everybody together
    slots: int | None = None  # answers at once


@dataclass(frozen=True, slots=True)
class Slots:
    """What llama.cpp tells of its slots, also when its metrics are switched off."""

    count: int
    running: int | None = None
    kv: float | None = None


@dataclass(slots=True)
class Readings:
    """The last readings of one engine. One that fails replaces nothing: the last good one only grows older."""

    clock: Callable[[], float] = time.monotonic
    loads: deque[Load] = field(default_factory=lambda: deque(maxlen=KEPT))
    ours: int = 0  # answers of this process that ran there at the last reading
    _numbers: Numbers = field(default_factory=dict)
    _read_at: float = -math.inf

    @property
    def load(self) -> Load | None:
        return self.loads[-1] if self.loads else None

    @property
    def age(self) -> float:
        """Seconds since the last good reading."""
        return self.clock() - self._read_at

    def add(self, numbers: Numbers, slots: Slots | None, *, ours: int) -> None:
        at, before = self.clock(), self._numbers
        self.loads.append(load_of(numbers, before, at - self._read_at, slots))
        self.ours, self._numbers, self._read_at = ours, numbers, at


Fetch = Callable[[str], Awaitable[bytes]]


async def read(fetch: Fetch, metrics: Metrics | None) -> tuple[Numbers, Slots | None] | None:
    """The numbers of an engine; None where there are none. `fetch` gets a page by its path.

    Raises EngineFailed when an engine that could tell them does not.
    """
    if metrics is None:
        return None
    if metrics.tells_slots:
        return await _with_slots(fetch, metrics)
    numbers = parse(await fetch(metrics.path), metrics)
    return (numbers, None) if numbers else None


async def _with_slots(fetch: Fetch, metrics: Metrics) -> tuple[Numbers, Slots | None]:
    """Either page may be switched off. A router in front of several models answers them for none."""
    slots = None
    try:
        slots = read_slots(await fetch("slots"))
    except EngineFailed as failure:
        if failure.kind is Failure.UNREACHABLE:
            raise
    if slots is None:
        slots = read_props(await fetch("props"))
    try:
        return parse(await fetch(metrics.path), metrics), slots
    except EngineFailed:
        if slots is None:
            raise
        return {}, slots


def parse(text: bytes, metrics: Metrics) -> dict[Number, float]:
    """The numbers on a page in the format of Prometheus, those of several engines or models behind it together."""
    found: dict[str, list[float]] = {}
    for name, digits in _expression(tuple(sorted(_all(metrics.names.values())))).findall(text):
        value = _number(digits)
        if value is not None:
            found.setdefault(name.decode(), []).append(value)
    numbers: dict[Number, float] = {}
    for number, names in metrics.names.items():
        values = next((found[name] for name in names if name in found), None)
        if values is not None:
            numbers[number] = min(sum(values) / len(values), 1.0) if number in _SHARES else sum(values)
    return numbers


def load_of(numbers: Numbers, before: Numbers, seconds: float, slots: Slots | None = None) -> Load:
    """What was read, and what grew in the `seconds` since `before` was. A counter that shrank began anew."""
    grown = {name: numbers[name] - before[name] for name in numbers.keys() & before.keys()}
    if any(grown.get(name, 0) < 0 for name in (Number.TTFT_COUNT, Number.GENERATED, Number.QUERIES, Number.MISSES)):
        grown = {}
    hits, queries = grown.get(Number.HITS), grown.get(Number.QUERIES)
    if hits is not None and queries is None and Number.MISSES in grown:
        queries = hits + grown[Number.MISSES]
    running = _whole(numbers.get(Number.RUNNING))
    return Load(
        at=now(),
        running=running if running is not None or slots is None else slots.running,
        waiting=_whole(numbers.get(Number.WAITING)),
        kv=numbers.get(Number.KV, slots.kv if slots else None),
        hit_rate=_share(hits, queries) if queries is not None else numbers.get(Number.HIT_RATE),
        ttft=_ratio(grown.get(Number.TTFT_SUM), grown.get(Number.TTFT_COUNT)),
        tokens_per_second=_ratio(grown.get(Number.GENERATED), seconds),
        slots=slots.count if slots else None,
    )


def read_slots(body: bytes) -> Slots | None:
    """llama.cpp's `/slots`: what each of them does, and how much of its context is in use."""
    entries = _json(body)
    if not isinstance(entries, list) or not 0 < len(entries) <= _MOST_SLOTS:
        return None
    used, size, running = 0, 0, 0
    for entry in entries:
        if not isinstance(entry, dict):
            return None
        size += _tokens(entry.get("n_ctx"))
        if entry.get("is_processing") is True:
            running += 1
            used += _tokens(entry.get("n_prompt_tokens")) + _decoded(entry.get("next_token"))
    return Slots(len(entries), running, min(used / size, 1.0) if size else None)


def read_props(body: bytes) -> Slots | None:
    """llama.cpp's `/props`: at least how many slots there are."""
    props = _json(body)
    count = props.get("total_slots") if isinstance(props, dict) else None
    return Slots(count) if type(count) is int and 0 < count <= _MOST_SLOTS else None


def _decoded(said: object) -> int:
    first = said[0] if isinstance(said, list) and said else said
    return _tokens(first.get("n_decoded")) if isinstance(first, dict) else 0


def _tokens(value: object) -> int:
    return value if type(value) is int and 0 <= value < 2**31 else 0


@cache
def _expression(names: tuple[str, ...]) -> re.Pattern[bytes]:
    """Lines that begin with one of `names`, whatever the labels. No part of it can match the same bytes twice."""
    listed = "|".join(re.escape(name) for name in names)
    return re.compile(
        rf"^({listed})(?:\{{[^\n]*\}})?[ \t]+([0-9][0-9.eE+-]{{0,40}})(?=[ \t\r\n]|\Z)".encode(), re.MULTILINE
    )


def _all(groups: Iterable[tuple[str, ...]]) -> set[str]:
    return {name for names in groups for name in names}


def _number(digits: bytes) -> float | None:
    try:
        value = float(digits)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _whole(value: float | None) -> int | None:
    return round(min(value, 1_000_000)) if value is not None else None


def _ratio(part: float | None, of: float | None) -> float | None:
    return part / of if part is not None and of and part >= 0 and math.isfinite(of) else None


def _share(part: float | None, of: float | None) -> float | None:
    ratio = _ratio(part, of)
    return min(ratio, 1.0) if ratio is not None else None


def _json(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None

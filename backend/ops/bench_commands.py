"""`parley bench` and `parley capacity` as the shell sees them: options, what is printed, files that are written.

What measures and reckons is imported when it runs, as everywhere on the command line.
"""

import argparse
import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from backend.core.errors import BadInput
from backend.core.settings import Settings

if TYPE_CHECKING:
    from backend.bench.capacity import Setup, Shape

Database = Callable[[], str]  # the address of ours; asked for only where an engine is named
Say = Callable[[str], None]

# As in `backend/bench/capacity.py`, which takes longer to load than to be said again; a test compares.
WEIGHTS = ("f32", "f16", "fp8", "int4", "q8_0", "q6_k", "q5_k_m", "q4_k_m")
CACHES = ("f16", "fp8", "q8_0", "q4_0")

_INTERRUPTED = 130  # as shells count


def add_bench_options(bench: argparse.ArgumentParser) -> None:
    bench.add_argument("engine", help="its name in the pages, or an address like http://gpu-1:8000")
    bench.add_argument("--model", default="", help="what the engine calls it; needed where it serves several")
    bench.add_argument("--people", type=int, default=8, metavar="N", help="measure 1, 2, 4 … N people at once (8)")
    bench.add_argument("--turns", type=int, default=3, metavar="N", help="questions in each chat (3)")
    bench.add_argument("--answer-tokens", type=int, default=128, metavar="N", help="the longest answer (128)")
    bench.add_argument("--seconds", type=int, default=300, metavar="N", help="end after this long (300)")
    bench.add_argument("--tokens", type=int, default=1_000_000, metavar="N", help="use no more than this (1000000)")
    bench.add_argument("--svg", type=Path, metavar="FILE", help="draw a picture of it")
    bench.add_argument("--json", type=Path, metavar="FILE", help="write the record")
    _add_key_options(bench)


def add_capacity_options(capacity: argparse.ArgumentParser) -> None:
    capacity.add_argument("engine", nargs="?", help="ask a running engine; else give the numbers")
    capacity.add_argument("--model", default="", metavar="NAME", help='a known one, like "Llama 3.1 8B"')
    capacity.add_argument("--config", type=Path, metavar="FILE", help="the config.json of a model")
    capacity.add_argument("--parameters", type=float, metavar="BILLIONS")
    for name in ("layers", "kv-heads", "head-size"):
        capacity.add_argument(f"--{name}", type=int, metavar="N")
    capacity.add_argument("--vram", type=float, default=24, metavar="GIB", help="memory of one GPU (24)")
    capacity.add_argument("--gpus", type=int, default=1, metavar="N", help="over which the model is spread (1)")
    capacity.add_argument("--weights", default="f16", choices=WEIGHTS, help="how they are stored (f16)")
    capacity.add_argument("--cache", default="f16", choices=CACHES, help="how the KV cache is stored (f16)")
    capacity.add_argument("--context", type=int, default=8_192, metavar="TOKENS", help="of one conversation (8192)")
    capacity.add_argument("--share", type=float, default=0.92, help="of the memory that the engine takes (0.92)")
    capacity.add_argument("--working", type=float, default=2.5, metavar="GIB", help="per GPU, to compute with (2.5)")
    _add_key_options(capacity)


def _add_key_options(command: argparse.ArgumentParser) -> None:
    """Where the key is, never the key: every user of a host can read what stands on a command line."""
    key = command.add_mutually_exclusive_group()
    key.add_argument("--key-env", metavar="NAME", help="the environment variable that holds the engine's key")
    key.add_argument("--key-file", type=Path, metavar="FILE", help="the file that holds it")


def measure(chosen: argparse.Namespace, settings: Settings, *, database: Database, say: Say) -> int:
    """The exit code."""
    from backend.bench import chart, plan, table
    from backend.bench.results import Ended, Measurement
    from backend.ops import bench

    def begin(measurement: Measurement) -> None:
        kind = " ".join(filter(None, (measurement.kind, measurement.version)))
        say(f"{measurement.model} on {measurement.engine} ({kind})\n")
        for line in table.head():
            say(line)

    _check_can_be_written(chosen.svg, chosen.json)
    wanted = plan.make(
        people=chosen.people,
        turns=chosen.turns,
        answer_tokens=chosen.answer_tokens,
        seconds=chosen.seconds,
        tokens=chosen.tokens,
    )
    found = asyncio.run(
        bench.measure(
            settings,
            chosen.engine,
            wanted,
            database=database,
            model=chosen.model,
            key=bench.Key(chosen.key_env, chosen.key_file),
            on_begin=begin,
            on_level=lambda level: say(table.row(level)),
        )
    )
    for line in table.foot(found):
        say(line)
    if chosen.svg:
        chosen.svg.write_text(chart.svg(found), encoding="utf-8")
    if chosen.json:
        chosen.json.write_text(json.dumps(found.as_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if found.ended is Ended.CANCELLED:
        return _INTERRUPTED
    return 0 if any(level.answered for level in found.levels) else 1


def capacity(chosen: argparse.Namespace, settings: Settings, *, database: Database, say: Say) -> None:
    from backend.bench import words
    from backend.ops import bench

    if not chosen.engine:
        lines = words.terminal(_setup(chosen))
    else:
        key = bench.Key(chosen.key_env, chosen.key_file)
        room = asyncio.run(bench.room(settings, chosen.engine, database=database, key=key))
        if room is None:
            raise BadInput("This engine does not say how much room it has. Leave it out and give the numbers.")
        lines = words.terminal_of(room, chosen.context)
    for line in lines:
        say(line)


def _check_can_be_written(*files: Path | None) -> None:
    """Before anything is measured for minutes."""
    for file in files:
        if file and (file.is_dir() or not os.access(file if file.exists() else file.absolute().parent, os.W_OK)):
            raise BadInput(f"{file} cannot be written.")


def _setup(chosen: argparse.Namespace) -> "Setup":
    """Numbers that are given count more than those of a known model."""
    from backend.bench import capacity

    shape = _shape(chosen)
    known = (shape.parameters / 1e9, shape.layers, shape.kv_heads, shape.head_size) if shape else (None,) * 4
    parameters = chosen.parameters or known[0]
    layers, kv_heads, head_size = chosen.layers or known[1], chosen.kv_heads or known[2], chosen.head_size or known[3]
    if not (parameters and layers and kv_heads and head_size):
        raise BadInput(
            "Give --model, or --config with --parameters, or all of --parameters, --layers, --kv-heads, --head-size."
        )
    return capacity.make(
        parameters=parameters,
        layers=layers,
        kv_heads=kv_heads,
        head_size=head_size,
        vram=chosen.vram,
        gpus=chosen.gpus,
        share=chosen.share,
        working=chosen.working,
        context=chosen.context,
        weights=capacity.Weights(chosen.weights),
        cache=capacity.Cache(chosen.cache),
    )


def _shape(chosen: argparse.Namespace) -> "Shape | None":
    from backend.bench import capacity

    if chosen.config:
        try:
            config = json.loads(chosen.config.read_text())
        except (OSError, ValueError) as error:
            raise BadInput(f"{chosen.config} cannot be read: {error}.") from error
        if not isinstance(config, dict):
            raise BadInput(f"{chosen.config} is not the config.json of a model.")
        return capacity.shape_of(config, (chosen.parameters or 0) * 1e9)
    if chosen.model and chosen.model not in capacity.SHAPES:
        raise BadInput(f"Known models are: {', '.join(capacity.SHAPES)}. For another one give its numbers.")
    return capacity.SHAPES.get(chosen.model)

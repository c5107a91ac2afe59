"""`python -m tests.load`: measure the product as it is in this folder, and say which budgets it meets."""

import argparse
import sys
import time

import uvloop

from tests.load import report
from tests.load.client import Broken
from tests.load.machine import PINNED, speed
from tests.load.product import Product
from tests.load.report import Row
from tests.load.scenarios import LONG, SCENARIOS, Bench, profile


async def _measure(chosen: argparse.Namespace) -> int:
    began = time.monotonic()
    rows: list[Row] = []
    with Product() as product:
        bench = Bench(product, chosen.quick)
        await bench.prepare()
        for name in chosen.scenario or (name for name in SCENARIOS if not (chosen.quick and name in LONG)):
            since = time.monotonic()
            try:
                found = await SCENARIOS[name](bench)
            except Broken as broken:
                found = [Row(name, str(broken), met=False)]
            rows += found
            print(f"{name} ({time.monotonic() - since:.0f} s)\n{report.table(found)}\n", flush=True)
    print(f"speed of the product's core at the end: {speed():.1f} M steps/s")
    where = "web and database on one core, engine and client on another" if PINNED else "everything on one core"
    print(f"{report.machine()}; {where}; {time.monotonic() - began:.0f} s in all\n\n{report.table(rows)}")
    if chosen.write:
        report.write(rows, bench.points, bench.remarks)
    else:
        print("\n" + "\n\n".join(bench.remarks))
    missed = [row.what for row in rows if row.met is False]
    print(f"\n{sum(row.met is True for row in rows)} met, {len(missed)} not met")
    return 1 if missed else 0


async def _profile(what: str, people: int) -> int:
    with Product(sampled=True) as product:
        print(await profile(Bench(product, quick=True), what, people))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the essentials, in a minute and a half")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="only this one; may be repeated")
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurements.md")
    parser.add_argument(
        "--profile", choices=("turns", "new", "stream", "crowd", "api"), help="instead: where web's CPU time goes"
    )
    parser.add_argument("--people", type=int, default=128, help="for the profile of a stream or a crowd")
    chosen = parser.parse_args()
    if chosen.write and (chosen.quick or chosen.scenario):
        parser.error("what is written down is the whole of it, so --write goes without --quick and --scenario")
    if sys.platform != "linux":
        parser.error("the figures are read from /proc, so this needs Linux")
    return uvloop.run(_profile(chosen.profile, chosen.people) if chosen.profile else _measure(chosen))


if __name__ == "__main__":
    sys.exit(main())

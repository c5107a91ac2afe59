"""What is measured, one function each; the budgets stand beside what they are about."""

import asyncio
import gc
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from statistics import median

from tests.load import sampler
from tests.load.affinity import measure as measured_affinity
from tests.load.client import Broken, Outcome, Person, Program
from tests.load.engine import pieces, plan
from tests.load.machine import Meter, speed
from tests.load.product import EMAIL, HOST, PASSWORD, Account, Product
from tests.load.report import Point, Row, at_least, at_most

_SPREAD = 2.0  # seconds within which a crowd starts
_PACE = 20  # tokens a second, as fast as people read
_marks = count(1)


def percentile(values: Iterable[float], share: float) -> float:
    """The nearest rank: a value that was measured."""
    ranked = sorted(values)
    return ranked[min(int(len(ranked) * share), len(ranked) - 1)] if ranked else 0.0


@dataclass
class Bench:
    """The product, and the people in front of it."""

    product: Product
    quick: bool
    accounts: list[Account] = field(default_factory=list)
    model: str = ""
    points: list[Point] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    idle_cpu: dict[str, float] = field(default_factory=dict)  # seconds a second
    idle_memory: float = 0

    async def prepare(self) -> None:
        """One person signs in as people do; the others find themselves signed in."""
        await self.product.until_offered()
        admin = Person(HOST, self.product.port)
        await admin.sign_in(EMAIL, PASSWORD)
        await admin.open()
        self.model = admin.model
        admin.close()
        if not self.accounts:  # a company that has been using it for a while
            self.accounts = await self.product.add_people(100)
            await self.product.add_conversations([one.id for one in self.accounts], 20, "What did we decide? " * 20)

    async def people(self, number: int) -> list[Person]:
        return [self.person(account) for account in await self.some_accounts(number)]

    async def some_accounts(self, number: int) -> list[Account]:
        if len(self.accounts) < number:
            self.accounts += await self.product.add_people(number - len(self.accounts))
        return self.accounts[:number]

    def person(self, account: Account) -> Person:
        person = Person(HOST, self.product.port, account.token)
        person.model = self.model
        return person

    def times(self, whole: int, quick: int) -> int:
        return quick if self.quick else whole


def new_mark() -> str:
    return f"t{next(_marks)}"


def question(kind: str, tokens: int, pace: int) -> tuple[str, str]:
    """A text that asks the engine for this answer, and its mark."""
    mark = new_mark()
    return f"{plan(mark, kind, tokens, pace)}: what did we decide about the plan, and why?", mark


def failed(outcomes: Sequence[Outcome]) -> int:
    """How many. Raises `Broken` when it is all of them: then there is nothing to measure."""
    problems = [outcome.problem for outcome in outcomes if outcome.problem]
    if outcomes and len(problems) == len(outcomes):
        raise Broken(f"every turn failed: {problems[0]}")
    return len(problems)


@dataclass
class Crowd:
    outcomes: list[Outcome]
    meter: Meter
    tokens: int
    peak: float = 0

    @property
    def failures(self) -> list[str]:
        return [outcome.problem for outcome in self.outcomes if outcome.problem]

    def ttft(self, share: float) -> float:
        return 1000 * percentile((outcome.ttft for outcome in self.outcomes if outcome.first), share)

    def gap(self, share: float) -> float:
        return 1000 * percentile((gap for outcome in self.outcomes for gap in outcome.gaps), share)

    @property
    def cpu_per_thousand(self) -> float:
        whole = len(self.outcomes) - len(self.failures)
        return self.meter.product / max(whole * self.tokens / 1000, 1e-9)


async def together(
    people: Sequence[Person | Program], kind: str, tokens: int, pace: int = _PACE, spread: float = _SPREAD
) -> list[Outcome]:
    """All press Send within `spread` seconds, and read to the end."""

    async def one(n: int, person: Person | Program) -> Outcome:
        await asyncio.sleep(spread * n / len(people))
        return await person.turn(*question(kind, tokens, pace))

    for person in people:
        await person.connect()
    outcomes = await asyncio.gather(*(one(n, person) for n, person in enumerate(people)))
    for person in people:
        person.close()
    failed(outcomes)
    return outcomes


async def crowd(bench: Bench, number: int, kind: str, tokens: int, pace: int = _PACE, spread: float = _SPREAD) -> Crowd:
    people = await bench.people(number)
    bench.product.web.forget_peak()
    with _no_collector(), Meter(bench.product.watched) as meter:
        outcomes = await together(people, kind, tokens, pace, spread)
    return Crowd(outcomes, meter, tokens, bench.product.web.peak_memory())


async def direct_crowd(bench: Bench, number: int, tokens: int, pace: int = _PACE, spread: float = _SPREAD) -> Crowd:
    """The same in front of the engine alone."""
    programs = [Program(HOST, bench.product.engine_port) for _ in range(number)]
    with _no_collector(), Meter(bench.product.watched) as meter:
        outcomes = await together(programs, "plain", tokens, pace, spread)
    return Crowd(outcomes, meter, tokens)


class _no_collector:  # noqa: N801 - reads as what it is
    """Python's collector would stop the client for longer than what is measured."""

    def __enter__(self) -> None:
        gc.collect()
        gc.disable()

    def __exit__(self, *_error: object) -> None:
        gc.enable()


# The machine


async def ceiling(bench: Bench) -> list[Row]:
    """How fast the engine is by itself, so that it is known not to be the limit."""
    program = Program(HOST, bench.product.engine_port)
    tokens = 100_000
    await program.turn(*question("plain", tokens, 0))  # the chunks are made once
    with _no_collector(), Meter(bench.product.watched) as meter:
        for _ in range(3):
            await program.turn(*question("plain", tokens, 0))
    program.close()
    paced = await direct_crowd(bench, 64, 1000, pace=500, spread=0)
    note = (
        f"engine and reader on one core; paced, with a write for each, {64_000 / paced.meter.cpu['engine']:,.0f} "
        "a CPU second of the engine"
    )
    return [
        at_least("the fake engine's ceiling", 3 * tokens / meter.seconds, 150_000, "chunks/s", note=note),
        Row("speed of the product's core", f"{speed():.1f} M steps/s", note="of Python, a loop that adds squares"),
    ]


async def start(bench: Bench) -> list[Row]:
    """Start to ready, and what an idle process holds."""
    times = []
    for _ in range(bench.times(3, 1)):
        bench.product.stop_web()
        times.append(bench.product.start_web())
    await asyncio.sleep(2)
    await bench.prepare()
    await asyncio.sleep(1)
    bench.idle_memory = bench.product.web.memory()
    with Meter(bench.product.watched) as meter:
        await asyncio.sleep(2)
    bench.idle_cpu = {name: seconds / meter.seconds for name, seconds in meter.cpu.items()}
    idle = f"idle: {100 * bench.idle_cpu['web']:.1f} % of a core, database {100 * bench.idle_cpu['database']:.1f} %"
    return [
        at_most("start to ready, migrated database", median(times), 2, "s", digits=2),
        at_most("memory of web, idle", bench.idle_memory, 130, "MB", note=idle),
    ]


# One person


async def one(bench: Bench) -> list[Row]:
    """Added time to first text: the browser path and the engine itself, in turn."""
    person = (await bench.people(1))[0]
    program = Program(HOST, bench.product.engine_port)
    rounds, turns = bench.times(3, 1), bench.times(60, 25)
    ahead, behind = [], []
    added: dict[float, list[float]] = {0.5: [], 0.99: []}
    failures, direct = 0, 0.0
    for _ in range(rounds):
        straight: list[Outcome] = []
        through: list[Outcome] = []
        for n in range(turns):
            if n % 20 == 0:
                person.begin_anew()
            straight.append(await program.turn(*question("plain", 8, 100)))
            await asyncio.sleep(0.03)
            with _no_collector():
                through.append(await person.turn(*question("plain", 8, 100)))
            await asyncio.sleep(0.03)
        known = await bench.product.asked()
        failures += failed(through)
        for outcome in through:
            if at_engine := known.get(outcome.mark):
                ahead.append(1000 * (at_engine["arrived"] - outcome.asked))
                behind.append(1000 * (outcome.first - at_engine["first_sent"]))
        for share, found in added.items():
            p = [
                percentile((outcome.ttft for outcome in outcomes if outcome.first), share)
                for outcomes in (through, straight)
            ]
            found.append(1000 * (p[0] - p[1]))
        direct = 1000 * median(outcome.ttft for outcome in straight)
    person.close()
    program.close()
    note = (
        f"direct {direct:.1f}; before the engine has it {median(ahead):.1f}, from its first token to the reader "
        f"{median(behind):.1f}; {rounds} × {turns} turns"
    )
    return [
        at_most("one person, added time to first text, p50", median(added[0.5]), 8, "ms", digits=1, note=note),
        at_most("the same, p99", median(added[0.99]), 25, "ms", digits=1, failed=failures),
    ]


async def turn(bench: Bench) -> list[Row]:
    """Start and end of a turn: answers of two tokens, so that hardly anything else is in it."""
    people = await bench.people(4)
    each = bench.times(40, 20)
    rows = []
    for what, anew in (("start and end of a turn", False), ("the same with a new conversation", True)):
        found: dict[str, list[float]] = {"web": [], "database": []}
        failures = 0
        for _ in range(bench.times(3, 1)):
            for person in people:
                person.begin_anew()
                await person.turn(*question("plain", 2, _PACE))

            async def several(person: Person, *, anew: bool = anew) -> int:
                outcomes = []
                for _ in range(each):
                    if anew:
                        person.begin_anew()
                    outcomes.append(await person.turn(*question("plain", 2, _PACE)))
                return failed(outcomes)

            with Meter(bench.product.watched) as meter:
                failures += sum(await asyncio.gather(*map(several, people)))
            for name, values in found.items():
                idle = bench.idle_cpu.get(name, 0) * meter.seconds
                values.append(1000 * (meter.cpu[name] - idle) / (each * len(people)))
        web, database = median(found["web"]), median(found["database"])
        rows += [
            at_most(f"{what}: CPU of web", web, None if anew else 4, "ms", digits=2, failed=failures),
            at_most(f"{what}: CPU of the database", database, None if anew else 1, "ms", digits=2, failed=failures),
        ]
    for person in people:
        person.close()
    return rows


# SQL

_AROUND = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "SET ", "START")


def _sorted_statements(statements: Sequence[tuple[str, int, float]]) -> tuple[int, int, dict[str, tuple[int, float]]]:
    """Transaction control, `set_config` alone, and the queries that are left with calls and milliseconds."""
    around = named = 0
    queries: dict[str, tuple[int, float]] = {}
    for text, calls, ms in statements:
        flat = " ".join(text.split())
        if flat.upper().startswith(_AROUND):
            around += calls
        elif flat.lower().startswith("select set_config"):
            named += calls
        else:
            before = queries.get(flat, (0, 0.0))
            queries[flat] = before[0] + calls, before[1] + ms
    return around, named, queries


async def sql(bench: Bench) -> list[Row]:
    """Statements, writing transactions and journal of a turn, follow-ups and new conversations."""
    product = bench.product
    product.forget_statements()
    await asyncio.sleep(2)
    idle = sum(calls for calls, _ms in _sorted_statements(product.statements())[2].values()) / 2
    rows = []
    for what, anew in (("a follow-up turn", False), ("a new conversation", True)):
        if anew and bench.quick:
            break
        people = await bench.people(4)
        for person in people:
            await person.turn(*question("rich", 64, 50))
        product.forget_statements()
        position = product.wal_position()
        each = bench.times(6, 2)
        began = time.monotonic()

        async def several(person: Person, *, anew: bool = anew, each: int = each) -> int:
            outcomes = []
            for _ in range(each):
                if anew:
                    person.begin_anew()
                outcomes.append(await person.turn(*question("rich", 64, 50)))
            return failed(outcomes)

        failures = sum(await asyncio.gather(*map(several, people)))
        seconds, turns = time.monotonic() - began, each * len(people)
        wal = product.wal_since(position) / turns
        around, named, queries = _sorted_statements(product.statements())
        called = sum(calls for calls, _ms in queries.values())
        await asyncio.sleep(0.5)  # what is inspected must have reached the disk
        writing = product.writing_transactions_since(position) / turns
        note = f"besides BEGIN, COMMIT and the like {around / turns:.1f}, set_config {named / turns:.1f}"
        rows += [
            at_most(f"{what}: queries", (called - idle * seconds) / turns, 8, "", digits=1, note=note, failed=failures),
            at_most(f"{what}: writing transactions", writing, 3, "", digits=1),
            at_most(f"{what}: journal (WAL)", wal / 1024, 30, "kB", digits=1, note="answer of 64 tokens, rich text"),
        ]
        most = sorted((item for item in queries.items() if item[1][0] >= turns / 10), key=lambda item: -item[1][1])
        bench.remarks.append(
            f"Statements of {what}, calls and ms of the database each turn:\n\n"
            + "\n".join(f"- {calls / turns:.2f} × {ms / turns:.3f} ms: `{text[:160]}`" for text, (calls, ms) in most)
        )
        for person in people:
            person.close()
    return rows


def _writes(queries: dict[str, tuple[int, float]]) -> int:
    return sum(calls for text, (calls, _ms) in queries.items() if not text.lower().startswith("select"))


async def checkpoints(bench: Bench) -> list[Row]:
    """What keeps 64 running answers safe, each second."""
    product = bench.product
    seconds = bench.times(6, 4)
    product.forget_statements()
    await asyncio.sleep(seconds)
    idle = _writes(_sorted_statements(product.statements())[2]) / seconds
    running = asyncio.create_task(crowd(bench, 64, "plain", (seconds + 4) * _PACE, spread=1.0))
    while await product.writing() < 64 and not running.done():
        await asyncio.sleep(0.05)
    product.forget_statements()
    position = product.wal_position()
    await asyncio.sleep(seconds)
    around, _named, queries = _sorted_statements(product.statements())
    wal = product.wal_since(position) / seconds / 1024
    done = await running
    called = sum(calls for calls, _ms in queries.values()) / seconds
    note = (
        f"more than when idle; one a second, of which the window may hold one more; besides BEGIN, COMMIT and the like "
        f"{around / seconds:.1f} /s; journal {wal:.0f} kB/s"
    )
    written = _writes(queries) / seconds - idle
    return [
        at_most(
            "64 running answers: writing statements", written, 1.2, "/s", digits=1, note=note, failed=len(done.failures)
        ),
        Row("64 running answers: statements in all", f"{called:.1f} /s"),
    ]


async def long_conversation(bench: Bench) -> list[Row]:
    """A turn after a thousand messages, beside one after few."""
    account = (await bench.product.add_people(1))[0]
    text = "What did we decide about the plan, and why? " * 5
    there, short = bench.person(account), bench.person(account)
    there.conversation = (await bench.product.add_conversations([account.id], 1000, text[:200]))[0]
    waits: dict[Person, list[float]] = {there: [], short: []}
    outcomes = []
    wal = 0
    for person in (there, short):
        await person.turn(*question("plain", 64, 200))
    for _ in range(bench.times(20, 8)):
        for person, found in waits.items():
            position = bench.product.wal_position()
            outcome = await person.turn(*question("plain", 64, 200))
            outcomes.append(outcome)
            found.append(1000 * outcome.ttft)
            if person is there:
                wal += bench.product.wal_since(position)
    for person in waits:
        person.close()
    added = median(waits[there]) - median(waits[short])
    note = f"{median(waits[there]):.1f} against {median(waits[short]):.1f} ms"
    what = "a turn after 1,000 messages, added time to first text"
    return [
        at_most(what, added, 10, "ms", digits=1, note=note, failed=failed(outcomes)),
        at_most("the same, journal (WAL)", wal / len(waits[there]) / 1024, 30, "kB", digits=1),
    ]


async def stop(bench: Bench) -> list[Row]:
    """From the press of Stop until the engine sees its reader hang up."""
    person = (await bench.people(1))[0]
    waits = []
    for _ in range(bench.times(15, 5)):
        outcome, stream = await person.ask(*question("plain", 2000, 50))
        failed([outcome])
        reading = asyncio.create_task(person.watch(outcome, stream))
        while not outcome.first and not reading.done():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        pressed = time.monotonic()
        await person.stop(stream)
        await reading
        await asyncio.sleep(0.05)
        known = (await bench.product.asked()).get(outcome.mark)
        waits.append(1000 * (known["ended"] - pressed) if known and known["ended"] else 10_000.0)
    person.close()
    note = f"the longest of {len(waits)}: {max(waits):.1f} ms"
    return [at_most("Stop reaches the engine", median(waits), 50, "ms", digits=1, note=note)]


# Many


async def many(bench: Bench) -> list[Row]:
    """People starting within two seconds, twenty tokens a second each."""
    rows: list[Row] = []
    plan: list[tuple[int, str, float | None, int]] = [
        (32, "plain", 40, bench.times(3, 0)),
        (128, "plain", 100, bench.times(2, 0)),
        (256, "plain", 250, bench.times(2, 0)),
        (256, "rich", 250, bench.times(2, 1)),
        (512, "plain", None, bench.times(1, 0)),
    ]
    tokens = bench.times(200, 100)
    for number, kind, must, repeats in plan:
        if not repeats:
            continue
        reference = await direct_crowd(bench, number, bench.times(40, 10))
        await asyncio.sleep(0.5)
        runs = []
        for _ in range(repeats):
            runs.append(await crowd(bench, number, kind, tokens))
            await asyncio.sleep(1)
        rows += _of_crowd(number, kind, must, runs, reference)
        if kind == "plain" or bench.quick:
            p99 = median(run.ttft(0.99) for run in runs)
            bench.points.append(Point(number, p99, must))
    await asyncio.sleep(2)
    rows.append(at_most("memory of web, afterwards", bench.product.web.memory(), None, "MB"))
    return rows


def _of_crowd(number: int, kind: str, must: float | None, runs: Sequence[Crowd], reference: Crowd) -> list[Row]:
    def middle(value: Callable[[Crowd], float]) -> float:
        return median(map(value, runs))

    last = runs[-1].meter
    who = f"{number} people, {kind} text"
    busy = ", ".join(f"{name} {100 * seconds / last.seconds:.0f} %" for name, seconds in last.cpu.items())
    note = (
        f"p50 {middle(lambda run: run.ttft(0.5)):.1f}; direct p99 {reference.ttft(0.99):.1f}; "
        f"CPU: {busy}; others took {100 * last.foreign[0]:.0f} and {100 * last.foreign[1]:.0f} % of the cores"
    )
    failures = [problem for run in runs for problem in run.failures]
    rows = [
        at_most(f"{who}: time to first text, p99", middle(lambda run: run.ttft(0.99)), must, "ms", digits=1, note=note,
                failed=len(failures)),
        at_most(f"{who}: gap between updates, p99", middle(lambda run: run.gap(0.99)), 110, "ms",
                note=f"direct {reference.gap(0.99):.0f}"),
        at_most(f"{who}: longest freeze", middle(lambda run: run.gap(1)), 200, "ms",
                note=f"direct {reference.gap(1):.0f}"),
        at_most(f"{who}: failures", len(failures), 0, "", note="; ".join(sorted(set(failures))[:2])),
        at_most(f"{who}: CPU of web and database for 1,000 tokens", middle(lambda run: run.cpu_per_thousand),
                0.10 if number == 256 else None, "s", digits=3,
                note=f"of it database {last.cpu['database'] / last.product:.0%}" if last.product else ""),
    ]  # fmt: skip
    if number >= 256:
        peak = max(run.peak for run in runs)
        rows.append(at_most(f"{who}: memory of web, peak", peak, 200 if number == 256 else None, "MB"))
    return rows


async def saturation(bench: Bench) -> list[Row]:
    """Sixteen answers as fast as the engine sends them."""
    rows = []
    for kind in ("plain", "rich"):
        found, costs, failures = [], [], 0
        for _ in range(bench.times(3, 1)):
            short = await crowd(bench, 16, kind, 2000, pace=0, spread=0)
            long = await crowd(bench, 16, kind, 8000, pace=0, spread=0)
            found.append(16 * 2000 / short.meter.cpu["web"])
            costs.append(1e6 * (long.meter.cpu["web"] - short.meter.cpu["web"]) / (16 * 6000))
            failures += len(short.failures) + len(long.failures)
        note = f"16 × 2,000 tokens, starts included; one more token costs {median(costs):.1f} µs"
        what = f"saturation, {kind} text"
        rows.append(at_least(what, median(found), 150_000, "tokens/CPU s", note=note, failed=failures))
    return rows


async def api(bench: Bench) -> list[Row]:
    """Programs with keys, as fast as the engine sends; beside it what reading alone costs, on the same core."""
    secrets = await bench.product.add_keys([account.id for account in await bench.some_accounts(16)])
    programs = [Program(HOST, bench.product.port, key=secret) for secret in secrets]
    found: dict[int, list[float]] = {2000: [], 8000: []}
    for _ in range(bench.times(3, 2)):
        for tokens, costs in found.items():
            with _no_collector(), Meter(bench.product.watched) as meter:
                await together(programs, "plain", tokens, pace=0, spread=0)
            costs.append(1e6 * meter.cpu["web"] / (16 * tokens))
    reading = bench.product.cost_of_reading(16, 8000)
    short, long = median(found[2000]), median(found[8000])
    token = (8 * long - 2 * short) / 6
    note = (
        f"16 × 8,000 tokens, starts included; 16 × 2,000: {1e6 / short:,.0f}; one more token costs {token:.2f} µs, "
        f"{reading:.2f} µs of reading alone ({1e6 / reading:,.0f} a CPU second)"
    )
    relayed = at_least("API, saturation", 1e6 / long, 250_000, "tokens/CPU s", note=note)
    return [relayed, *await _api_start(bench, secrets[0])]


async def _api_start(bench: Bench, secret: str) -> list[Row]:
    """A request to the API with hardly an answer: how late its first text is, and what start and end cost."""
    program, direct = Program(HOST, bench.product.port, key=secret), Program(HOST, bench.product.engine_port)
    waits: dict[Program, list[float]] = {program: [], direct: []}
    for _ in range(bench.times(100, 40)):
        for asks, found in waits.items():
            found.append(1000 * (await asks.turn(*question("plain", 2, 0))).ttft)
    turns = bench.times(300, 100)
    with Meter(bench.product.watched) as meter:
        for _ in range(turns):
            await program.turn(*question("plain", 2, 0))
    for asks in waits:
        asks.close()
    idle = bench.idle_cpu.get("web", 0) * meter.seconds
    added = {share: percentile(waits[program], share) - percentile(waits[direct], share) for share in (0.5, 0.99)}
    note = f"direct {median(waits[direct]):.1f}; p99 {added[0.99]:.1f}"
    cost = 1000 * (meter.cpu["web"] - idle) / turns
    return [
        at_most("API, added time to first text, p50", added[0.5], 8, "ms", digits=1, note=note),
        at_most("API, start and end of a request: CPU of web", cost, 4, "ms", digits=2),
    ]


async def long_answers(bench: Bench) -> list[Row]:
    """Sixty kilobytes each: the last tenth beside the first, by the web app's CPU time."""
    rows = []
    for kind in ("rich",) if bench.quick else ("plain", "rich"):
        tokens = _tokens_for(kind, 60_000)
        pace = 2000
        task = asyncio.create_task(crowd(bench, 4, kind, tokens, pace=pace, spread=0.1))
        line: list[tuple[float, float]] = []
        while not task.done():
            line.append((time.monotonic(), bench.product.web.cpu()))
            await asyncio.sleep(0.01)
        done = await task
        began = max(outcome.first for outcome in done.outcomes) + 0.1  # the start of the turn is counted elsewhere
        tenth = tokens / pace / 10
        over = min(outcome.first for outcome in done.outcomes) + tokens / pace - 0.05
        first = _at(line, began + tenth) - _at(line, began)
        last = _at(line, over) - _at(line, over - tenth)
        end = _at(line, line[-1][0]) - _at(line, over)
        each = 1e6 / (4 * tokens / 10)
        note = (
            f"{first * each:.1f} and {last * each:.1f} µs a token, 4 at once, 2,000 tokens/s each; the end of each "
            f"answer, with the whole of it drawn once more, {1000 * end / 4:.0f} ms"
        )
        what = f"long answer, {kind} text: last tenth over first"
        rows.append(at_most(what, last / first, 2, "×", digits=2, note=note, failed=len(done.failures)))
    return rows


def _tokens_for(kind: str, characters: int) -> int:
    sample = pieces(kind, 5000)
    return round(characters / (sum(map(len, sample)) / len(sample)))


def _at(line: Sequence[tuple[float, float]], moment: float) -> float:
    """The value at a moment, between the two samples around it."""
    for (sooner, low), (later, high) in pairwise(line):
        if sooner <= moment <= later:
            return low + (high - low) * (moment - sooner) / (later - sooner)
    return line[0][1] if moment < line[0][0] else line[-1][1]


async def affinity(bench: Bench) -> list[Row]:
    """What a conversation said before comes from an engine's cache: two real llama.cpp servers."""
    chats, turns = bench.times(6, 3), bench.times(5, 3)
    url = await asyncio.to_thread(bench.product.another_database, "affinity")
    pooled, in_turn = await measured_affinity(url, chats=chats, turns=turns)
    who = f"{chats} conversations of {turns} turns, two replicas"
    note = f"{pooled.cached:,} of {pooled.known:,} tokens, in {pooled.turns} turns that had earlier ones"
    return [
        at_least(f"{who}: known tokens from the cache", 100 * pooled.share, 90, "%", note=note),
        Row(
            "the same, engines in turn (round robin)",
            f"{100 * in_turn.share:.0f} %",
            note=f"of {in_turn.known:,} tokens",
        ),
    ]


Scenario = Callable[[Bench], Awaitable[list[Row]]]

SCENARIOS: dict[str, Scenario] = {
    "ceiling": ceiling,
    "start": start,
    "one": one,
    "turn": turn,
    "sql": sql,
    "long-conversation": long_conversation,
    "stop": stop,
    "checkpoints": checkpoints,
    "saturation": saturation,
    "api": api,
    "long-answers": long_answers,
    "many": many,
    "affinity": affinity,
}


#: Left out when there is little time.
LONG = frozenset({"checkpoints", "long-answers", "affinity"})


# Where the time goes


async def profile(bench: Bench, what: str, people: int) -> str:
    """What the web app spends its time on; it runs under `tests.load.sampler`.

    `turns`: starts and ends of eight people's follow-ups; `new`: of their new conversations; `crowd`: so many people
    begin a conversation and read; `stream`: what they take between start and end; `api`: starts and ends of requests of
    programs.
    """
    await bench.prepare()
    few = await bench.people(8)
    readers: list[asyncio.Task[Crowd]] = []
    secrets = await bench.product.add_keys([account.id for account in await bench.some_accounts(8)])
    programs = [Program(HOST, bench.product.port, key=secret) for secret in secrets]

    async def many(program: Program) -> None:
        for _ in range(60):
            await program.turn(*question("plain", 2, 0))
        program.close()

    async def several(person: Person) -> None:
        for _ in range(40):
            if what == "new":
                person.begin_anew()
            await person.turn(*question("plain", 2, _PACE))

    await asyncio.gather(*(person.turn(*question("plain", 2, _PACE)) for person in few))
    if what == "stream":
        await bench.people(people)
        readers.append(asyncio.create_task(crowd(bench, people, "rich", 400)))
        with suppress(TimeoutError):  # what has not begun by then is part of what is looked at
            async with asyncio.timeout(8):
                while await bench.product.writing() < people:
                    await asyncio.sleep(0.1)
    bench.product.forget_statements()
    bench.product.signal_web(signal.SIGUSR1)
    with Meter(bench.product.watched) as meter:
        if what in ("turns", "new"):
            await asyncio.gather(*map(several, few))
        elif what == "api":
            await asyncio.gather(*map(many, programs))
        elif what == "crowd":
            await crowd(bench, people, "rich", 100)
        else:
            await asyncio.sleep(8)
    bench.product.signal_web(signal.SIGUSR2)
    told = await _samples(bench.product.samples)
    await asyncio.gather(*readers)
    for person in few:
        person.close()
    _around, _named, queries = _sorted_statements(bench.product.statements())
    top = sorted(queries.items(), key=lambda item: -item[1][1])[:15]
    statements = "\n".join(f"{calls:6d} × {ms / calls:.3f} ms  {text[:150]}" for text, (calls, ms) in top)
    used = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in meter.cpu.items())
    return f"CPU in {meter.seconds:.1f} s: {used}\n\n{told}\n\nstatements\n----------\n{statements}"


async def _samples(file: Path) -> str:
    async with asyncio.timeout(20):
        while not await asyncio.to_thread(file.exists):
            await asyncio.sleep(0.1)
    return sampler.told(file)

"""`parley audit`: whether the chain is whole, where it ends, and all of it as lines for another system."""

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from backend.core.settings import Settings

if TYPE_CHECKING:
    from backend.audit.verifying import Verified
    from backend.core.db import Sessions

Say = Callable[[str], None]

FORMATS = ("jsonl", "csv", "syslog")


def add_to(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    command: Callable[[argparse.Namespace, Settings], None],
) -> None:
    verify = commands.add_parser("verify", help="find what was edited, removed, cut off or put back; code 1 if so")
    verify.add_argument(
        "--head", default="", metavar="N:MAC", help="the last one seen in the log, or printed by `head`"
    )
    commands.add_parser("head", help="print where the chain ends, to be kept outside of the database")
    export = commands.add_parser("export", help="print all of it, oldest first")
    export.add_argument("--format", choices=FORMATS, default="jsonl", help="(jsonl)")
    for name, parser in commands.choices.items():
        parser.set_defaults(command=command, audit=name)


def run(chosen: argparse.Namespace, database_url: str, secrets: Sequence[str], *, say: Say) -> int:
    """The exit code."""
    work = {"verify": _verify, "head": _head, "export": _export}[chosen.audit]
    return asyncio.run(work(chosen, database_url, secrets, say))


async def _verify(chosen: argparse.Namespace, database_url: str, secrets: Sequence[str], say: Say) -> int:
    from backend.audit import verifying
    from backend.audit.chain import Keys

    known = verifying.Head.parse(chosen.head) if chosen.head else None
    async with _sessions(database_url) as sessions, sessions.begin() as session:
        found = await verifying.verify(session, Keys(secrets), known)
    for fault in found.faults:
        say(f"BAD  {fault}")
    say(_summary(found, compared=known is not None))
    return 1 if found.faults else 0


def _summary(found: "Verified", *, compared: bool) -> str:
    state = "has faults" if found.faults else "is whole"
    span = f"records {found.first} to {found.head.number}" if found.count else "no records"
    end = "" if compared else "\nWhether its end was cut off only a head from the log can tell: --head N:MAC."
    return f"The audit {state}: {span}. Its head is {found.head}{end}"


async def _head(_chosen: argparse.Namespace, database_url: str, _secrets: Sequence[str], say: Say) -> int:
    from backend.audit import verifying

    async with _sessions(database_url) as sessions, sessions.begin() as session:
        say(str(await verifying.head(session)))
    return 0


async def _export(chosen: argparse.Namespace, database_url: str, secrets: Sequence[str], say: Say) -> int:
    from backend.audit import chain, exporting
    from backend.audit.acting import Actor, Via

    chain.use(secrets)
    async with _sessions(database_url) as sessions:
        wanted = exporting.Wanted(exporting.Format(chosen.format))
        up_to = await exporting.begin(sessions, wanted, Actor(Via.HOST))
        async for lines in exporting.lines(sessions, wanted, up_to):
            say(lines.removesuffix("\n"))
    return 0


@asynccontextmanager
async def _sessions(database_url: str) -> AsyncIterator["Sessions"]:
    from backend.core import db

    engine: Any = db.connect(database_url, connections=2)
    try:
        yield db.Sessions(engine)
    finally:
        await engine.dispose()

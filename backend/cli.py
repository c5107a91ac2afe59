"""The command line. Each command is one call into the package that knows how; here is only what a shell needs.

What a command needs is imported when it runs: `parley run` starts five processes, and every one of them comes by here.
"""

import argparse
import asyncio
import os
import re
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from tomllib import TOMLDecodeError
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError

from backend.core.errors import AppError, BadInput
from backend.core.settings import MissingSecret, Settings, unknown_names
from backend.embedded.errors import CannotRun
from backend.ops import audit_commands, bench_commands

Command = Callable[[argparse.Namespace, Settings], None]


class BadSettings(Exception):
    """One sentence for each setting that cannot be used."""


def main(arguments: Sequence[str] | None = None) -> int:
    """A failure that was to be expected ends in a sentence on standard error and exit code 1."""
    chosen = _parser().parse_args(arguments)
    command: Command = chosen.command
    try:
        command(chosen, _settings())
    except BrokenPipeError:  # whoever read our output had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except BadInput as problem:
        print("\n".join(problem.fields.values()) or problem, file=sys.stderr)
        return 1
    except (AppError, BadSettings, CannotRun, MissingSecret) as problem:
        print(problem, file=sys.stderr)
        return 1
    except _database_gone() as problem:
        print(f"The database does not answer: {str(problem).splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


def _database_gone() -> tuple[type[Exception], ...]:
    """Asked only when something failed: loading SQLAlchemy takes longer than most commands."""
    from backend.core.db import DatabaseGone

    return DatabaseGone


def _run(chosen: argparse.Namespace, settings: Settings) -> None:
    from backend.embedded import processes, supervisor

    if chosen.with_parent:
        processes.stop_with_parent()
    for name in unknown_names(os.environ):
        print(f"{name} is not a setting of Parley and changes nothing. docs/settings.md lists them.")
    supervisor.run(settings)


def _serve(chosen: argparse.Namespace, settings: Settings) -> None:
    if not settings.database_url:
        raise BadSettings("PARLEY_DATABASE_URL must be set. `parley run` brings a database of its own.")
    from backend import serving

    if chosen.process is not None:
        sockets = [socket.socket(fileno=int(number)) for number in chosen.sockets.split(",")]
        serving.serve(settings, process=chosen.process, sockets=sockets)
    elif settings.processes > 1:
        serving.serve_several(settings)
    else:
        serving.serve(settings)


def _migrate(_chosen: argparse.Namespace, settings: Settings) -> None:
    from backend.core import migrations

    migrations.upgrade(_database(settings, owner=True))
    print("The database is up to date.")


def _doctor(_chosen: argparse.Namespace, settings: Settings) -> None:
    if not asyncio.run(_report(settings)):
        raise SystemExit(1)


async def _report(settings: Settings) -> bool:
    from backend.ops import doctor

    healthy = True
    async for finding in doctor.examine(settings, _database(settings), list(os.environ), origin=_origin(settings)):
        healthy = healthy and finding.good
        print(f"{'ok ' if finding.good else 'BAD'}  {finding.subject:18} {finding.sentence}")
    return healthy


def _setup_link(_chosen: argparse.Namespace, settings: Settings) -> None:
    from backend.ops import people

    link = asyncio.run(people.setup_link(_accounts(settings), _origin(settings)))
    print(link or "There is an administrator already. One who is locked out: `parley user reset-password EMAIL`.")


def _user_list(_chosen: argparse.Namespace, settings: Settings) -> None:
    from backend.ops import people

    print("\n".join(asyncio.run(people.listing(_database(settings)))) or "There are no accounts yet.")


def _user_add(chosen: argparse.Namespace, settings: Settings) -> None:
    from backend.accounts.models import Role
    from backend.ops import people

    role = Role.ADMIN if chosen.admin else Role.MEMBER
    added = people.add(_accounts(settings), _origin(settings), email=chosen.email, name=chosen.name, role=role)
    print(f"Send them this link. It works once, within seven days:\n{asyncio.run(added)}")


def _user_reset_password(chosen: argparse.Namespace, settings: Settings) -> None:
    from backend.ops import people

    link = asyncio.run(people.reset_password(_accounts(settings), _origin(settings), chosen.email))
    print(f"A new password can be set here, once, within a day:\n{link}")


def _user_change(chosen: argparse.Namespace, settings: Settings) -> None:
    from backend.accounts.models import Role
    from backend.ops import people

    database = _accounts(settings)
    changes: dict[str, Callable[[], Coroutine[Any, Any, str]]] = {
        "make-admin": lambda: people.change_role(database, chosen.email, Role.ADMIN),
        "make-member": lambda: people.change_role(database, chosen.email, Role.MEMBER),
        "enable": lambda: people.enable(database, chosen.email),
        "disable": lambda: people.disable(database, chosen.email),
        "reset-second-factor": lambda: people.reset_second_factor(database, chosen.email),
    }
    print(asyncio.run(changes[chosen.change]()))


def _bench(chosen: argparse.Namespace, settings: Settings) -> None:
    if code := bench_commands.measure(chosen, settings, database=lambda: _database(settings), say=_say):
        raise SystemExit(code)


def _capacity(chosen: argparse.Namespace, settings: Settings) -> None:
    bench_commands.capacity(chosen, settings, database=lambda: _database(settings), say=_say)


def _audit(chosen: argparse.Namespace, settings: Settings) -> None:
    if code := audit_commands.run(chosen, _database(settings), _secrets(settings), say=_say):
        raise SystemExit(code)


def _secrets(settings: Settings) -> list[str]:
    """Those of the deployment, else the one that `parley run` has made for the database it keeps."""
    if not (settings.database_url or settings.secret_key or settings.secret_key_file):
        from backend.embedded import var

        settings = settings.model_copy(update={"secret_key_file": var.secret_key_of(settings.data_dir)})
    return settings.secrets()


def _accounts(settings: Settings) -> str:
    """The database, for a command that changes accounts: what it does is recorded as what is done in the pages."""
    from backend.audit import chain

    database = _database(settings)
    chain.use(_secrets(settings))
    return database


def _say(line: str) -> None:
    print(line, flush=True)  # what comes bit by bit is read bit by bit, also through a pipe


def _database(settings: Settings, *, owner: bool = False) -> str:
    """The configured database, else the one that a `parley run` on this data keeps open."""
    if owner and settings.migrate_database_url:
        return settings.migrate_database_url
    if settings.database_url:
        return settings.database_url
    from backend.embedded import postgres

    return postgres.running_url(settings.data_dir, postgres.OWNER if owner else postgres.APP)


def _origin(settings: Settings) -> str:
    """Where people reach the site whose database `_database` names."""
    if settings.database_url:
        return settings.origin
    from backend.embedded import var

    return var.running_address(settings.data_dir) or settings.origin


def _settings() -> Settings:
    try:
        return Settings()
    except ValidationError as wrong:
        raise BadSettings("\n".join(map(_sentence, wrong.errors()))) from None
    except SettingsError as wrong:
        name = re.search(r'field "(\w+)"', str(wrong))
        variable = f"PARLEY_{name[1].upper()}" if name else "A setting"
        raise BadSettings(f"{variable} must be written as JSON; docs/settings.md shows how.") from None
    except TOMLDecodeError as wrong:
        raise BadSettings(f"parley.toml cannot be read: {wrong}.") from None


# Pydantic's own words are for programmers.
_PLAIN = {
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "float_parsing": "must be a number",
    "bool_parsing": "must be 1 or 0",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "tuple_type": "must be a list, written as [...]",
    "missing": "is missing",
    "extra_forbidden": "is not known here; check the spelling",
    "json_invalid": "must be written as JSON",
}


def _sentence(error: ErrorDetails) -> str:
    message = _PLAIN.get(error["type"], error["msg"]).format_map(error.get("ctx", {}))
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if not error["loc"]:
        return f"{message}."
    field, *rest = error["loc"]
    within = "".join(f", entry {step + 1}," if isinstance(step, int) else f" {step}" for step in rest)
    return f"PARLEY_{str(field).upper()}{within} {message}."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="parley", description="A company's own ChatGPT.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_to(commands, "run", _run, "start everything on this machine: database, small model, web app").add_argument(
        "--with-parent", action="store_true", help="stop when the program that started this one ends"
    )
    serve = _add_to(commands, "serve", _serve, "start the web app, with PARLEY_DATABASE_URL")
    serve.add_argument("--process", type=int, help=argparse.SUPPRESS)  # one of several, started by the first
    serve.add_argument("--sockets", help=argparse.SUPPRESS)
    _add_to(commands, "migrate", _migrate, "bring the database up to date, as PARLEY_MIGRATE_DATABASE_URL")
    _add_to(commands, "setup-link", _setup_link, "print a new one-time link for the first account")
    _add_to(commands, "doctor", _doctor, "check settings, database and engines")
    bench_commands.add_bench_options(
        _add_to(commands, "bench", _bench, "measure an engine as the people who use it will meet it")
    )
    bench_commands.add_capacity_options(
        _add_to(commands, "capacity", _capacity, "say how many people fit into a GPU, or into a running engine")
    )
    audit = commands.add_parser("audit", help="look at what was recorded, and whether somebody has changed it")
    audit_commands.add_to(audit.add_subparsers(required=True), _audit)
    _add_user_commands(commands.add_parser("user", help="look after accounts").add_subparsers(required=True))
    return parser


def _add_user_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    _add_to(commands, "list", _user_list, "show all accounts")
    add = _add_to(commands, "add", _user_add, "add a person, and print the link on which they set their password")
    add.add_argument("email")
    add.add_argument("--name", default="")
    add.add_argument("--admin", action="store_true")
    reset = _add_to(commands, "reset-password", _user_reset_password, "print a link for setting a new password")
    reset.add_argument("email")
    for name, what in {
        "make-admin": "let them manage people, models and engines",
        "make-member": "take that back",
        "enable": "let them sign in again",
        "disable": "sign them out and let them in no more; their conversations stay",
        "reset-second-factor": "remove their authenticator app, recovery codes and passkeys",
    }.items():
        change = _add_to(commands, name, _user_change, what)
        change.add_argument("email")
        change.set_defaults(change=name)


def _add_to(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, command: Command, what: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=what, description=what)
    parser.set_defaults(command=command)
    return parser

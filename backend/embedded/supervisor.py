"""`parley run`: everything on one machine, started in order, watched, and stopped in the opposite order.

    lock ./var → end what a killed run left → Postgres and the engine → tables → web app → one link → watch

Each part is a process of its own that writes to a log in `var/logs` and cannot outlive this one. What goes wrong before
the link is a `CannotRun` with a sentence; what goes wrong later is said in a line, and the part is started again.
"""

import asyncio
import contextlib
import errno
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, Protocol

from backend.core.settings import Settings
from backend.embedded import engine, tables
from backend.embedded.errors import CannotRun
from backend.embedded.postgres import DATABASE, EmbeddedPostgres
from backend.embedded.service import Service
from backend.embedded.var import Var

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WATCH_EVERY = 0.2
# The link does not wait longer than this for the model: a big one is reported when it is there.
_MODEL_PATIENCE = 2.0
_WEB_PATIENCE = 60.0
# A part that breaks again and again is started less and less often; one that ran this long is well again.
_LONGEST_PAUSE = 30.0
_WELL_AFTER = 60.0
_SEEMS_WELL_AFTER = 5.0


def run(settings: Settings) -> None:
    """Returns when somebody asked us to stop and everything has stopped. Raises `CannotRun`."""
    if settings.database_url:
        raise CannotRun(
            "PARLEY_DATABASE_URL is set, but `parley run` brings a database of its own. "
            "Unset it, or use `parley migrate` and `parley serve` with your database."
        )
    for stop_signal in _STOP_SIGNALS:
        # Under nohup a closed terminal is no reason to stop.
        if stop_signal is not signal.SIGHUP or signal.getsignal(stop_signal) is not signal.SIG_IGN:
            signal.signal(stop_signal, _interrupt)
    with contextlib.suppress(KeyboardInterrupt), Var(settings.data_dir) as var:
        _Machine(settings, var).run()


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


class Part(Protocol):
    @property
    def title(self) -> str: ...
    @property
    def log(self) -> Path: ...
    @property
    def running(self) -> bool: ...
    def begin(self) -> None: ...
    def stop(self) -> None: ...


class _Machine:
    """The three parts and how they depend on each other."""

    def __init__(self, settings: Settings, var: Var) -> None:
        self._settings = settings
        self._var = var
        self._postgres = EmbeddedPostgres(var.folder)
        connection = {
            "name": "embedded",
            "url": f"http://127.0.0.1:{_free_port()}",
            "api_key": secrets.token_urlsafe(32),
        }
        self._engine = _engine(settings, var, connection)
        self._web = _web(settings, var, connection, self._postgres.app_url())

    def run(self) -> None:
        self._engine.end_what_was_left()
        self._web.end_what_was_left()
        _refuse_a_taken_port(self._settings)
        try:
            self._start()
            self._watch()
        finally:
            # A second Ctrl-C must not leave half of it running.
            for stop_signal in _STOP_SIGNALS:
                signal.signal(stop_signal, signal.SIG_IGN)
            with _step("Stopping"):
                for part in (self._web, self._engine, self._postgres):
                    part.stop()

    def _start(self) -> None:
        first = not self._postgres.exists
        self._engine.begin()  # loads its model while the others start
        with _step("Creating the database" if first else "Starting the database"):
            self._postgres.begin()
            self._postgres.wait_until_ready()
            self._postgres.create_database(DATABASE)
        self._var.note_address(self._settings.origin)
        note = self._var.folder / "run" / "tables"
        if not tables.are_up_to_date(self._postgres, note):
            with _step("Creating its tables" if first else "Bringing its tables up to date"):
                tables.bring_up_to_date(self._postgres, note)
        if _needs_secret_key(self._settings) and self._var.make_secret_key() and not first:
            print(f"{self._var.secret_key} was gone. With the new one, enter the keys of your engines again.")
        with _step("Starting the web app"):
            self._web.begin()
            link = self._first_link()  # while the web app is starting, which takes longer
            if not self._web.wait_until_ready(_WEB_PATIENCE):
                raise CannotRun(f"The web app does not answer. Its log is {self._web.log}.")
        if not self._engine.wait_until_ready(_MODEL_PATIENCE):
            print("The model is large and still loading. You can sign in meanwhile.")
        if link:
            print(f"\nOpen this link to create your account. It works once, within an hour:\n\n    {link}\n")
        else:
            print(f"\nParley is running:\n\n    {self._settings.origin}/\n")
        print(f"Ctrl-C stops it. Logs are in {self._var.folder / 'logs'}.", flush=True)

    def _first_link(self) -> str | None:
        """For the first administrator; None when there is one, or the settings name one."""
        if self._settings.admin_email:
            return None
        from backend.audit import chain
        from backend.ops import people

        chain.use(self._secrets())
        return asyncio.run(people.setup_link(self._postgres.app_url(), self._settings.origin))

    def _secrets(self) -> list[str]:
        ours = {"secret_key_file": self._var.secret_key} if _needs_secret_key(self._settings) else {}
        return self._settings.model_copy(update=ours).secrets()

    def _watch(self) -> None:
        keepers = [_Keeper(part) for part in (self._postgres, self._engine, self._web)]
        while True:
            time.sleep(_WATCH_EVERY)
            for keeper in keepers:
                keeper.look()


class _Keeper:
    """Starts a part again when it has ended, sooner at first than later."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._since = time.monotonic()
        self._pause = 0.0
        self._due: float | None = None
        self._again = False  # it was started again, and nobody has been told that it runs

    def look(self) -> None:
        moment = time.monotonic()
        if self._due is not None:
            if moment >= self._due:
                self._due, self._since, self._again = None, moment, True
                self._begin()
        elif self._again and self._part.running and moment - self._since > _SEEMS_WELL_AFTER:
            self._again = False
            print(f"{self._part.title} runs again.", flush=True)
        elif not self._part.running:
            well = moment - self._since > _WELL_AFTER
            self._pause = 1.0 if well or not self._pause else min(self._pause * 2, _LONGEST_PAUSE)
            self._due = moment + self._pause
            print(
                f"{self._part.title} has stopped. It is started again in {self._pause:.0f} s; see {self._part.log}.",
                flush=True,
            )

    def _begin(self) -> None:
        try:
            self._part.begin()
        except (CannotRun, OSError) as problem:
            print(f"{self._part.title} could not be started: {problem}", flush=True)


def _engine(settings: Settings, var: Var, connection: dict[str, str]) -> Service:
    model = engine.model_file(settings.demo_model)
    return Service(
        "The model",
        "engine",
        [sys.executable, "-m", "backend.embedded.engine", str(model), engine.model_name(settings.demo_model)],
        ready_url=connection["url"] + "/health",
        env=_environment({engine.VARIABLE: json.dumps(connection)}),
        folder=var.folder,
        patience=5,
    )


def _web(settings: Settings, var: Var, connection: dict[str, str], database_url: str) -> Service:
    ours = {name: value for name, value in os.environ.items() if name.startswith("PARLEY_")}
    ours |= {
        "PARLEY_DATABASE_URL": database_url,
        "PARLEY_DATA_DIR": str(var.folder),
        engine.VARIABLE: json.dumps(connection),
    }
    if _needs_secret_key(settings):
        ours["PARLEY_SECRET_KEY_FILE"] = str(var.secret_key)
    return Service(
        "The web app",
        "web",
        [sys.executable, "-m", "backend", "serve"],
        ready_url=f"http://{_local(settings.host)}:{settings.port}/readyz",
        env=_environment(ours),
        folder=var.folder,
        patience=settings.drain_seconds + 10,
    )


def _needs_secret_key(settings: Settings) -> bool:
    return not settings.secret_key and not settings.secret_key_file


def _environment(ours: dict[str, str]) -> dict[str, str]:
    """Our surroundings, but of the settings only those that this part needs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PARLEY_")} | ours


def _local(host: str) -> str:
    """Where we ourselves reach a server that is bound to `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _refuse_a_taken_port(settings: Settings) -> None:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as problem:
            raise CannotRun(_cannot_listen(settings, problem)) from problem


def _cannot_listen(settings: Settings, problem: OSError) -> str:
    if problem.errno == errno.EADDRINUSE:
        return (
            f"Port {settings.port} is in use by another program. "
            f"Stop that program, or choose another port: PARLEY_PORT={settings.port + 1} make run"
        )
    address = f"PARLEY_HOST={settings.host} with PARLEY_PORT={settings.port}"
    return f"Parley cannot listen there: {address}: {problem.strerror}."


@contextlib.contextmanager
def _step(what: str) -> Iterator[None]:
    """Say what is being done, and how long it took once it is."""
    print(f"{what}… ", end="", flush=True)
    started = time.monotonic()
    try:
        yield
    except BaseException:
        print(flush=True)  # whatever is said next begins its own line
        raise
    print(f"done in {time.monotonic() - started:.1f} s", flush=True)

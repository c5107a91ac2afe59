"""The folder with everything a single-machine Parley keeps: the database, the secret key, logs, who is running."""

import errno
import fcntl
import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import Self

from backend.embedded.errors import CannotRun

_LOG_BYTES = 10_000_000


def running_address(folder: Path) -> str | None:
    """Where the `parley run` on this data can be reached, for commands that print links."""
    try:
        return (folder.expanduser() / "run" / "address").read_text().strip()
    except FileNotFoundError:
        return None


def secret_key_of(folder: Path) -> Path:
    """The file in which a `parley run` on this data keeps its secret."""
    return folder.expanduser() / "secret.key"


class Var:
    """Prepares the folder and holds it for one `parley run` at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().resolve()
        self.secret_key = secret_key_of(self.folder)
        self._lock = -1

    def __enter__(self) -> Self:
        try:
            self._prepare()
        except OSError as problem:
            raise CannotRun(_cannot_be_used(self.folder, problem)) from problem
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._lock)

    def _prepare(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("logs", "run"):
            (self.folder / name).mkdir(exist_ok=True)
        self._take_lock()
        for log in (self.folder / "logs").glob("*.log"):
            if log.stat().st_size > _LOG_BYTES:
                log.replace(log.with_suffix(".old.log"))

    def _take_lock(self) -> None:
        # The kernel lets go of it when we end, however we end; nobody inherits it.
        self._lock = os.open(self.folder / "run" / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._lock, 20).decode() or "unknown"
            os.close(self._lock)
            raise CannotRun(
                f"Parley is already running with the data in {self.folder} (process {holder}). "
                "Stop that one, or set PARLEY_DATA_DIR to another folder."
            ) from None
        os.ftruncate(self._lock, 0)
        os.write(self._lock, str(os.getpid()).encode())

    def note_address(self, origin: str) -> None:
        (self.folder / "run" / "address").write_text(f"{origin}\n")

    def make_secret_key(self) -> bool:
        """True when there was none and a new one was made."""
        unfinished = self.secret_key.with_suffix(".unfinished")
        if self.secret_key.exists():
            return False
        unfinished.unlink(missing_ok=True)
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self.secret_key)
        return True


def _cannot_be_used(folder: Path, problem: OSError) -> str:
    if problem.errno == errno.ENOSPC:
        return f"The disk that holds {folder} is full. Make room, or set PARLEY_DATA_DIR to a folder on another disk."
    return (
        f"{folder} cannot be used to keep data: {problem.strerror} ({problem.filename}). "
        "Make it writable for you, or set PARLEY_DATA_DIR to another folder."
    )

"""Child processes that do not outlive us, and process ids that are never mistaken for somebody else's."""

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from backend.embedded.launch import PR_SET_PDEATHSIG
from backend.embedded.system_user import SystemUser

_LAUNCH = Path(__file__).with_name("launch.py")


def start(
    command: Sequence[str],
    *,
    output: IO[bytes] | int,
    user: SystemUser | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    death_signal: signal.Signals = signal.SIGTERM,
    keep: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """A child in a session of its own: Ctrl-C reaches only us, we end the children in order.

    When we die without a chance to do so (kill -9), the kernel sends each of them `death_signal`. Of our open files it
    has only those in `keep`.
    """
    identity = f"{user.uid}:{user.gid}" if user else "-"
    launch = [sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid()), str(int(death_signal)), identity]
    return subprocess.Popen(
        [*launch, *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env=env,
        start_new_session=True,
        pass_fds=keep,
    )


def stop_with_parent() -> None:
    """Be told to stop (SIGTERM) when the process that started us ends, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def end(child: subprocess.Popen[bytes], first: signal.Signals, *, patience: float) -> None:
    """Ask, wait, insist."""
    if child.poll() is None:
        child.send_signal(first)
        try:
            child.wait(patience)
        except subprocess.TimeoutExpired:
            child.kill()
    child.wait()


def started_at(pid: int) -> str | None:
    """When the process with this id started, in the kernel's own count; None when there is none or it cannot be seen.

    A process id alone says nothing after a restart of the machine: the number may belong to anybody by then.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The second field is the program's name in brackets and may hold spaces and brackets itself.
    fields = stat.rpartition(")")[2].split()
    state, start = fields[0], fields[19]
    return None if state in "ZX" else start


def works_in(pid: int, folder: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == folder
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def end_left_over(pid: int, started: str, *, patience: float) -> None:
    """End a process that is not our child, provided it is still the one that started then."""
    deadline = time.monotonic() + patience
    while started_at(pid) == started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
        time.sleep(0.05)


def last_words(log: Path) -> str:
    """Why a program ended, as far as the end of its log tells.

    Our web app writes JSON lines, and of an exception the traceback: its last line names what happened.
    """
    try:
        lines = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    said = [words for words in map(_words, lines[-20:]) if words and not words.startswith("Application startup failed")]
    # llama.cpp writes from a thread of its own, and may have the last word after ours.
    ours = [words for words in said if not _LLAMA.match(words)]
    return (ours or said or [""])[-1]


_LLAMA = re.compile(r"\d+\.\d+\.\d+\.\d+ [A-Z] ")

_EXCEPTION = re.compile(r"^(\w+\.)+\w+: ")


def _words(line: str) -> str:
    try:
        text = str(json.loads(line)["message"])
    except (ValueError, TypeError, KeyError):
        text = line
    last = text.strip().rpartition("\n")[2]
    return _EXCEPTION.sub("", last)

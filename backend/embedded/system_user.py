"""Postgres refuses to run as root, so root lends it a user that may do nothing but reach and own its files."""

import os
import pwd
import shutil
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from backend.embedded.errors import CannotRun

NAME = "parley-postgres"


@dataclass(frozen=True, slots=True)
class SystemUser:
    name: str
    uid: int
    gid: int


def me() -> SystemUser:
    """The user this process runs as. Postgres needs it to have a name."""
    try:
        entry = pwd.getpwuid(os.geteuid())
    except KeyError:
        raise CannotRun(
            f"The database needs a user with a name, and user number {os.geteuid()} has none in /etc/passwd. "
            "Run Parley as a user that is listed there."
        ) from None
    return SystemUser(entry.pw_name, entry.pw_uid, entry.pw_gid)


def for_postgres() -> SystemUser | None:
    """None when we are not root and Postgres simply runs as we do."""
    if os.geteuid() != 0:
        return None
    # Several test runs may ask for it at once; useradd holds a lock that the others then find taken.
    deadline = time.monotonic() + 10
    while True:
        try:
            entry = pwd.getpwnam(NAME)
        except KeyError:
            problem = _add()
            if problem and time.monotonic() > deadline:
                raise CannotRun(
                    f"Postgres does not run as root, and its own user {NAME} could not be created ({problem}). "
                    "Run Parley as an ordinary user instead."
                ) from None
            time.sleep(0.1 if problem else 0)
        else:
            return SystemUser(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _add() -> str:
    """What went wrong, or nothing."""
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if useradd is None:
        return "useradd is not installed"
    command = [useradd, "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    added = subprocess.run(
        [*command, "--shell", "/usr/sbin/nologin", NAME], capture_output=True, text=True, check=False
    )
    return added.stderr.strip() if added.returncode else ""


def can(user: SystemUser, test: str, path: Path) -> bool:
    """What `test -r|-w|-x PATH` says when this user asks; the kernel's answer, access lists included."""
    command = ["/usr/bin/test", test, str(path)]
    asked = subprocess.run(command, user=user.uid, group=user.gid, extra_groups=[], cwd="/", check=False)
    return asked.returncode == 0


def open_the_way(user: SystemUser, target: Path) -> list[Path]:
    """Let this one user pass through the folders above `target`, without a right to list or read them.

    A clone in /root lies under a folder that only root may enter. An access list entry for one user opens less than
    `chmod o+x` would. Returns the folders that were changed.
    """
    changed = []
    for folder in reversed(target.resolve().parents):
        if not can(user, "-x", folder):
            try:
                _allow_passing(folder, user.uid)
            except OSError as problem:
                raise CannotRun(
                    f"Postgres runs as the user {user.name}, who may not pass through {folder} "
                    f"({problem.strerror}). Move the project to another folder, set PARLEY_DATA_DIR to one that "
                    "everyone may enter, or run Parley as an ordinary user."
                ) from problem
            changed.append(folder)
    return changed


# POSIX access lists as the kernel stores them: a version, then entries of tag, permissions, id.
_ACL = "system.posix_acl_access"
_VERSION = 2
_USER_OBJ, _USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NO_ID = 0xFFFFFFFF
_PASS = 0o1


def _allow_passing(folder: Path, uid: int) -> None:
    entries = {key: bits for key, bits in _access_list(folder).items() if key != (_USER, uid)}
    entries[_USER, uid] = _PASS
    narrowed = [bits for (tag, _), bits in entries.items() if tag in (_USER, _GROUP_OBJ, _GROUP)]
    entries[_MASK, _NO_ID] = narrowed[0]
    for bits in narrowed:
        entries[_MASK, _NO_ID] |= bits
    packed = [struct.pack("<HHI", tag, bits, number) for (tag, number), bits in sorted(entries.items())]
    os.setxattr(folder, _ACL, struct.pack("<I", _VERSION) + b"".join(packed))


def _access_list(folder: Path) -> dict[tuple[int, int], int]:
    try:
        raw = os.getxattr(folder, _ACL)
    except OSError:  # none yet: the permission bits say it all
        mode = folder.stat().st_mode
        return {
            (_USER_OBJ, _NO_ID): mode >> 6 & 7,
            (_GROUP_OBJ, _NO_ID): mode >> 3 & 7,
            (_OTHER, _NO_ID): mode & 7,
        }
    return {(tag, number): bits for tag, bits, number in struct.iter_unpack("<HHI", raw[4:])}

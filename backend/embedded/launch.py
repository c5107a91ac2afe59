"""Become another program that dies with the process that started us.

Run as a script by `processes.start`: `launch.py PARENT SIGNAL UID:GID PROGRAM ARGUMENT…`, with `-` to stay who we are.
A script of its own because the kernel forgets the death signal when a process changes its user, so the order is fixed:
first the user, then the signal, then the program. It imports nothing of ours and starts in some twenty milliseconds.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def become(parent: int, death_signal: int, user: str, command: list[str]) -> None:
    if user != "-":
        uid, gid = (int(number) for number in user.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel knew of our wish
            sys.exit(1)
    try:
        os.execv(command[0], command)
    except OSError as problem:
        sys.exit(f"{command[0]}: {problem.strerror}")


if __name__ == "__main__":
    become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])

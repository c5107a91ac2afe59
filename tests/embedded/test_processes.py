import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backend.embedded import processes

STARTS_A_CHILD_AND_WAITS = """
import signal, subprocess, sys
from backend.embedded import processes
child = processes.start(["/bin/sleep", "600"], output=subprocess.DEVNULL, death_signal=signal.SIGINT)
print(child.pid, flush=True)
child.wait()
"""


def gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while processes.started_at(pid) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_child_does_not_outlive_a_parent_that_was_killed() -> None:
    command = [sys.executable, "-c", STARTS_A_CHILD_AND_WAITS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(0.2)
        assert processes.started_at(child)

        parent.kill()

        assert gone_within(child, 5)


def test_a_child_that_ignores_us_is_ended_all_the_same() -> None:
    command = ["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"]
    child = processes.start(command, output=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()

    processes.end(child, signal.SIGTERM, patience=0.2)

    assert child.returncode == -signal.SIGKILL
    child.stdout.close()


def test_what_an_earlier_run_left_is_ended() -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as left_over:
        started = processes.started_at(left_over.pid)
        assert started

        processes.end_left_over(left_over.pid, started, patience=5)

        assert left_over.wait() == -signal.SIGTERM


def test_a_stranger_with_the_same_process_id_is_left_alone() -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as stranger:
        processes.end_left_over(stranger.pid, started="1", patience=0)

        assert processes.started_at(stranger.pid)
        stranger.kill()


def test_nobody_has_an_id_that_is_not_in_use() -> None:
    with subprocess.Popen(["/bin/true"]) as ended:
        ended.wait()

    assert processes.started_at(ended.pid) is None


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", ""),
        ("one\ntwo\n\n", "two"),
        ('{"level":"error","message":"The port is taken."}\n', "The port is taken."),
        (
            '{"message":"Traceback (most recent call last):\\n  File x\\nbackend.core.errors.BadInput: Too short."}\n'
            '{"message":"Application startup failed. Exiting."}\n',
            "Too short.",
        ),
    ],
)
def test_the_last_words_of_a_program_say_why_it_ended(tmp_path: Path, log: str, words: str) -> None:
    file = tmp_path / "web.log"
    file.write_text(log)

    assert processes.last_words(file) == words


def test_a_program_that_never_wrote_has_no_last_words(tmp_path: Path) -> None:
    assert processes.last_words(tmp_path / "none.log") == ""

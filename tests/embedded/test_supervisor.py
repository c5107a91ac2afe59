"""What `parley run` says and leaves behind. Everything is real: the database, the model, the web app."""

import json
import os
import signal
import socket
import time
import urllib.request
from pathlib import Path

import pytest

from backend.embedded import processes
from tests.embedded.console import Console, parley
from tests.site import free_port

pytestmark = [pytest.mark.whole, pytest.mark.xdist_group("whole"), pytest.mark.long]


def processes_below(folder: Path) -> list[int]:
    """Everything that works on this data: whoever stands in it, or has its path in what it was started with."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid() or processes.started_at(int(entry.name)) is None:
            continue
        try:
            command = (entry / "cmdline").read_text()
            environment = (entry / "environ").read_text()
            standing = str((entry / "cwd").readlink())
        except OSError:
            continue
        if str(folder) in command or str(folder) in environment or standing.startswith(str(folder)):
            found.append(int(entry.name))
    return found


def all_gone(folder: Path, seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while processes_below(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def page(link: str) -> str:
    """What a browser shows that opens the link; the secret becomes a cookie on the way."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(link, timeout=30) as response:
        text: str = response.read().decode()
        return text


def test_it_prints_a_link_leaves_nothing_when_killed_and_keeps_everything(tmp_path: Path) -> None:
    """Killed with two processes that serve; the next run, with one, mends itself and is stopped."""
    port = free_port()
    with Console("run", data_dir=tmp_path, port=port, processes=2) as first:
        link = first.link()
        opened = page(link)
        added = parley("user", "add", "--admin", "ada@corp.example", data_dir=tmp_path)
        another = parley("run", data_dir=tmp_path, port=free_port())
        busy = processes_below(tmp_path)
        serving = [pid for pid in busy if "--process" in Path(f"/proc/{pid}/cmdline").read_text()]
        first.process.kill()
        gone = all_gone(tmp_path)
    with Console("run", data_dir=tmp_path, port=port) as second:
        later = second.link()
        people = parley("user", "list", data_dir=tmp_path)
        os.kill(int((tmp_path / "run" / "web.pid").read_text().split()[0]), signal.SIGKILL)
        second.until("The web app has stopped. It is started again in 1 s")
        second.until("The web app runs again.")
        deadline = time.monotonic() + 60
        while not _answers(port) and time.monotonic() < deadline:
            time.sleep(0.1)
        opened_again = page(f"http://127.0.0.1:{port}/login")
        code = second.stop()

    assert link.startswith(f"http://127.0.0.1:{port}/setup?secret=")
    assert 'name="password"' in opened
    assert f"http://127.0.0.1:{port}/join?secret=" in added.text
    assert another.process.returncode == 1
    assert f"already running with the data in {tmp_path} (process {first.process.pid})" in another.text
    assert len(busy) > 3
    assert len(serving) == 2
    assert gone

    assert later == f"http://127.0.0.1:{port}/"
    assert "ada@corp.example" in people.text
    assert 'name="password"' in opened_again
    assert code == 0
    assert processes_below(tmp_path) == []


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        console = parley("run", data_dir=tmp_path, port=port)

    assert console.process.returncode == 1
    assert f"Port {port} is in use by another program." in console.text
    assert f"PARLEY_PORT={port + 1} make run" in console.text
    assert "Traceback" not in console.text


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"port": "eighty"}, "PARLEY_PORT must be a whole number."),
        ({"port": "70000", "idle_seconds": "-1"}, "PARLEY_IDLE_SECONDS must be greater than 0"),
        ({"engines": "[{"}, "PARLEY_ENGINES must be written as JSON"),
        (
            {"engines": json.dumps([{"name": "a", "url": "ftp://a"}])},
            "PARLEY_ENGINES, entry 1, url must be an address",
        ),
        ({"host": "0.0.0.0"}, "PARLEY_PUBLIC_URL must begin with https://"),
        ({"database_url": "postgresql://x/y"}, "PARLEY_DATABASE_URL is set, but `parley run` brings a database"),
        ({"demo_model": "/no/such.gguf"}, "PARLEY_DEMO_MODEL=/no/such.gguf cannot be read: No such file or directory."),
        ({"demo_model": __file__}, "is not a GGUF file"),
        ({"data_dir": "/proc/parley"}, "/proc/parley cannot be used to keep data: No such file or directory"),
        ({"data_dir": __file__}, "cannot be used to keep data: File exists"),
    ],
)
def test_a_wrong_setting_is_a_sentence(tmp_path: Path, settings: dict[str, str], sentence: str) -> None:
    console = parley("run", **({"data_dir": str(tmp_path), "port": str(free_port())} | settings))

    assert console.process.returncode == 1
    assert sentence in console.text
    assert "Traceback" not in console.text


def test_a_mistyped_setting_is_pointed_out(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))

        console = parley("run", data_dir=tmp_path, port=other.getsockname()[1], prot=8080)

    assert "PARLEY_PROT is not a setting of Parley" in console.text


def test_what_the_web_app_refuses_reaches_the_console(tmp_path: Path) -> None:
    console = parley("run", data_dir=tmp_path, port=free_port(), admin_email="ada@corp.example", admin_password="short")

    assert console.process.returncode == 1
    assert "PARLEY_ADMIN_PASSWORD cannot be used." in console.text
    assert all_gone(tmp_path)

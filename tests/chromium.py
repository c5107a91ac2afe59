"""The Chromium of all tests in a browser: how it is started, and what it leaves out."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHROMIUM = os.environ.get("CHROMIUM") or "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # What a page asks of others is seen, and goes nowhere.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
    # The address bar, which nobody sees, is two web pages of its own for each window: half of what a test costs.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
    # No window is ever in front here, and none of them may sleep for that.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
]


@contextmanager
def chromium(profile: Path) -> Iterator[str]:
    """Runs one without a window; yields where Playwright connects to."""
    ours = ["--headless=new", "--no-startup-window", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
    assert Path(CHROMIUM).exists(), "There is no Chromium here: apt install chromium, or set CHROMIUM to its path."
    process = subprocess.Popen([CHROMIUM, *ARGUMENTS, *ours], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        told, deadline = profile / "DevToolsActivePort", time.monotonic() + 60
        while not told.exists() or "\n" not in told.read_text():
            assert process.poll() is None and time.monotonic() < deadline, "Chromium does not start."
            time.sleep(0.05)
        yield f"http://127.0.0.1:{told.read_text().splitlines()[0]}"
    finally:
        process.terminate()
        process.wait()

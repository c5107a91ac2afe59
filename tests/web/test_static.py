"""What is sent to browsers as it is: vendored files as they were published, scripts that stay inside their rules."""

import gzip
import hashlib
import re
from pathlib import Path

import pytest

from web.rendering import STATIC

VENDOR = STATIC / "vendor"
SCRIPTS = sorted(STATIC.glob("*.js"))

FORBIDDEN = {
    "innerHTML": r"\.(inner|outer)HTML\b|insertAdjacentHTML|setHTMLUnsafe|parseHTMLUnsafe|document\.write",
    "evaluation": r"\beval\(|\bnew Function\b|setTimeout\(\s*[\"'`]|setInterval\(\s*[\"'`]",
    "requests past htmx": r"\bfetch\(|XMLHttpRequest|\bEventSource\b|WebSocket|sendBeacon|\bimport\(",
    "an inline style": r"setAttribute\(\s*[\"']style|\.cssText\b",
    "stored for ever": r"\blocalStorage\b|\bindexedDB\b|document\.cookie",
    "a foreign address": r"https?://",
}
ALLOWED = {"attachments.js": {"requests past htmx"}}  # how much of an upload is sent, htmx cannot tell


def listed() -> dict[str, str]:
    lines = (VENDOR / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}


@pytest.mark.parametrize("name", sorted(listed()))
def test_a_vendored_file_is_what_its_checksum_says(name: str) -> None:
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == listed()[name]


def test_no_vendored_file_is_missing_in_the_list() -> None:
    files = {path.name for path in VENDOR.iterdir()} - {"SHA256SUMS"}

    assert files == listed().keys()


def test_a_vendored_script_comes_with_its_licence() -> None:
    assert "Zero-Clause BSD" in (VENDOR / "htmx.LICENSE").read_text()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_of_ours_decorates_and_nothing_else(script: Path) -> None:
    code = script.read_text()

    assert {what for what, pattern in FORBIDDEN.items() if re.search(pattern, code)} == ALLOWED.get(script.name, set())
    assert '"use strict";' in code


def test_our_scripts_stay_small() -> None:
    lines = sum(len(script.read_text().splitlines()) for script in SCRIPTS)

    assert lines <= 1060  # 60 of them for passkeys


def test_the_stylesheet_loads_nothing() -> None:
    style = (STATIC / "app.css").read_text()

    assert not re.search(r"@import|url\(", style)


def test_everything_a_first_page_loads_is_light() -> None:
    files = [path for path in STATIC.rglob("*") if path.suffix in (".css", ".js", ".svg")]
    packed = sum(len(gzip.compress(path.read_bytes())) for path in files)

    assert len(files) <= 11
    assert packed <= 45_000

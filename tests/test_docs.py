"""What the documents say is so: every setting has its row, every link leads somewhere, every name exists."""

import re
from pathlib import Path
from typing import get_args
from urllib.parse import unquote

import pytest
from pydantic import SecretStr

from backend.core.settings import EngineKind, EngineSetting, Settings

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SETTINGS = (ROOT / "docs" / "settings.md").read_text()
EXAMPLE = (ROOT / ".env.example").read_text()
COMPOSE = (ROOT / "docker-compose.yml").read_text()


# Settings


def rows() -> dict[str, list[str]]:
    """By name of the setting: default, what it is, when to change it."""
    found = [line.strip("| ").split(" | ") for line in SETTINGS.splitlines() if line.startswith("| `PARLEY_")]
    return {cells[0].strip("`"): cells[1:] for cells in found}


def as_written(default: object) -> str:
    if default in ("", None, ()):
        return "not set"
    if isinstance(default, bool):
        return f"`{int(default)}`"
    assert not isinstance(default, SecretStr)
    return f"`{default}`"


def test_every_setting_has_a_row_and_every_row_a_setting() -> None:
    assert set(rows()) == {f"PARLEY_{name.upper()}" for name in Settings.model_fields}
    assert SETTINGS.count("\n| `PARLEY_") == len(Settings.model_fields), "each of them once"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_row_says_the_default_the_meaning_and_when_to_change_it(name: str) -> None:
    default, meaning, occasion = rows()[f"PARLEY_{name.upper()}"]

    assert default == as_written(Settings.model_fields[name].default)
    assert meaning.endswith(".")
    assert occasion.endswith(".")


def test_an_entry_of_an_engine_is_described_whole() -> None:
    described = SETTINGS.partition("An entry of `PARLEY_ENGINES`:")[2].partition("```")[0]

    assert set(re.findall(r"^\| `(\w+)` \|", described, re.MULTILINE)) == set(EngineSetting.model_fields)
    kinds = next(line for line in described.splitlines() if line.startswith("| `kind`"))
    assert tuple(re.findall(r"`(\w+)`", kinds)[1:]) == get_args(EngineKind)


def test_no_document_speaks_of_a_setting_that_does_not_exist() -> None:
    known = {f"PARLEY_{name.upper()}" for name in Settings.model_fields} | set(variables(EXAMPLE))

    for document in DOCUMENTS:
        named = set(re.findall(r"\bPARLEY_[A-Z][A-Z_]*[A-Z]\b", document.read_text()))
        # What begins so is of the tests, and no setting of the program.
        assert {name for name in named if not name.startswith("PARLEY_TEST_")} <= known, document.name


# The compose file and its example values


def variables(text: str) -> list[str]:
    return re.findall(r"^([A-Z][A-Z0-9_]*)=", text, re.MULTILINE)


def test_every_example_value_is_used() -> None:
    """By the compose file, which hands it on; so a misspelt name cannot be copied by anybody."""
    used = set(re.findall(r"\$\{([A-Z0-9_]+)", COMPOSE))

    assert set(variables(EXAMPLE)) == used


def test_the_compose_file_sets_only_what_parley_reads() -> None:
    services = re.findall(r"^ +(PARLEY_[A-Z_]+):", COMPOSE, re.MULTILINE)
    roles = {"PARLEY_OWNER_PASSWORD", "PARLEY_APP_PASSWORD"}  # read by deploy/postgres/roles.sh

    assert services
    assert set(services) - roles <= {f"PARLEY_{name.upper()}" for name in Settings.model_fields}


# Links


def anchors(document: Path) -> set[str]:
    """Of the headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links() -> list[tuple[Path, str]]:
    return [
        (document, target)
        for document in DOCUMENTS
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL))
        if not target.startswith(("http://", "https://", "mailto:"))
    ]


def test_every_link_leads_somewhere() -> None:
    assert len(links()) > 5
    for document, target in links():
        path, _hash, anchor = target.partition("#")
        leads_to = (document.parent / unquote(path)).resolve() if path else document

        assert leads_to.exists(), f"{document.name}: {target}"
        assert not anchor or anchor in anchors(leads_to), f"{document.name}: {target}"


@pytest.mark.parametrize(
    "name", ["architecture.md", "bench.md", "settings.md", "decisions.md", "running.md", "sign-in.md"]
)
def test_the_readme_leads_to_every_document(name: str) -> None:
    assert f"](docs/{name}" in (ROOT / "README.md").read_text()


def test_every_file_that_a_document_names_exists() -> None:
    """Written as code, with a folder in front: `backend/conversations/turns.py`."""
    named = re.compile(r"`((?:backend|web|migrations|deploy|tests|docs|requirements)/[\w./*-]+)`")
    missing = [
        f"{document.name}: {path}"
        for document in DOCUMENTS
        for path in named.findall(document.read_text())
        if not list(ROOT.glob(path.rstrip("/.")))
        and path not in ("backend/x/y.py", "tests/x/test_y.py")  # as a pattern, in CONTRIBUTING
    ]

    assert missing == []


def test_every_command_that_a_document_names_is_one() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    for document in DOCUMENTS:
        named = set(re.findall(r"`make ([a-z0-9-]+)", document.read_text()))
        assert named <= targets, document.name


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert headings
    assert headings[0] == "Unreleased"

"""Reads `languages.toml`, which says how code in each language looks."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Language:
    name: str
    expression: str
    words: Mapping[str, str]
    names_after: Mapping[str, str]
    any_case: bool


def _read() -> tuple[dict[str, Language], dict[str, str]]:
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    known = tables.pop("signs")
    languages = {key: _language(table, known) for key, table in tables.items()}
    return languages, {alias: key for key, table in tables.items() for alias in table["aliases"].split()}


def _language(table: Mapping[str, Any], known: Mapping[str, str]) -> Language:
    return Language(
        name=table["name"],
        expression=_expression(table["signs"], known) if "signs" in table else "",
        words=_by_word(table.get("words", {})),
        names_after=_by_word(table.get("names_after", {})),
        any_case=table.get("any_case", False),
    )


def _expression(signs: Mapping[str, str | list[str]], known: Mapping[str, str]) -> str:
    groups = []
    for kind, sign in {**signs, "m": signs.get("m", "number"), "word": r"[^\W\d]\w*+"}.items():
        choices = sign if isinstance(sign, list) else [sign]
        groups.append(f"(?P<{kind}>{'|'.join(known.get(choice, choice) for choice in choices)})")
    return "|".join(groups)


def _by_word(kinds: Mapping[str, str]) -> dict[str, str]:
    return {word: kind for kind, words in kinds.items() for word in words.split()}


LANGUAGES, ALIASES = _read()

"""`response_format`: the one place where what a program sends is handed on as it is, so it is looked through first.

A schema is compiled by the engine, for everybody who waits for it: deep or huge ones, patterns that are none and
references to elsewhere have stopped servers.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from backend.core.i18n import _
from backend.engines.request import JSON
from web.api.errors import Refused

MOST_BYTES = 32 << 10
DEEPEST = 24
_LONGEST_PATTERN = 500
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_PARAM = "response_format"


def checked(wanted: Mapping[str, Any]) -> dict[str, JSON] | None:
    """As an engine is sent it; None for plain text. Raises Refused."""
    match wanted.get("type"):
        case "text":
            return None
        case "json_object":
            return {"type": "json_object"}
        case "json_schema":
            return {"type": "json_schema", "json_schema": _named(wanted.get("json_schema"))}
    raise Refused(_("“response_format.type” is text, json_object or json_schema."), param=f"{_PARAM}.type")


def _named(given: object) -> dict[str, JSON]:
    param = f"{_PARAM}.json_schema"
    if not isinstance(given, dict):
        raise Refused(_("“{name}” is missing.").format(name=param), param=param)
    name, schema, strict = given.get("name"), given.get("schema", {}), given.get("strict")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        sentence = _("A schema has a name of at most 64 letters, digits, hyphens and underscores.")
        raise Refused(sentence, param=f"{param}.name")
    param += ".schema"
    if not isinstance(schema, dict) or (strict is not None and not isinstance(strict, bool)):
        raise Refused(_("This is no JSON schema."), param=param)
    _walk(schema, param, 0)  # first, because what is nested without end cannot be written out either
    if len(orjson.dumps(schema)) > MOST_BYTES:
        raise Refused(_("A schema has at most {most} kB.").format(most=MOST_BYTES >> 10), param=param)
    made: dict[str, JSON] = {"name": name, "schema": schema}
    return made | {"strict": strict} if strict is not None else made


def _walk(value: object, param: str, depth: int) -> None:
    if depth > DEEPEST:
        raise Refused(_("The schema is nested too deeply."), param=param)
    if isinstance(value, list):
        for item in value:
            _walk(item, param, depth + 1)
    elif isinstance(value, dict):
        _check_words(value, param)
        for item in value.values():
            _walk(item, param, depth + 1)


def _check_words(value: dict[str, Any], param: str) -> None:
    """Of one level; a property may bear the name of a keyword, and is then no text."""
    reference, pattern, kind = value.get("$ref"), value.get("pattern"), value.get("type")
    if isinstance(reference, str) and not reference.startswith("#"):
        raise Refused(_("A schema may only refer to itself."), param=param)
    if isinstance(kind, str) and kind not in _TYPES:
        raise Refused(_("“{name}” is no type of JSON schema.").format(name=kind[:40]), param=param)
    if isinstance(pattern, str) and not _is_pattern(pattern):
        raise Refused(_("A pattern in the schema cannot be used."), param=param)


def _is_pattern(pattern: str) -> bool:
    try:
        return len(pattern) <= _LONGEST_PATTERN and bool(re.compile(pattern))
    except (re.error, RecursionError, OverflowError):
        return False

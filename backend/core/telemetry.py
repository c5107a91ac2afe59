"""Logs: one line an event, with the support id of the request or answer it belongs to. Never chat text or secrets."""

import json
import logging
import secrets
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import orjson

#: What a page of an error shows and its log line carries; set by whoever starts a unit of work.
support_id: ContextVar[str] = ContextVar("support_id", default="")

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # 31, none of them mistaken for another

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def new_support_id() -> str:
    """Short enough to be read out on the telephone: `k3f9-x2mq`."""
    code = "".join(_LETTERS[byte % 31] for byte in secrets.token_bytes(8))
    return f"{code[:4]}-{code[4:]}"


class JsonLines(logging.Formatter):
    """JSON escapes line breaks, so nothing a stranger sends can forge a second line.

    `process` is the number of one of several that write to the same place.
    """

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._process is not None:
            line["process"] = self._process
        if current := support_id.get():
            line["support_id"] = current
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:  # a lone surrogate, a number beyond 64 bits: no line is lost for what is in it
            return json.dumps({key: str(value) for key, value in line.items()})


def configure_logging(level: int = logging.INFO, *, process: int | None = None) -> None:
    """JSON lines on standard output, for everything in the process."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines(process))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("uvicorn.access").disabled = True  # it would write query strings; the gate logs paths

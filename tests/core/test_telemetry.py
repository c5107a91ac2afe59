"""One line of JSON for each event, whatever is in it."""

import json
import logging
import subprocess
import sys
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st

from backend.core.telemetry import JsonLines, new_support_id, support_id


def line(message: str, *arguments: object, exc_info: Any = None, **extra: object) -> dict[str, Any]:
    record = logging.getLogger("parley.test").makeRecord(
        "parley.test", logging.WARNING, __file__, 1, message, arguments, exc_info, extra=extra
    )
    written = JsonLines().format(record)
    assert "\n" not in written
    found: dict[str, Any] = json.loads(written)
    return found


def test_a_line_says_when_how_serious_who_and_what() -> None:
    found = line("%s failed", "Everything", answer_id=UUID(int=7), milliseconds=1.5)

    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "warning",
        "logger": "parley.test",
        "message": "Everything failed",
        "answer_id": str(UUID(int=7)),
        "milliseconds": 1.5,
    }


def test_a_line_carries_the_support_id_of_its_request() -> None:
    token = support_id.set("k3f9-x2mq")

    found = line("failed")

    support_id.reset(token)
    assert found["support_id"] == "k3f9-x2mq"
    assert "support_id" not in line("failed")


def test_an_exception_is_part_of_its_line() -> None:
    error = RuntimeError("a fault of ours")

    found = line("failed", exc_info=(RuntimeError, error, None))

    assert found["exception"] == "RuntimeError: a fault of ours"


def test_a_stranger_cannot_forge_a_second_line() -> None:
    found = line("GET %s", '/x\n{"level": "info", "message": "all is well"}', path="\r\n\u2028")

    assert found["message"] == 'GET /x\n{"level": "info", "message": "all is well"}'


@pytest.mark.parametrize("value", ["\ud800", {"a": "\udfff"}, 2**70, {UUID(int=1): 1}, {"deep": {1: b"\xff"}}])
def test_no_value_loses_a_line(value: object) -> None:
    """An engine can put a lone surrogate into its error, and the log is where one looks for it."""
    found = line("the engine said %s", value, value=value)

    assert found["message"].startswith("the engine said ")
    assert "value" in found


@settings(deadline=None)
@given(st.text(st.one_of(st.sampled_from("\ud800\udfff\0\n"), st.characters(codec=None))))
def test_every_text_can_be_logged(text: str) -> None:
    found = line("said: %s", text, text=text)

    assert found["text"].encode("utf-8", "replace") == text.encode("utf-8", "replace")


def test_support_ids_can_be_read_out_on_the_telephone() -> None:
    ids = {new_support_id() for _ in range(1_000)}

    assert len(ids) == 1_000
    assert all(len(one) == 9 and one[4] == "-" for one in ids)
    assert not set("".join(ids)) & set("ilo01")


def test_the_whole_process_logs_in_lines_and_no_address_with_its_query() -> None:
    program = """
import logging
from backend.core.telemetry import configure_logging
configure_logging()
logging.getLogger("some.library").info("hello")
logging.getLogger("some.library").debug("too much")
logging.getLogger("uvicorn.access").info("GET /setup?secret=geheim")
"""

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert [json.loads(one)["message"] for one in ran.stdout.splitlines()] == ["hello"]
    assert ran.stderr == ""

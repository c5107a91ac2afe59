import json
from collections.abc import Mapping

import pytest

from backend.engines.request import JSON, ChatRequest, body_of
from tests.engines.support import question


def test_the_body_holds_what_was_asked_and_no_more() -> None:
    request = question("Grüße", max_tokens=9, temperature=0.5, extra={"cache_salt": "00ff", "priority": -1})

    assert json.loads(body_of(request)) == {
        "model": "fake-8b",
        "messages": [{"role": "user", "content": "Grüße"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 9,
        "temperature": 0.5,
        "cache_salt": "00ff",
        "priority": -1,
    }


def test_what_is_not_set_is_not_sent() -> None:
    assert set(json.loads(body_of(question(extra={"seed": None})))) == {"model", "messages", "stream", "stream_options"}


def test_only_role_and_content_of_a_message_are_sent() -> None:
    message = {"role": "user", "content": "Hi", "name": "alice@example.com"}

    body = json.loads(body_of(ChatRequest("m", [message])))  # type: ignore[list-item]

    assert body["messages"] == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    "extra",
    [
        {"user": "alice@example.com"},
        {"n": 5},
        {"stream": False},
        {"cache_salt": "a/b@c"},
        {"cache_salt": ""},
        {"cache_salt": "x" * 129},
        {"top_p": 2},
        {"priority": "high"},
        {"seed": True},
        {"stop": ["a"] * 5},
        {"stop": [""]},
        {"max_tokens": 0},
        {"max_completion_tokens": 10**9},
        {"add_generation_prompt": "no"},
        {"chat_template_kwargs": {"enable_thinking": {"x": 1}}},
        {"reasoning_effort": "x" * 201},
    ],
)
def test_unknown_fields_and_values_out_of_bounds_never_leave(extra: Mapping[str, JSON]) -> None:
    with pytest.raises(ValueError, match=next(iter(extra))):
        body_of(question(extra=extra))


@pytest.mark.parametrize("temperature", [-0.1, 2.1, float("nan"), float("inf"), True])
def test_a_temperature_out_of_bounds_never_leaves(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature"):
        body_of(question(temperature=temperature))


def test_continuing_is_told_by_the_last_message() -> None:
    assert not question().goes_on
    assert ChatRequest("m", [{"role": "user", "content": "Count"}, {"role": "assistant", "content": "One,"}]).goes_on

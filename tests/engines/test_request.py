import json
from collections.abc import Mapping, Sequence

import pytest

from backend.engines.request import JSON, ChatMessage, ChatRequest, body_of
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
        {"add_generation_prompt": False},
        {"continue_final_message": True},
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


def test_an_unfinished_answer_is_continued_and_nothing_else() -> None:
    asked: list[ChatMessage] = [{"role": "user", "content": "Count"}]
    begun: list[ChatMessage] = [*asked, {"role": "assistant", "content": "One,"}]

    body = json.loads(body_of(ChatRequest("m", begun, continues=True)))

    assert (body["add_generation_prompt"], body["continue_final_message"]) == (False, True)
    assert "continue_final_message" not in json.loads(body_of(ChatRequest("m", begun)))
    for messages in (asked, []):
        with pytest.raises(ValueError, match="can be continued"):
            body_of(ChatRequest("m", messages, continues=True))


def test_a_picture_goes_along_as_a_data_url_of_our_own() -> None:
    parts = [text("What is this?"), image("data:image/webp;base64,UklGRg==")]

    [message] = json.loads(body_of(saying(parts)))["messages"]

    assert message == {"role": "user", "content": parts}
    assert list(json.loads(body_of(saying([text("x") | {"name": "alice"}])))["messages"][0]["content"][0]) == [
        "type",
        "text",
    ]


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/cat.png",
        "file:///etc/passwd",
        "data:image/svg+xml;base64,PHN2Zz4=",
        "data:text/html;base64,PGI+",
        "data:image/png,raw",
        "data:image/png;base64,",
        "data:image/png;base64,iVBO\n",
        "DATA:image/png;base64,iVBO",
    ],
)
def test_nothing_but_a_picture_of_ours_is_sent_as_one(url: str) -> None:
    with pytest.raises(ValueError, match="part of a message"):
        body_of(saying([image(url)]))


@pytest.mark.parametrize("parts", [[{"type": "input_audio"}], [{"type": "text"}], [{"type": "text", "text": 1}], []])
def test_other_parts_never_leave(parts: list[object]) -> None:
    with pytest.raises(ValueError, match="part"):
        body_of(saying(parts))


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}


def image(url: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


def saying(parts: Sequence[object]) -> ChatRequest:
    return question(messages=[{"role": "user", "content": parts}])

import json
from collections.abc import Sequence
from typing import Any

import pytest

from backend.engines import dialects
from backend.engines.events import EngineFailed
from backend.engines.kinds import Kind
from backend.engines.request import ChatMessage, ChatRequest
from tests.engines.support import question

VLLM = dialects.of(Kind.VLLM)


def sent(kind: Kind, *, priorities: bool = False, **fields: Any) -> dict[str, Any]:
    """What goes to an engine of this kind, without what every request has."""
    body: dict[str, Any] = json.loads(dialects.of(kind).body(question(**fields), priorities=priorities))
    return {name: value for name, value in body.items() if name not in ("model", "messages", "stream")}


def test_the_body_holds_what_was_asked_and_no_more() -> None:
    request = question("Grüße", max_tokens=9, temperature=0.5, salt="00ff", priority=2, session="c1", fairness="p1")

    assert json.loads(VLLM.body(request, priorities=True)) == {
        "model": "fake-8b",
        "messages": [{"role": "user", "content": "Grüße"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 9,
        "temperature": 0.5,
        "cache_salt": "00ff",
        "priority": 2,
    }


@pytest.mark.parametrize("kind", list(Kind))
def test_what_is_not_set_is_not_sent(kind: Kind) -> None:
    assert sent(kind).keys() == {"stream_options", "store"} if kind is Kind.HOSTED else {"stream_options"}


def test_what_nobody_knows_is_spoken_to_in_the_protocol_as_it_is_written_down() -> None:
    assert dialects.of(None) is dialects.of("klingon") is dialects.of(Kind.OPENAI)


@pytest.mark.parametrize(
    ("kind", "first", "middle", "last"),
    [
        (Kind.VLLM, 0, 1, 2),
        (Kind.SGLANG, 0, -1, -2),
        (Kind.TRTLLM, 0.9, 0.5, 0.1),
        (Kind.VLLM_ROUTER, 0, 1, 2),
        (Kind.SMG, 0, -1, -2),
        (Kind.LLAMACPP, None, None, None),
        (Kind.HOSTED, None, None, None),
    ],
)
def test_each_kind_has_its_own_idea_of_what_comes_first(
    kind: Kind, first: float | None, middle: float | None, last: float | None
) -> None:
    urgencies = [sent(kind, priorities=True, priority=urgency).get("priority") for urgency in (0, 1, 2)]

    assert urgencies == [first, middle, last]


def test_a_priority_is_only_sent_where_the_engine_was_started_with_them() -> None:
    """SGLang refuses it otherwise."""
    assert "priority" not in sent(Kind.SGLANG, priority=2)


SWITCH = {"enable_thinking": False, "thinking": False}


@pytest.mark.parametrize(
    ("kind", "off", "high"),
    [
        (
            Kind.VLLM,
            {"chat_template_kwargs": SWITCH},
            {"chat_template_kwargs": dict.fromkeys(SWITCH, True), "reasoning_effort": "high"},
        ),
        (Kind.TRTLLM, {"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "high"}),
        (
            Kind.LLAMACPP,
            {"chat_template_kwargs": SWITCH},
            {"chat_template_kwargs": {**dict.fromkeys(SWITCH, True), "reasoning_effort": "high"}},
        ),
        (Kind.OLLAMA, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}),
        (Kind.OPENAI, {}, {"reasoning_effort": "high"}),
        (Kind.TGI, {}, {}),
        (Kind.LMSTUDIO, {}, {}),
    ],
)
def test_each_kind_has_its_own_words_for_thinking(kind: Kind, off: dict[str, Any], high: dict[str, Any]) -> None:
    for thinking, expected in (("off", off), ("high", high), ("", {})):
        found = sent(kind, thinking=thinking)
        del found["stream_options"]
        assert found == expected


def test_tgi_gets_only_what_is_within_its_bounds() -> None:
    within = sent(Kind.TGI, temperature=0.5, top_p=0.9)
    beyond = sent(Kind.TGI, temperature=0, top_p=1)

    assert (within["temperature"], within["top_p"]) == (0.5, 0.9)
    assert not beyond.keys() & {"temperature", "top_p"}


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WITH_SCHEMA = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}


def test_json_is_asked_for_in_the_form_that_the_kind_knows() -> None:
    anything = {"type": "json_object"}

    assert sent(Kind.VLLM, response_format=WITH_SCHEMA)["response_format"] == WITH_SCHEMA
    assert sent(Kind.TGI, response_format=WITH_SCHEMA)["response_format"] == {"type": "json_object", "value": SCHEMA}
    assert sent(Kind.TGI, response_format=anything)["response_format"]["value"] == {"type": "object"}
    assert "response_format" not in sent(Kind.TGI, response_format={"type": "text"})
    assert sent(Kind.LMSTUDIO, response_format=anything)["response_format"]["type"] == "json_schema"
    assert sent(Kind.LMSTUDIO, response_format=WITH_SCHEMA)["response_format"] == WITH_SCHEMA


def test_a_hosted_service_keeps_nothing_and_gets_what_its_models_take() -> None:
    plain = sent(Kind.HOSTED, model="gpt-4o", max_tokens=9, temperature=0.5, salt="00ff", session="c1")
    reasoning = sent(Kind.HOSTED, model="o3-mini", max_tokens=9, temperature=0.5, top_p=0.9, stop=["x"], thinking="low")

    options = {"include_usage": True, "include_obfuscation": False}
    assert plain == {"store": False, "stream_options": options, "max_completion_tokens": 9, "temperature": 0.5}
    assert reasoning == {
        "store": False,
        "stream_options": options,
        "max_completion_tokens": 9,
        "reasoning_effort": "low",
    }
    assert dialects.of(Kind.HOSTED).headers(question(session="c1", fairness="p1")) == {}


@pytest.mark.parametrize("name", ["gpt-oss:120b-cloud", "deepseek-v3.1:671b-cloud", "glm-4.6:cloud"])
def test_what_ollama_would_pass_on_to_its_maker_is_not_sent(name: str) -> None:
    with pytest.raises(EngineFailed, match="runs on servers of its maker"):
        dialects.of(Kind.OLLAMA).body(question(model=name))

    assert dialects.of(Kind.VLLM).body(question(model=name))


def test_only_role_and_content_of_a_message_are_sent() -> None:
    message = {"role": "user", "content": "Hi", "name": "alice@example.com"}

    body = json.loads(VLLM.body(ChatRequest("m", [message])))  # type: ignore[list-item]

    assert body["messages"] == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    "wrong",
    [
        {"salt": "a/b@c"},
        {"salt": ""},
        {"salt": "x" * 129},
        {"top_p": 2},
        {"seed": True},
        {"stop": ["a"] * 5},
        {"stop": [""]},
        {"max_tokens": 0},
        {"response_format": {"type": "grammar"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": "x" * 70_000}}},
        {"thinking": "x" * 201},
    ],
)
def test_values_out_of_bounds_never_leave(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="out of bounds"):
        VLLM.body(question(**wrong))


@pytest.mark.parametrize("name", ["", "alice@example.com", "a\r\nx-admin: 1", "ß", "x" * 129])
def test_a_header_holds_nothing_but_an_opaque_name(name: str) -> None:
    if name:
        with pytest.raises(ValueError, match="letters and digits"):
            VLLM.headers(question(session=name))
        with pytest.raises(ValueError, match="letters and digits"):
            VLLM.headers(question(fairness=name))
    else:
        assert VLLM.headers(question(session=name)) == {}


@pytest.mark.parametrize("temperature", [-0.1, 2.1, float("nan"), float("inf"), True])
def test_a_temperature_out_of_bounds_never_leaves(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature"):
        VLLM.body(question(temperature=temperature))


def test_an_unfinished_answer_is_continued_and_nothing_else() -> None:
    asked: list[ChatMessage] = [{"role": "user", "content": "Count"}]
    begun: list[ChatMessage] = [*asked, {"role": "assistant", "content": "One,"}]

    body = json.loads(VLLM.body(ChatRequest("m", begun, continues=True)))

    assert (body["add_generation_prompt"], body["continue_final_message"]) == (False, True)
    assert "continue_final_message" not in json.loads(VLLM.body(ChatRequest("m", begun)))
    for messages in (asked, []):
        with pytest.raises(ValueError, match="can be continued"):
            VLLM.body(ChatRequest("m", messages, continues=True))


def test_a_picture_goes_along_as_a_data_url_of_our_own() -> None:
    parts = [text("What is this?"), image("data:image/webp;base64,UklGRg==")]

    [message] = json.loads(VLLM.body(saying(parts)))["messages"]

    assert message == {"role": "user", "content": parts}
    assert list(json.loads(VLLM.body(saying([text("x") | {"name": "alice"}])))["messages"][0]["content"][0]) == [
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
        VLLM.body(saying([image(url)]))


@pytest.mark.parametrize("parts", [[{"type": "input_audio"}], [{"type": "text"}], [{"type": "text", "text": 1}], []])
def test_other_parts_never_leave(parts: list[object]) -> None:
    with pytest.raises(ValueError, match="part"):
        VLLM.body(saying(parts))


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}


def image(url: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


def saying(parts: Sequence[object]) -> ChatRequest:
    return question(messages=[{"role": "user", "content": parts}])

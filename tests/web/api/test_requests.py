"""What a program may ask, field by field."""

import base64
from typing import Any

import orjson
import pytest

from tests.web.api.conftest import asked
from web.api import requests, schemas
from web.api.errors import Refused

PICTURE = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()


def read(**more: Any) -> requests.Completion:
    return requests.read(orjson.dumps(asked() | more))


def said(content: object, role: str = "user") -> list[dict[str, object]]:
    return [{"role": role, "content": content}]


def test_what_is_understood() -> None:
    completion = read(
        max_completion_tokens=7,
        max_tokens=9,
        temperature=1,
        top_p=0.5,
        stop="END",
        seed=2**40 + 5,
        reasoning_effort="minimal",
        stream=True,
        stream_options={"include_usage": True},
        response_format={"type": "json_object"},
    )

    assert (completion.limit, completion.temperature, completion.top_p, completion.stop) == (7, 1.0, 0.5, ["END"])
    assert (completion.engine_seed, completion.thinking, completion.stream) == (5, "low", True)
    assert completion.wants_usage
    assert completion.format == {"type": "json_object"}


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "alice", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "prompt_cache_key": "x"},
        {"n": 1, "logprobs": False, "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}},
        {"tools": [], "tool_choice": "none", "modalities": ["text"], "parallel_tool_calls": True},
        {"temperature": None, "stop": None, "stream_options": None, "tools": None, "whatever": None, "n": None},
        {"messages": [{"role": "user", "content": "Hello?", "name": "Alice"}]},
        {"messages": [*said("Hi"), {"role": "assistant", "content": "Ho", "tool_calls": [], "refusal": None,
                                    "reasoning_content": "Hm", "annotations": []}, *said("Hello?")]},
    ],
)  # fmt: skip
def test_what_clients_send_and_what_changes_nothing_is_passed_over(fields: dict[str, Any]) -> None:
    completion = read(**fields)

    assert completion.messages[-1].text == "Hello?"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{}]}, "functions"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"1": 5}}, "logit_bias"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"messages": said("x", role="tool")}, "messages[0].role"),
        ({"messages": said([{"type": "input_audio", "input_audio": {}}])}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]}, "messages[0].tool_calls"),
    ],
)
def test_what_would_change_the_answer_is_not_supported_yet(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refused, match="not supported yet") as refused:
        read(**fields)

    assert refused.value.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": 7}, "model"),
        ({"model": None}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "Hello"}, "messages"),
        ({"messages": [7]}, "messages[0]"),
        ({"messages": said("x") * 2_001}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": said(7)}, "messages[0].content"),
        ({"messages": said([])}, "messages[0].content"),
        ({"messages": said("x", role="root")}, "messages[0].role"),
        ({"messages": said("x", role="assistant")}, "messages"),
        ({"messages": said([{"type": "text"}])}, "messages[0].content[0].text"),
        ({"messages": said([{"type": "text", "text": 7}])}, "messages[0].content[0].text"),
        ({"messages": said([{"type": "magic"}])}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": "x", "cache_control": {}}]}, "messages[0].cache_control"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "0"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 10**7}, "max_tokens"),
        ({"seed": "1"}, "seed"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": ""}, "stop[0]"),
        ({"stop": ["x" * 201]}, "stop[0]"),
        ({"stream": "yes"}, "stream"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"top_k": 5}, "top_k"),
    ],
)
def test_a_field_that_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refused) as refused:
        read(**fields)

    assert refused.value.param == param
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "url",
    ["https://evil.example/x.png", "http://169.254.169.254/", "file:///etc/passwd", "//evil.example",
     "data:text/html;base64,eA==", "data:image/svg+xml;base64,eA==", "data:image/png,x", " " + PICTURE, ""],
)  # fmt: skip
def test_a_picture_is_never_an_address(url: str) -> None:
    with pytest.raises(Refused, match="data URL") as refused:
        read(messages=said([{"type": "image_url", "image_url": {"url": url}}]))

    assert refused.value.param == "messages[0].content[0].image_url.url"


def test_pictures_are_counted_and_belong_to_people() -> None:
    part = {"type": "image_url", "image_url": {"url": PICTURE}}

    assert read(messages=said([part] * 20)).messages[0].pictures == [PICTURE] * 20
    with pytest.raises(Refused, match="21 pictures"):
        read(messages=said([part] * 11) + said([part] * 10))
    with pytest.raises(Refused, match="role “user”"):
        read(messages=[*said("x"), *said([part], role="assistant")])


def schema(**inner: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": inner, "strict": True}}


def nested(depth: int) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": nested(depth - 1)}} if depth else {"type": "string"}


def test_a_schema_is_handed_on() -> None:
    wanted = schema(
        type="object",
        properties={"type": {"type": "string", "pattern": "^[a-z]+$"}, "pattern": {"$ref": "#/$defs/x"}},
    )

    assert schemas.checked(wanted) == wanted
    assert schemas.checked({"type": "text"}) is None


@pytest.mark.parametrize("kind", [["text"], {"a": 1}, 7, None])
def test_a_part_of_no_type_is_refused(kind: object) -> None:
    with pytest.raises(Refused):
        read(messages=said([{"type": kind, "text": "Hello"}]))


@pytest.mark.parametrize(
    "wanted",
    [
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"schema": {}}},
        {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": []}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": 1}},
        schema(**{"$ref": "http://evil.example/schema"}),
        schema(pattern="("),
        schema(pattern="a" * 501),
        schema(type="strin"),
        schema(description="x" * 40_000),
        schema(**nested(13)),
        schema(**nested(500)),  # deeper than anything that writes JSON goes
    ],
)
def test_a_schema_that_could_stop_an_engine_is_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        schemas.checked(wanted)

    assert refused.value.param is not None
    assert refused.value.param.startswith("response_format.json_schema")

"""Answers in OpenAI's shapes, and the names under which models are found."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import orjson
import pytest

from backend.engines.events import Delta, Finish, Reasoning, Usage
from web.api import catalogue, shapes
from web.api.shapes import DONE, Chunks, Gathered

USAGE = shapes.usage_of(Usage(7, 3, 5))


def payloads(stream: bytes) -> list[dict[str, Any]]:
    events = stream.split(b"\n\n")
    assert events.pop() == b""
    return [orjson.loads(event.removeprefix(b"data: ")) for event in events if event != b"data: [DONE]"]


def test_one_read_is_one_chunk_of_each_kind_in_order() -> None:
    gathered = Gathered()

    runs = gathered.take([Reasoning("a"), Reasoning("b"), Delta("c"), Delta("d"), Finish("length"), Usage(7, 3)])

    assert runs == [Reasoning("ab"), Delta("cd")]
    assert (gathered.written, gathered.finish_reason, gathered.usage) == (4, "length", Usage(7, 3))
    assert gathered.take([Usage(7, 4)]) == []


@pytest.mark.parametrize("with_usage", [False, True])
def test_a_stream_begins_with_the_role_and_ends_with_done(with_usage: bool) -> None:
    chunks = Chunks("chatcmpl-1", 'a "model"', 5, with_usage=with_usage)
    gathered = Gathered()

    stream = chunks.of([Reasoning("Hm")]) + chunks.of([Delta('Say "hi"\n\n')]) + chunks.end(gathered, USAGE)

    assert stream.endswith(DONE)
    role, thought, text, last, *rest = payloads(stream)
    deltas = [chunk["choices"][0]["delta"] for chunk in (role, thought, text, last)]
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Hm"},
        {"content": 'Say "hi"\n\n'},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in (role, text, last)] == [None, None, "stop"]
    assert {(chunk["id"], chunk["model"], chunk["created"]) for chunk in (role, text, last)} == {
        ("chatcmpl-1", 'a "model"', 5)
    }
    assert all(("usage" in chunk) == with_usage for chunk in (role, text, last))
    assert [chunk["usage"]["total_tokens"] for chunk in rest] == ([10] if with_usage else [])


def test_an_answer_without_text_has_a_role_all_the_same() -> None:
    stream = Chunks("chatcmpl-1", "m", 5, with_usage=False).end(Gathered(), USAGE)

    assert [chunk["choices"][0]["delta"] for chunk in payloads(stream)] == [{"role": "assistant", "content": ""}, {}]


@pytest.mark.parametrize(
    ("engine", "told"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("tool_calls", "stop"),
     ("</script>", "stop"), (None, "stop")],
)  # fmt: skip
def test_an_engines_own_reason_is_not_handed_on(engine: str | None, told: str) -> None:
    gathered = Gathered()
    gathered.ended_by = engine

    assert gathered.finish_reason == told


def test_a_whole_answer() -> None:
    body = orjson.loads(
        shapes.whole("chatcmpl-1", "m", 5, [Reasoning("a"), Delta("b"), Delta("c")], "stop", Usage(7, 3))
    )

    message = body["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("bc", "a")
    assert body["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def offers(*names: str) -> list[Any]:
    return [SimpleNamespace(id=UUID(int=number + 1), name=name) for number, name in enumerate(names)]


def test_ids_are_names_in_small_letters_and_the_older_model_keeps_its_own() -> None:
    ids = catalogue.ids_of(
        offers("Qwen3 8B (fast)", "qwen3-8B  fast!", "Ministral 3.5", "通义 千问", "…", "QWEN3 8b fast")
    )

    assert list(ids.values()) == [
        "qwen3-8b-fast", "qwen3-8b-fast-2", "ministral-3.5", "通义-千问", UUID(int=5).hex, "qwen3-8b-fast-3",
    ]  # fmt: skip


def test_an_id_does_not_depend_on_the_order_of_the_models() -> None:
    three = offers("A b", "a-b", "A B")

    assert catalogue.ids_of(three) == catalogue.ids_of(list(reversed(three)))

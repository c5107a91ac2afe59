"""The short way through a stream says exactly what the careful way says."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings, strategies as st

from backend.engines.events import Delta, Finish, Reasoning
from backend.engines.reading import AnswerReader
from backend.engines.repeats import Frame
from tests.fakes.script import END, T, event, usage

WORDS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["\n\n", '"', "\\", 'a\\"', "</think>", "<think>", "Grüße", "🐈", "data: ", "\x01", "\0", "\u2028"]
    ),
)


def chunk(word: str, key: str, *, ascii_only: bool, created: int) -> bytes:
    delta = {"content": None, key: word}
    payload = {"id": "x", "created": created, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    return b"data: " + json.dumps(payload, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") + b"\n\n"


def heard(pieces: list[bytes], *, carefully: bool) -> tuple[Any, ...]:
    reader = AnswerReader()
    if carefully:
        reader._look_in = -1
    events = [said for piece in pieces for said in reader.feed(piece)] + reader.close()
    text = "".join(said.text for said in events if isinstance(said, Delta))
    thought = "".join(said.text for said in events if isinstance(said, Reasoning))
    reasons = [said.reason for said in events if isinstance(said, Finish)]
    return text, thought, reasons, reader.failure and reader.failure.kind


def cut(stream: bytes, sizes: list[int]) -> list[bytes]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(stream[at : at + size])
        at += size
    return [*pieces, stream[at:]]


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.tuples(WORDS, st.sampled_from(["content", "reasoning"]), st.booleans(), st.integers(1, 2)), max_size=40
    ),
    st.lists(st.integers(0, 900), max_size=12),
    st.booleans(),
)
@example([("a", "content", False, 1)] * 30, [700, 1, 1, 300], False)
def test_both_ways_hear_the_same(
    words: list[tuple[str, str, bool, int]], sizes: list[int], by_carriage_return: bool
) -> None:
    begin = [("first", "content", False, 1)] * 5
    chunks = [chunk(word, key, ascii_only=plain, created=at) for word, key, plain, at in begin + words]
    stream = b"".join(chunks) + END
    if by_carriage_return:
        stream = stream.replace(b"\n", b"\r\n")

    assert heard(cut(stream, sizes), carefully=False) == heard(cut(stream, sizes), carefully=True)


@pytest.mark.parametrize(
    "damage",
    [
        b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"a\\"}}]}\n\n',
        b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"a\\u00"}}]}\n\ndata: {"id":"x","choices":'
        b'[{"index":0,"delta":{"content":"e9b"}}]}\n\n',
        b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"\xc3"}}]}\n\ndata: {"id":"x","choices":'
        b'[{"index":0,"delta":{"content":"\xa4"}}]}\n\n',
        b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"a","role":"b"}}]}\n\n',
        b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"a\n\nb"}}]}\n\n',
        b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"a"}}]}\n\ndata: {"error":{"message":"no"}}\n\n',
        b'{"error":{"message":"no"}}',
    ],
)
def test_damage_is_judged_alike(damage: bytes) -> None:
    whole = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"well "}}]}\n\n'
    pieces = [whole * 6, whole + damage + whole, END]

    assert heard(pieces, carefully=False) == heard(pieces, carefully=True)


def test_a_long_read_is_one_event_where_the_chunks_are_alike() -> None:
    reader = AnswerReader()

    first = reader.feed(T("word ") * 10)
    second = reader.feed(T("word ") * 1_000 + b": a comment\n\n" + usage(1, 1_010) + END)

    assert len(first) == 10
    assert second[0] == Delta("word " * 1_000)
    assert len(second) == 3


@pytest.mark.parametrize(
    "payload",
    [
        {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]},
        {"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
        {"choices": [{"delta": {"content": "a"}}, {"index": 1, "delta": {}}]},
        {"choices": [{"delta": {"content": "a", "reasoning": "b"}}]},
        {"choices": [{"delta": {"content": ""}}]},
        {"choices": [{"message": {"content": "a"}}]},
        {"choices": [{"delta": {"content": ["a"]}}], "x": {"content": "b"}},
        {"choices": [], "content": "a"},
        {"error": {"content": "a"}},
    ],
)
def test_only_a_chunk_of_one_text_has_a_frame(payload: dict[str, Any]) -> None:
    assert Frame.of(orjson.dumps(payload)) is None
    assert Frame.of(event({"choices": [{"delta": {"content": "a"}}]})[6:-2]) is not None

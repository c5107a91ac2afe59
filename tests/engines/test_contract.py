"""Bytes recorded from running vLLM and llama.cpp servers, played back through the client."""

import random
from typing import NamedTuple

import pytest

from backend.engines.client import ChatRequest, EngineClient, UpstreamModel
from backend.engines.events import Failure, Overflow, Usage
from backend.engines.kinds import Kind
from tests.engines.replay import Recording, playing, recording, recordings
from tests.engines.support import Heard, ask, question, read

PARIS = "The capital of France is Paris."
SIGNS = "Grüße 漢字 👩\u200d👩\u200d👧\u200d👦 🌍 naïve café → ∑"


class Answer(NamedTuple):
    text: str
    reason: str
    usage: Usage | None = None


class Refusal(NamedTuple):
    kind: Failure
    detail: str
    overflow: Overflow | None = None


EXPECTED: dict[str, Answer | Refusal] = {
    "vllm/stream": Answer(PARIS, "stop", Usage(40, 8, 0)),
    "vllm/stream-no-usage": Answer(PARIS, "stop"),
    "vllm/stream-length": Answer("The capital of", "length", Usage(40, 3, 0)),
    "vllm/stream-stop": Answer("The capital of France ", "stop", Usage(40, 5, 0)),
    "vllm/stream-logprobs": Answer("The capital of France", "length", Usage(40, 4, 0)),
    "vllm/stream-unicode": Answer(SIGNS, "stop", Usage(40, 53, 0)),
    "vllm/stream-continue": Answer(" four, five, six, seven, eight, nine, ten.", "stop", Usage(42, 15, 0)),
    "vllm/stream-cache-salt": Answer("The capital", "length", Usage(40, 2, 0)),
    "vllm/stream-priority": Answer("The capital", "length", Usage(40, 2, 0)),
    "vllm/stream-n2": Refusal(Failure.BAD_REQUEST, "400: n must be 1 when using greedy sampling"),
    "vllm/whole": Answer(PARIS, "stop", Usage(40, 8, 0)),
    "vllm/error-bad-json": Refusal(Failure.BAD_REQUEST, "400: 1 validation error: {'type': 'json_invalid'"),
    "vllm/error-bad-temperature": Refusal(Failure.BAD_REQUEST, "400: temperature must be non-negative"),
    "vllm/error-bad-type": Refusal(Failure.BAD_REQUEST, "400: 1 validation error: {'type': 'int_parsing'"),
    "vllm/error-cache-salt": Refusal(Failure.BAD_REQUEST, "400: Parameter 'cache_salt' must be"),
    "vllm/error-context": Refusal(
        Failure.OVERFLOW, "400: This model's maximum context length", Overflow(4096, 4097, at_least=True)
    ),
    "vllm/error-context-exact-max-tokens": Refusal(
        Failure.OVERFLOW, "400: max_tokens=100000 cannot be", Overflow(4096, answer_only=True)
    ),
    "vllm/error-image-to-text-model": Refusal(Failure.BAD_REQUEST, "400: smollm2 is not a multimodal model"),
    "vllm/error-no-messages": Refusal(Failure.BAD_REQUEST, "400: Cannot apply chat template"),
    "vllm/error-tools": Refusal(Failure.BAD_REQUEST, '400: "auto" tool choice requires'),
    "vllm/error-unknown-model": Refusal(Failure.UNKNOWN_MODEL, "404: The model `nope` does not exist."),
    "llamacpp/stream": Answer(PARIS, "stop", Usage(40, 8, 0)),
    "llamacpp/stream-no-usage": Answer(PARIS, "stop"),
    "llamacpp/stream-length": Answer("The capital of", "length", Usage(40, 3, 39)),
    "llamacpp/stream-stop": Answer("The capital of France ", "stop", Usage(40, 5, 39)),
    "llamacpp/stream-logprobs": Answer("The capital of France", "length", Usage(40, 4, 39)),
    "llamacpp/stream-unicode": Answer(SIGNS, "stop", Usage(40, 53, 39)),
    "llamacpp/stream-continue": Answer(" four, five, six, seven, eight, nine, ten,\n\n", "length", Usage(42, 16, 24)),
    "llamacpp/stream-n2": Answer("The capital of France", "length", Usage(40, 4, 39)),
    "llamacpp/whole": Answer(PARIS, "stop", Usage(40, 8, 24)),
    "llamacpp/error-bad-json": Refusal(Failure.BAD_REQUEST, "400: [json.exception.parse_error.101]"),
    "llamacpp/error-bad-temperature": Answer(PARIS, "stop", Usage(40, 8, 39)),
    "llamacpp/error-bad-type": Refusal(Failure.BAD_REQUEST, "400: Field 'max_tokens'"),
    "llamacpp/error-cache-salt": Answer("The capital", "length", Usage(40, 2, 39)),
    "llamacpp/error-context": Refusal(Failure.OVERFLOW, "400: request (20031 tokens) exceeds", Overflow(1024, 20031)),
    "llamacpp/error-context-exact-max-tokens": Answer(PARIS, "stop", Usage(40, 8, 39)),
    "llamacpp/error-image-to-text-model": Refusal(Failure.BAD_REQUEST, "500: image input is not supported"),
    "llamacpp/error-no-messages": Answer("The original sentence is: ", "length", Usage(4, 1020, 1)),
    "llamacpp/error-tools": Answer(PARIS, "stop", Usage(40, 8, 39)),
    "llamacpp/error-unknown-model": Answer(PARIS, "stop", Usage(40, 8, 39)),
}


def test_every_recorded_chat_has_an_expectation() -> None:
    assert sorted(EXPECTED) == recordings("/v1/chat/completions")


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_recording_in_one_write_means_what_it_meant(name: str) -> None:
    heard = await _played(recording(name), [recording(name).body])

    _check(heard, EXPECTED[name])


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_recording_cut_anywhere_means_the_same(name: str) -> None:
    found = recording(name)

    heard = await _played(found, _in_pieces(found.body, 12, seed=name))

    _check(heard, EXPECTED[name])


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if isinstance(expected, Answer)])
def test_a_recording_cut_in_many_ways_means_the_same(name: str) -> None:
    body = recording(name).body

    for round_ in range(50):
        _check(read(*_in_pieces(body, 8, seed=f"{name} {round_}")), EXPECTED[name])


@pytest.mark.parametrize("name", ["vllm/stream", "llamacpp/stream"])
def test_a_recording_that_stops_anywhere_is_never_taken_for_whole(name: str) -> None:
    """STR-08"""
    body = recording(name).body
    finished = body.index(b'"finish_reason":"stop"')

    for end in range(0, finished, 7):
        heard = read(body[:end])
        assert heard.kind in (Failure.CUT, Failure.EMPTY)
        assert PARIS.startswith(heard.text)


@pytest.mark.parametrize("name", ["vllm/completions", "llamacpp/completions"])
async def test_an_answer_to_another_kind_of_request_is_no_text(name: str) -> None:
    assert (await _played(recording(name), [recording(name).body])).kind is Failure.EMPTY


@pytest.mark.parametrize(
    ("name", "kind", "model"),
    [
        ("vllm/models", Kind.VLLM, UpstreamModel("smollm2", "vllm", 4096, "/weights/smollm2-hf")),
        ("llamacpp/models", Kind.LLAMACPP, UpstreamModel("smollm2", "llamacpp", 1024)),
    ],
)
async def test_recorded_models_are_read(name: str, kind: Kind, model: UpstreamModel) -> None:
    async with playing(recording(name)) as url, EngineClient(url) as client:
        models = await client.models()
        probe = await client.probe()

    assert models == probe.models == [model]
    assert probe.kind is kind


async def _played(found: Recording, pieces: list[bytes]) -> Heard:
    async with playing(found, pieces) as url, EngineClient(url) as client:
        return await ask(client, _request_of(found))


def _request_of(found: Recording) -> ChatRequest:
    """Only whether it continued a text matters to the reading."""
    body = found.request.get("body")
    if not isinstance(body, dict) or not body.get("messages"):
        return question()
    return question(messages=body["messages"], continues=body.get("continue_final_message", False))


def _in_pieces(body: bytes, pieces: int, seed: str) -> list[bytes]:
    dice = random.Random(seed)
    cuts = sorted(dice.sample(range(1, len(body)), min(pieces - 1, len(body) - 1)))
    return [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]


def _check(heard: Heard, expected: Answer | Refusal) -> None:
    if isinstance(expected, Answer):
        assert heard.failure is None
        assert heard.text == expected.text or (len(heard.text) > 60 and heard.text.startswith(expected.text))
        assert heard.reasons == [expected.reason]
        assert heard.usage == ([expected.usage] if expected.usage else [])
    else:
        assert heard.failure is not None
        assert heard.kind is expected.kind
        assert heard.failure.detail.startswith(expected.detail)
        assert heard.failure.overflow == expected.overflow
        assert heard.events == []

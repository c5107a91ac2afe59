"""What Parley expects of every engine, whichever kind it is; also of real ones."""

from contextlib import aclosing
from typing import Any

import pytest

from backend.engines import abilities
from backend.engines.abilities import Abilities
from backend.engines.client import ChatMessage, ChatRequest
from backend.engines.dialects import Continuation
from backend.engines.events import Failure
from backend.engines.kinds import Kind
from tests.engines.contract.conftest import Upstream
from tests.engines.support import Heard, ask

QUESTION: list[ChatMessage] = [{"role": "user", "content": "What is the capital of France? Answer briefly."}]
BEGUN: list[ChatMessage] = [*QUESTION, {"role": "assistant", "content": "The capital"}]

OPAQUE = "0123456789abcdef" * 4

TELLS_NO_CONTEXT = {Kind.TRTLLM, Kind.SMG, Kind.OPENAI, Kind.HOSTED}
FRONTS = {Kind.VLLM_ROUTER, Kind.SMG, Kind.PRODUCTION_STACK, Kind.LLMD}  # engines stand behind them
ANSWERS_ANY_NAME = {Kind.SGLANG, Kind.SMG, Kind.TRTLLM, Kind.TGI, Kind.LLAMACPP}  # llama.cpp with one model


def asking(upstream: Upstream, **fields: Any) -> ChatRequest:
    usual: dict[str, Any] = {"model": upstream.model, "messages": QUESTION, "max_tokens": 16, "temperature": 0.0}
    return ChatRequest(**usual | fields)


async def heard(upstream: Upstream, **fields: Any) -> Heard:
    return await ask(upstream.client, asking(upstream, **fields))


async def test_it_is_known_for_what_it_is(upstream: Upstream) -> None:
    probe = await upstream.client.probe()

    assert probe.kind is upstream.kind
    assert upstream.client.dialect is upstream.dialect
    if upstream.dialect.version and upstream.fake:
        assert probe.version == upstream.fake.version


async def test_it_lists_its_models_with_what_it_tells_about_them(upstream: Upstream) -> None:
    probe = await upstream.client.probe()
    in_between = await upstream.client.models()

    [model] = [model for model in probe.models if model.id == upstream.model]
    assert [model.id for model in in_between] == [model.id for model in probe.models]
    if upstream.kind in TELLS_NO_CONTEXT:
        assert model.context_length is None
    else:
        assert model.context_length is not None
        assert model.context_length >= 1_024
    await upstream.client.check_health()


async def test_an_answer_is_whole_and_counted(upstream: Upstream) -> None:
    answer = await heard(upstream)

    assert answer.failure is None
    assert answer.text.strip()
    assert answer.reasons in (["stop"], ["length"])
    [usage] = answer.usage
    assert 0 < usage.prompt_tokens < 200
    assert 0 < usage.completion_tokens <= 100


async def test_an_answer_gets_no_longer_than_it_may(upstream: Upstream) -> None:
    answer = await heard(upstream, max_tokens=2, messages=[{"role": "user", "content": "Count from one to ten."}])

    assert answer.failure is None
    assert answer.reasons == ["length"]
    assert answer.text


@pytest.mark.parametrize("thinking", ["off", "on", "high"])
async def test_everything_that_can_be_asked_for_is_taken(upstream: Upstream, thinking: str) -> None:
    """What an engine does not know is left out, for some refuse it."""
    answer = await heard(
        upstream,
        top_p=1.0,
        stop=["\n\n\n"],
        seed=7,
        response_format={"type": "json_object"},
        thinking=thinking,
        salt=OPAQUE,
        priority=1,
        session=OPAQUE,
        fairness=OPAQUE,
    )

    assert answer.kind in (None, Failure.EMPTY)  # a small model may fill two lines with white space
    assert answer.reasons in (["stop"], ["length"])


async def test_a_prompt_that_is_too_long_is_refused_in_words_that_are_understood(upstream: Upstream) -> None:
    """ENG-03, ENG-04: the engine's half."""
    context = (await upstream.client.probe()).models[0].context_length or 2_048
    answer = await heard(upstream, messages=[{"role": "user", "content": "word, " * 2 * context}])

    if upstream.kind is Kind.OLLAMA and upstream.fake:  # drops the oldest turns without a word
        assert answer.failure is None
    else:
        assert answer.kind is Failure.OVERFLOW
        assert answer.events == []


async def test_the_count_is_that_of_the_answer(upstream: Upstream) -> None:
    count = await upstream.client.count_tokens(upstream.model, QUESTION)
    begun = await upstream.client.count_tokens(upstream.model, BEGUN, continues=True)
    answer = await heard(upstream)

    if upstream.dialect.counter is None or (count is None and upstream.kind in FRONTS):
        assert (count, begun) == (None, None)
    else:
        assert count == answer.usage[0].prompt_tokens
        assert begun
        assert count < begun < count + 8


async def test_it_goes_on_with_an_answer_or_is_not_asked_to(upstream: Upstream) -> None:
    found = await abilities.find_out(upstream.client, upstream.model, Abilities(sees=False))

    if upstream.dialect.continuation is Continuation.OBEYED or upstream.fake:
        assert found.continues is (upstream.dialect.continuation is not Continuation.REFUSED)
    else:
        assert found.continues is not None


async def test_whoever_leaves_can_ask_again(upstream: Upstream) -> None:
    request = asking(upstream, max_tokens=200, messages=[{"role": "user", "content": "Tell me a long story. " * 9}])
    async with aclosing(upstream.client.answer(request)) as batches:
        await anext(batches)

    again = await heard(upstream)

    assert again.failure is None


async def test_a_name_that_is_not_there_is_told_apart(upstream: Upstream) -> None:
    """ENG-02: the engine's half."""
    answer = await heard(upstream, model="no-such-model")

    decides_otherwise = upstream.kind in FRONTS and upstream.fake is None  # that is for the engines behind it
    if upstream.kind in ANSWERS_ANY_NAME or (decides_otherwise and answer.failure is None):
        assert answer.failure is None
    else:
        assert answer.kind is Failure.UNKNOWN_MODEL
        assert str(answer.failure) == "The engine does not have this model any more."


async def test_what_is_loaded_is_told_by_those_that_can_be_told_to_load(upstream: Upstream) -> None:
    loaded = await upstream.client.loaded()

    if loaded is not None:
        assert upstream.dialect.lifecycle is not None
        assert upstream.model in [model.name for model in loaded]

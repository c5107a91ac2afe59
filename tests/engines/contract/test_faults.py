"""What can go wrong with an engine, in the words and in the way of every kind. Only a fake can be told to fail."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from backend.engines.client import EngineClient
from backend.engines.dialects import ALL
from backend.engines.events import Delta, EngineFailed, Failure
from backend.engines.kinds import Kind
from tests.engines.support import ask, question
from tests.fakes import dialects
from tests.fakes.engine import HANG_UP, RESET, STALL, FakeEngine, Fault, Status, T, Thought

KEY = "s3cret-key"

EXPECTED = {
    "auth": Failure.AUTH,
    "bad request": Failure.BAD_REQUEST,
    "dead": Failure.DEAD,
    "engine away": Failure.UNREACHABLE,
    "loading": Failure.LOADING,
    "overflow": Failure.OVERFLOW,
    "overloaded": Failure.OVERLOADED,
    "queue": Failure.OVERLOADED,
    "unknown model": Failure.UNKNOWN_MODEL,
    "unreachable": Failure.UNREACHABLE,
}
SEES_ITS_SALT = {Kind.VLLM, Kind.SGLANG, Kind.TRTLLM, Kind.VLLM_ROUTER, Kind.SMG, Kind.PRODUCTION_STACK, Kind.LLMD}


@pytest.fixture(params=list(Kind))
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[FakeEngine]:
    async with FakeEngine(kind=request.param, api_key=KEY, window=2_048) as running:
        yield running


@pytest.fixture
async def client(engine: FakeEngine) -> AsyncIterator[EngineClient]:
    kind = engine.dialect.kind
    async with EngineClient(engine.url, KEY, kind=kind, first_token_seconds=5, idle_seconds=5) as client:
        yield client


async def test_every_refusal_is_understood(engine: FakeEngine, client: EngineClient) -> None:
    """STR-11"""
    for about, refusal in engine.dialect.refusals(engine).items():
        engine.script = Status(refusal.status, refusal.body, {**refusal.headers, "retry-after": "9"})  # not asked again

        heard = await ask(client)

        assert (about, heard.kind) == (about, EXPECTED[about])
        assert heard.events == []
        said = refusal.content().decode()
        assert said == "" or said not in str(heard.failure)


async def test_a_wrong_key_is_told_apart_where_there_are_keys(engine: FakeEngine) -> None:
    async with EngineClient(engine.url, "wrong", kind=engine.dialect.kind) as stranger:
        heard = await ask(stranger)

    assert heard.kind is (None if engine.dialect.kind in (Kind.OLLAMA, Kind.TRTLLM) else Failure.AUTH)


async def test_an_error_in_the_middle_keeps_the_text_and_hides_the_words(
    engine: FakeEngine, client: EngineClient
) -> None:
    """STR-08, STR-09, STR-13: some say what happened, some hang up, some just stop."""
    engine.plan(["a", "b", Fault("CUDA out of memory")])

    heard = await ask(client)
    again = await ask(client)

    assert heard.text == "ab"
    assert heard.failure is not None
    says_nothing = engine.dialect.kind in (Kind.TRTLLM, Kind.OLLAMA)
    assert (heard.kind, heard.failure.detail == "CUDA out of memory") == (
        (Failure.CUT, False) if says_nothing else (Failure.DEAD, True)
    )
    assert "CUDA" not in str(heard.failure)
    assert again.failure is None


async def test_an_error_before_the_first_word_is_no_answer(engine: FakeEngine, client: EngineClient) -> None:
    """STR-09"""
    engine.plan([Fault("boom")])

    heard = await ask(client)

    assert heard.events == []
    assert heard.kind in (Failure.DEAD, Failure.CUT, Failure.EMPTY)


@pytest.mark.parametrize("engine", [Kind.SGLANG, Kind.SMG, Kind.TGI], indirect=True)
async def test_a_request_that_is_too_much_may_be_refused_inside_the_stream(
    engine: FakeEngine, client: EngineClient
) -> None:
    engine.plan([Fault("The request queue is full.", 503)])

    assert (await ask(client)).kind is Failure.OVERLOADED


@pytest.mark.parametrize("way", [RESET, HANG_UP])
async def test_an_engine_killed_in_mid_chunk_leaves_what_it_sent(
    engine: FakeEngine, client: EngineClient, way: object
) -> None:
    """STR-13"""
    engine.plan([*(f"{number} " for number in range(40)), way])  # type: ignore[list-item]

    heard = await ask(client)

    assert heard.text.split() == [str(number) for number in range(40)]
    assert heard.kind is Failure.CUT
    await engine.until(lambda engine: engine.running == 0)


async def test_a_stream_that_ends_without_a_reason_is_a_cut_and_one_without_text_is_no_answer(
    engine: FakeEngine, client: EngineClient
) -> None:
    """STR-08"""
    engine.plan([T("Hello wor")], [b""], [])

    cut, nothing, no_text = await ask(client), await ask(client), await ask(client)

    assert (cut.text, cut.kind) == ("Hello wor", Failure.CUT)
    assert (nothing.kind, no_text.kind) == (Failure.CUT, Failure.EMPTY)


async def test_reasoning_is_kept_apart(engine: FakeEngine, client: EngineClient) -> None:
    """SEM-03, and SEM-01 for an engine that leaves it in the text"""
    engine.plan([Thought("hm"), "42"])

    heard = await ask(client)

    assert (heard.reasoning, heard.text, heard.failure) == ("hm", "42", None)


async def test_thinking_inside_the_text_is_found_and_talking_about_it_is_text(
    engine: FakeEngine, client: EngineClient
) -> None:
    """SEM-01, SEM-02"""
    engine.plan(["<thi", "nk>let me see", " 2+2"], ["Write `<think>` ", "or <thinking>."])

    thought, text = await ask(client), await ask(client)

    assert (thought.reasoning, thought.text, thought.failure) == ("let me see 2+2", "", None)
    assert (text.reasoning, text.text) == ("", "Write `<think>` or <thinking>.")


async def test_a_text_in_many_scripts_comes_through(engine: FakeEngine, client: EngineClient) -> None:
    """STR-01, STR-04, STR-05: first chunks without text, usage without choices, whatever the kind adds"""
    signs = "Grüße 漢字 👩\u200d👩\u200d👧\u200d👦 🌍 data: [DONE]"
    engine.plan(list(signs))

    heard = await ask(client)

    assert (heard.text, heard.reasons, heard.failure) == (signs, ["stop"], None)


async def test_an_engine_that_refuses_an_order_of_roles_is_understood(engine: FakeEngine, client: EngineClient) -> None:
    """SEM-04: the engine's half; keeping the order is the prompt's."""
    engine.alternating = True
    twice = [*question().messages, *question().messages]

    refused, taken = await ask(client, question(messages=twice)), await ask(client)

    assert refused.kind is Failure.BAD_REQUEST
    assert taken.failure is None


async def test_leaving_reaches_the_engine(engine: FakeEngine, client: EngineClient) -> None:
    engine.script = ["word "] * 3 + [STALL]
    async with aclosing(client.answer(question())) as batches:
        async for events in batches:
            if any(isinstance(event, Delta) for event in events):
                break
    left = time.monotonic()

    await engine.until(lambda engine: bool(engine.aborted))

    assert engine.aborted[0].at - left < 2
    assert engine.running == 0


async def test_an_engine_that_is_still_loading_is_not_broken(engine: FakeEngine, client: EngineClient) -> None:
    engine.answers_while_loading, engine.load_seconds = True, 30
    await asyncio.to_thread(engine.stop)
    await asyncio.to_thread(engine.start)

    heard = await ask(client)

    assert heard.kind is Failure.LOADING


async def test_one_that_has_died_and_still_lists_its_models_is_found_out(
    engine: FakeEngine, client: EngineClient
) -> None:
    engine.is_dead = True

    assert await client.models()
    if engine.dialect.kind not in (Kind.VLLM, Kind.TRTLLM, Kind.TGI):
        await client.check_health()
        return
    with pytest.raises(EngineFailed) as failure:
        await client.check_health()
    assert failure.value.kind in (Failure.DEAD, Failure.OVERLOADED)


async def test_only_fields_that_the_kind_knows_are_sent(engine: FakeEngine, client: EngineClient) -> None:
    client.priorities = True
    for urgency in (0, 2):
        wanted = question(
            max_tokens=9, temperature=0.5, top_p=0.9, stop=["x"], seed=3, salt="00ff", priority=urgency, thinking="low"
        )
        assert (await ask(client, wanted)).failure is None

    first, last = (asked.body for asked in engine.requests)
    known = engine.dialect.known
    assert known is None or not first.keys() - known
    assert ("cache_salt" in first) is (engine.dialect.kind in SEES_ITS_SALT)
    assert first.get("max_tokens", first.get("max_completion_tokens")) == 9
    if engine.dialect.kind in (Kind.SGLANG, Kind.SMG, Kind.TRTLLM):
        assert first["priority"] > last["priority"]
    elif engine.dialect.kind in SEES_ITS_SALT:
        assert first["priority"] < last["priority"]
    else:
        assert "priority" not in first


async def test_routers_are_told_the_conversation_and_nobody_is_told_a_name(
    engine: FakeEngine, client: EngineClient
) -> None:
    client.session_header = "x-user-id"
    for conversation in ("c1", "c1", "c2"):
        await ask(client, question(session=conversation, fairness="p1"))
    await ask(client)

    sessions = [asked.headers.get("x-user-id") for asked in engine.requests]
    routed = [asked.headers.get("x-session-id") for asked in engine.requests]
    assert sessions == ["c1", "c1", "c2", None]
    assert routed == (sessions if client.dialect.session_headers else [None] * 4)
    asked = engine.requests[0]
    assert asked.headers.get("x-smg-routing-key") == routed[0]
    for name in ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"):
        assert asked.headers.get(name) == ("p1" if client.dialect.fairness_headers else None)
    assert "user" not in asked.body


def test_every_kind_has_a_double_and_a_dialect() -> None:
    assert set(dialects.ALL) == set(ALL) == set(Kind)

"""The API as programs meet it: through OpenAI's own client, in front of the whole site."""

import asyncio
import base64
import io
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from PIL import Image

from backend.accounts.models import User
from backend.keys.service import Made
from tests.fakes.engine import DONE, HANG, RESET, FakeEngine, Pause, T, Thought, error, finish, refusal, usage as used
from tests.site import Site
from tests.web.api.conftest import MODEL, MakeKey, OpenClient, Usage, asked


async def test_models_are_listed_and_found_by_their_ids(alices: AsyncOpenAI) -> None:
    found = [model async for model in alices.models.list()]
    one = await alices.models.retrieve(MODEL)

    assert [model.id for model in found] == ["fake-8b", "fake-70b"]
    assert (one.id, one.object, one.owned_by) == (MODEL, "model", "parley")
    assert one.created > 1_700_000_000
    assert one.model_extra == {"name": "fake-8b", "context_length": 1_000_000}


async def test_a_whole_answer(alices: AsyncOpenAI, engine: FakeEngine, key: Made, alice: User, usage: Usage) -> None:
    engine.script = (Thought("Let me see. "), Thought("Yes."), "Well, ", "hello.")

    reply = await alices.chat.completions.create(
        **asked(), temperature=0.5, max_tokens=50, stop=["END"], seed=-1, top_p=0.9
    )

    assert reply.choices[0].message.content == "Well, hello."
    assert reply.choices[0].message.model_extra == {"reasoning_content": "Let me see. Yes."}
    assert (reply.choices[0].finish_reason, reply.object, reply.model) == ("stop", "chat.completion", MODEL)
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply._request_id
    body = engine.requests[-1].body
    assert (body["model"], body["temperature"], body["top_p"], body["stop"]) == (MODEL, 0.5, 0.9, ["END"])
    assert (body["max_tokens"], body["seed"]) == (50, 2**31 - 1)
    (row,) = await usage()
    assert (row["user_id"], row["key_id"], row["estimated"]) == (alice.id, key.key.id, False)
    assert (row["prompt_tokens"], row["completion_tokens"]) == (
        reply.usage.prompt_tokens,
        reply.usage.completion_tokens,
    )


async def test_a_streamed_answer(alices: AsyncOpenAI, engine: FakeEngine, usage: Usage) -> None:
    engine.script = (Thought("Hm. "), "Well, ", Pause(0.05), "hel", "lo.")

    stream = await alices.chat.completions.create(**asked(), stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]

    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == "Well, hello."
    assert "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas) == "Hm. "
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "stop"
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == []
    assert {(chunk.id, chunk.model, chunk.object) for chunk in chunks} == {
        (chunks[0].id, MODEL, "chat.completion.chunk")
    }
    assert chunks[-1].usage and (await usage())[0]["completion_tokens"] == chunks[-1].usage.completion_tokens


async def test_what_comes_from_the_engine_is_only_text_and_numbers(alices: AsyncOpenAI, engine: FakeEngine) -> None:
    engine.script = [
        b'data: {"id":"leak","model":"leak","system_fingerprint":"leak","choices":[{"index":0,"delta":{"content":"Hi",'
        b'"leak":1},"logprobs":{"leak":1},"finish_reason":null,"leak":1}],"leak":1}\n\n',
        b": leak\n\nevent: leak\ndata: leak\n\n",
        finish("leak"),
        used(3, 1),
        DONE,
    ]

    raw = await alices.chat.completions.with_raw_response.create(**asked(), stream=True)
    text = (await raw.http_response.aread()).decode()

    assert "leak" not in text
    assert '"content":"Hi"' in text
    assert '"finish_reason":"stop"' in text
    assert text.endswith("data: [DONE]\n\n")


async def test_a_picture_is_drawn_anew_for_the_engine(alices: AsyncOpenAI, engine: FakeEngine, site: Site) -> None:
    async with asyncio.timeout(10):
        while not all(
            offer.sees for offer in site.registry.offers
        ):  # what engines can do is tried after they are found
            await asyncio.sleep(0.02)
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x010E] = "geheim"
    Image.new("RGB", (8, 8), "red").save(file, "WEBP", exif=exif)
    assert b"geheim" in file.getvalue()
    url = "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
    parts = [
        {"type": "text", "text": "What colour?"},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
    ]
    engine.script = ("Red.",)

    question: Any = {"role": "user", "content": parts}
    replies = [await alices.chat.completions.create(model=MODEL, messages=[question]) for _ in range(2)]

    assert [reply.choices[0].message.content for reply in replies] == ["Red.", "Red."]
    sent = [request.messages[0]["content"][1]["image_url"]["url"] for request in engine.requests[-2:]]
    assert sent[0] == sent[1]
    assert sent[0].startswith(("data:image/png;base64,", "data:image/jpeg;base64,"))
    assert b"geheim" not in base64.b64decode(sent[0].partition(",")[2])


async def test_errors_come_as_the_classes_that_programs_catch(
    alices: AsyncOpenAI, client: OpenClient, engine: FakeEngine
) -> None:
    create = alices.chat.completions.create

    with pytest.raises(openai.AuthenticationError) as wrong_key:
        await (await client("pk-parley-" + "x" * 43)).models.list()
    with pytest.raises(openai.NotFoundError) as no_model:
        await create(**asked() | {"model": "gpt-9"})
    with pytest.raises(openai.BadRequestError) as bad:
        await create(**asked(), temperature=3)
    with pytest.raises(openai.BadRequestError) as unsupported:
        await create(**asked(), n=2)
    engine.plan(refusal(400, "This model's maximum context length is 4096 tokens."))
    with pytest.raises(openai.BadRequestError) as too_long:
        await create(**asked())
    engine.plan([T("Well"), error("CUDA error at geheim.py", code=500)])
    with pytest.raises(openai.InternalServerError) as broken:
        await create(**asked())

    assert (wrong_key.value.status_code, wrong_key.value.code) == (401, "invalid_api_key")
    assert (no_model.value.code, no_model.value.param) == ("model_not_found", "model")
    assert (bad.value.param, unsupported.value.param) == ("temperature", "n")
    assert "not supported yet" in unsupported.value.message
    assert (too_long.value.code, too_long.value.param) == ("context_length_exceeded", "messages")
    assert (broken.value.status_code, broken.value.code) == (502, "engine_failed")
    assert "geheim" not in str(broken.value.body)
    assert broken.value.request_id


async def test_a_stream_that_breaks_off_says_so(alices: AsyncOpenAI, engine: FakeEngine, usage: Usage) -> None:
    engine.script = [T("Well, "), Pause(0.05), RESET]
    said: list[str] = []

    async def read() -> None:
        async for chunk in await alices.chat.completions.create(**asked(), stream=True):
            said.append(chunk.choices[0].delta.content or "")  # noqa: PERF401 - kept when it breaks off

    with pytest.raises(openai.APIError) as broken:
        await read()

    assert "".join(said) == "Well, "
    assert broken.value.code == "engine_failed"
    (row,) = await usage()
    assert row["estimated"]
    assert row["completion_tokens"] > 0


async def test_whoever_leaves_early_frees_the_engine_and_is_counted(
    alices: AsyncOpenAI, engine: FakeEngine, usage: Usage, site: Site
) -> None:
    engine.script = ("word ",) * 3 + (Pause(30), "never")

    async with await alices.chat.completions.create(**asked(), stream=True) as stream:
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
    waiting = asyncio.create_task(alices.chat.completions.create(**asked()))
    async with asyncio.timeout(10):
        while engine.running < 1 or not engine.aborted:
            await asyncio.sleep(0.01)
        waiting.cancel()
        while engine.running:
            await asyncio.sleep(0.01)
        while len(site.state["api"].calls):
            await asyncio.sleep(0.01)

    rows = await usage()
    assert len(rows) == 2
    assert all(row["estimated"] and row["prompt_tokens"] > 0 for row in rows)


async def test_one_person_can_open_so_many_requests_and_no_more(
    alices: AsyncOpenAI, engine: FakeEngine, site: Site, client: OpenClient, make_key: MakeKey, bob: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("web.api.calls.MOST_OF_ONE", 2)
    engine.script = HANG
    bobs = await client((await make_key(bob)).secret)
    waiting = [asyncio.create_task(alices.chat.completions.create(**asked())) for _ in range(2)]
    async with asyncio.timeout(5):
        while len(site.state["api"].calls) < 2:
            await asyncio.sleep(0.01)

    with pytest.raises(openai.RateLimitError) as refused:
        await alices.chat.completions.create(**asked())
    engine.script = ("Yes.",)
    other = await bobs.chat.completions.create(**asked())

    assert refused.value.code == "rate_limit_exceeded"
    assert int(refused.value.response.headers["retry-after"]) >= 1
    assert other.choices[0].message.content == "Yes."
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_in_a_drain_what_runs_may_end_and_nothing_begins(
    alices: AsyncOpenAI, engine: FakeEngine, site: Site
) -> None:
    go_on = asyncio.Event()
    engine.script = ("Well, ", go_on, "yes.")
    stream = await alices.chat.completions.create(**asked(), stream=True)
    first = await anext(stream)

    site.lifecycle.stop()
    with pytest.raises(openai.InternalServerError) as refused:
        await alices.chat.completions.create(**asked())
    busy = site.lifecycle.is_busy
    go_on.set()
    rest = [chunk.choices[0].delta.content or "" async for chunk in stream]

    assert first.choices[0].delta.role == "assistant"
    assert refused.value.status_code == 503
    assert "retry-after" in refused.value.response.headers
    assert busy
    assert "".join(rest).endswith("yes.")


async def test_a_long_wait_is_bridged_by_comments_and_a_failure_after_them_is_told_in_the_stream(
    alices: AsyncOpenAI, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("web.api.answering.HEARTBEAT_SECONDS", 0.1)
    go_on = asyncio.Event()
    engine.script = (go_on, RESET)

    raw = await alices.chat.completions.with_raw_response.create(**asked(), stream=True)
    lines = raw.http_response.aiter_lines()
    waited = [await anext(lines) for _ in range(4)]
    go_on.set()
    rest = [line async for line in lines]

    assert waited == [": waiting", "", ": waiting", ""]
    assert [line for line in rest if line.startswith("data: ")][-1].startswith('data: {"error":')
    assert "data: [DONE]" not in rest

"""What a model can do is proved, not believed. The engines here are ones that can, ones that cannot, and liars."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from sqlalchemy import select

from backend.core.db import Sessions
from backend.engines import abilities, queries, service
from backend.engines.abilities import Abilities
from backend.engines.client import EngineClient
from backend.engines.kinds import Kind
from backend.engines.models import Deployment
from backend.engines.registry import Registry
from tests.engines import strangers
from tests.engines.conftest import SEALER, Ground, looked_at_again, until
from tests.engines.replay import Recording, recording, serving
from tests.fakes.engine import FakeEngine, T, event, finish, usage
from tests.fakes.script import DONE

NOTHING = Abilities()


@asynccontextmanager
async def answering(*replies: bytes | Recording) -> AsyncIterator[tuple[str, list[dict[str, object]]]]:
    """An engine whose next answers are `replies`: a stream, or a recording. With what it was asked."""
    asked: list[dict[str, object]] = []
    left = list(replies)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"POST /v1/chat"):
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
        asked.append(json.loads(await reader.readexactly(length)))
        reply = left.pop(0)
        head, body = (reply.head, reply.body) if isinstance(reply, Recording) else (b"HTTP/1.1 200 OK", reply)
        plain = [line for line in head.split(b"\r\n") if b"transfer-encoding" not in line.lower()]
        writer.write(b"\r\n".join([*plain, b"Connection: close"]) + b"\r\n\r\n" + body)

    async with serving(answer) as url:
        yield url, asked


def says(text: str, prompt: int = 40) -> bytes:
    return T(text) + finish("length") + usage(prompt, 12) + DONE


async def found(kind: Kind | None, *replies: bytes | Recording, known: Abilities = NOTHING) -> Abilities:
    async with answering(*replies) as (url, _asked), EngineClient(url, kind=kind) as client:
        return await abilities.find_out(client, "m", known)


async def continues(kind: Kind | None, *replies: bytes | Recording) -> bool | None:
    return (await found(kind, *replies, known=Abilities(sees=False))).continues


async def sees(kind: Kind | None, *replies: bytes | Recording) -> bool | None:
    return (await found(kind, *replies, known=Abilities(continues=False))).sees


@pytest.mark.parametrize("name", ["vllm/stream-continue", "llamacpp/stream-continue"])
async def test_the_recorded_engines_go_on_where_an_answer_broke_off(name: str) -> None:
    assert await continues(Kind(name.partition("/")[0]), recording(name)) is True


@pytest.mark.parametrize(
    "text",
    [
        "One, two, three, four, five, six",
        "four, five, six",  # would be joined to "three,four"
        "Four, five, six, seven",
        "Sure! Here are the numbers",
        "<|im_start|>assistant\n four, five",
        " four<|im_end|>\n<|im_start|>assistant",
        " four. One, two, three, four",
        "\n\nIt looks like you are counting",
        "<think>The user counts",
        " fourteen",
        " ",
    ],
)
async def test_an_engine_that_begins_anew_does_not_go_on(text: str) -> None:
    assert await continues(Kind.VLLM, says(text)) is False
    assert await continues(Kind.OPENAI, says(text)) is False


async def test_thinking_about_the_next_number_is_not_going_on() -> None:
    thought = event({"choices": [{"index": 0, "delta": {"reasoning": " four, five"}, "finish_reason": None}]})

    assert await continues(Kind.VLLM, thought + finish("length") + DONE) is False


@pytest.mark.parametrize("kind", [Kind.OLLAMA, Kind.LMSTUDIO, Kind.SMG, Kind.OPENAI, None])
async def test_an_engine_that_may_ignore_the_fields_has_to_finish_a_word(kind: Kind | None) -> None:
    assert await continues(kind, says(" four, five"), says("day, Thursday")) is True
    assert await continues(kind, says(" four, five"), says("Wednesday, Thursday")) is False


async def test_an_engine_that_refuses_the_fields_does_not_go_on_and_one_that_is_busy_is_asked_later() -> None:
    assert await continues(Kind.TRTLLM) is False  # is not even asked
    assert await continues(Kind.HOSTED) is False
    assert await continues(Kind.OPENAI, recording("vllm/error-bad-type")) is False
    assert await continues(Kind.VLLM, says("")) is False
    assert await continues(Kind.VLLM, recording("vllm/error-unknown-model")) is None
    assert await continues(Kind.VLLM, T(" four")) is None  # cut
    async with EngineClient(strangers.nobody()) as client:
        assert await abilities.find_out(client, "m", NOTHING) == NOTHING


async def test_vllm_takes_a_picture_or_says_no() -> None:
    assert await sees(Kind.VLLM, says("Red")) is True
    assert await sees(Kind.VLLM, finish("length") + DONE) is True  # its one token was no text
    assert await sees(Kind.VLLM, recording("vllm/error-image-to-text-model")) is False
    assert await sees(Kind.OPENAI, recording("llamacpp/error-image-to-text-model")) is False


async def test_a_picture_that_was_passed_over_was_not_seen() -> None:
    assert await sees(Kind.SGLANG, says("Red", prompt=76), says("Red", prompt=12)) is True
    assert await sees(Kind.SGLANG, says("Red", prompt=12), says("Red", prompt=12)) is False
    assert await sees(None, T("Red") + finish() + DONE, T("Red") + finish() + DONE) is False


async def test_what_is_asked_is_small_and_its_picture_is_a_png() -> None:
    async with answering(says(" four"), says("Red")) as (url, asked), EngineClient(url, kind=Kind.VLLM) as client:
        assert await abilities.find_out(client, "m", NOTHING) == Abilities(continues=True, sees=True)

    assert [(body["max_tokens"], body["temperature"]) for body in asked] == [(12, 0), (1, 0)]
    assert asked[0]["continue_final_message"] is True
    picture = abilities._picture()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    start = picture.index(b"IDAT") + 4
    assert len(zlib.decompress(picture[start:-16])) == 64 * (1 + 64 * 3)


# In the registry


@pytest.fixture
async def ground(db: Sessions) -> AsyncIterator[Ground]:
    async with AsyncExitStack() as stack:
        yield Ground(db, stack)


def endpoints(registry: Registry) -> dict[str, tuple[bool, bool]]:
    return {
        endpoint.upstream_name: (endpoint.continues, endpoint.sees)
        for offer in registry.offers
        for endpoint in offer.endpoints
    }


def models_tried(engine: FakeEngine) -> list[str]:
    return sorted({str(probe.body["model"]) for probe in engine.probes})


async def test_every_published_model_is_tried_once_and_remembered(ground: Ground) -> None:
    engine = await ground.engine(models=["linden", "hazel", "nomic-embed-text"])
    registry = await ground.registry(engine.url)
    await registry.first_look()
    at_first = endpoints(registry)
    await until(lambda: endpoints(registry) == {"linden": (True, True), "hazel": (True, True)})
    asked = len(engine.probes)
    other = await ground.registry(engine.url)
    await other.first_look()
    await looked_at_again(other, "engine-1")

    assert at_first == {"linden": (False, False), "hazel": (False, False)}
    assert asked == len(engine.probes) == 4
    assert models_tried(engine) == ["hazel", "linden"]
    assert endpoints(other) == endpoints(registry)
    assert engine.requests == []


async def test_a_model_is_not_tried_before_an_admin_publishes_it(ground: Ground) -> None:
    first, second = await ground.engine(models=["linden"]), await ground.engine(models=["hazel"], continues=False)
    registry = await ground.registry(first.url, second.url)
    await registry.first_look()
    await until(lambda: endpoints(registry) == {"linden": (True, True)})
    before = list(second.probes)

    await ground.publish("hazel")
    registry.wake()

    await until(lambda: endpoints(registry).get("hazel") == (False, True))
    assert before == []


async def test_another_version_is_tried_anew(ground: Ground) -> None:
    engine = await ground.engine(models=["linden"], sees=False)
    registry = await ground.registry(engine.url)
    await until(lambda: endpoints(registry) == {"linden": (True, False)})

    await asyncio.to_thread(engine.stop)
    await until(lambda: not registry.offers[0].available)
    engine.version, engine.sees, engine.continues = "0.33.0", True, False
    await asyncio.to_thread(engine.start)

    await until(lambda: endpoints(registry) == {"linden": (False, True)})


async def test_another_address_is_tried_anew(ground: Ground) -> None:
    old, new = await ground.engine(models=["linden"]), await ground.engine(models=["linden"], continues=False)
    engine_id = await ground.add("lab", old.url, "linden")
    registry = await ground.registry()
    await until(lambda: endpoints(registry) == {"linden": (True, True)})

    async with ground.db.begin() as session:
        row = await service.find_engine(session, engine_id)
        await service.change_engine(session, registry.allowed, SEALER, row, url=new.url)
    await registry.reload()
    at_once = endpoints(registry)

    await until(lambda: endpoints(registry) == {"linden": (False, True)})
    assert at_once == {"linden": (False, False)}


async def test_an_engine_that_takes_its_time_delays_no_look(ground: Ground) -> None:
    """It takes questions and never answers them; its list is fine."""
    asked: list[bytes] = []
    page = json.dumps({"data": [{"id": "linden", "owned_by": "vllm"}]}).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n")).split()[1])
        if asked[-1] == b"/v1/chat/completions":
            await reader.read()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(page), page))

    async with serving(answer) as url:
        registry = await ground.registry(url, probe_seconds=0.05)
        await until(lambda: b"/v1/chat/completions" in asked)
        before = asked.count(b"/v1/models")
        await until(lambda: asked.count(b"/v1/models") > before + 3)
        available = registry.offers[0].available
        asked_at_once = asked.count(b"/v1/chat/completions")
        await asyncio.wait_for(registry.__aexit__(None, None, None), timeout=2)  # whatever its tasks wait for

    assert available
    assert asked_at_once == 1


async def test_what_was_found_too_late_is_not_kept(ground: Ground, db: Sessions) -> None:
    await ground.add("lab", strangers.nobody(), "linden")

    async def kept(version: str) -> bool | None:
        async with db.begin() as session:
            (engine,) = (await session.scalars(queries.everything())).all()
            session.expunge_all()
            engine.version = version
            await abilities.store(session, engine, "linden", Abilities(continues=True))
            return await session.scalar(select(Deployment.continues))

    assert await kept("0.31.0") is None
    assert await kept("0.32.0") is True

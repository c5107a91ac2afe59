"""The embedded engine as the web app meets it: a real model behind llama.cpp's own server."""

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.bench.measuring import Measuring, Target
from backend.bench.plan import Plan
from backend.bench.results import Ended
from backend.embedded import engine
from backend.embedded.errors import CannotRun
from backend.embedded.service import Service
from backend.engines import abilities
from backend.engines.abilities import Abilities
from backend.engines.client import ChatMessage, ChatRequest, EngineClient
from backend.engines.events import Delta, Finish, Usage
from backend.engines.kinds import Kind
from tests.site import free_port

pytestmark = [pytest.mark.whole, pytest.mark.xdist_group("whole")]

KEY = "a key for this start only"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("engine")
    for name in ("logs", "run"):
        (folder / name).mkdir()
    url = f"http://127.0.0.1:{free_port()}"
    service = Service(
        "The model",
        "engine",
        [sys.executable, "-m", "backend.embedded.engine", str(engine.model_file(None)), engine.BUNDLED],
        ready_url=f"{url}/health",
        env=os.environ | {engine.VARIABLE: json.dumps({"name": "embedded", "url": url, "api_key": KEY})},
        folder=folder,
        patience=5,
    )
    service.begin()
    assert service.wait_until_ready(60)
    yield url
    service.stop()


async def test_it_answers_a_question_as_a_stream(address: str) -> None:
    request = ChatRequest(
        model=engine.BUNDLED,
        messages=[{"role": "user", "content": "What is a database?"}],
        max_tokens=24,
        temperature=None,
    )

    async with EngineClient(address, KEY) as client:
        batches = [batch async for batch in client.answer(request)]

    events = [event for batch in batches for event in batch]
    text = "".join(event.text for event in events if isinstance(event, Delta))
    assert "database" in text.lower()
    assert len(batches) > 5
    assert [event.completion_tokens for event in events if isinstance(event, Usage)] == [24]
    assert [event.reason for event in events if isinstance(event, Finish)] == ["length"]


async def test_it_serves_one_model_with_a_fair_share_of_the_context(address: str) -> None:
    async with EngineClient(address, KEY) as client:
        models = await client.models()

    assert [(model.id, model.context_length) for model in models] == [("smollm2-135m-instruct", 4096)]


async def test_it_goes_on_where_an_answer_broke_off_and_counts_what_it_reads(address: str) -> None:
    question: ChatMessage = {"role": "user", "content": "What is a database?"}
    begun: list[ChatMessage] = [question, {"role": "assistant", "content": "A database is a"}]

    async with EngineClient(address, KEY, kind=Kind.LLAMACPP) as client:
        found = await abilities.find_out(client, engine.BUNDLED, Abilities())
        asked = await client.count_tokens(engine.BUNDLED, [question])
        unfinished = await client.count_tokens(engine.BUNDLED, begun, continues=True)

    assert found == Abilities(continues=True, sees=False)
    assert (asked, unfinished) == (35, 39)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions", "/metrics", "/props"])
def test_without_the_key_it_tells_nothing(address: str, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(address + path, timeout=5)

    assert refused.value.code in (401, 403, 404)
    refused.value.close()


def test_no_page_of_another_origin_may_read_it(address: str) -> None:
    request = urllib.request.Request(f"{address}/health", headers={"Origin": "https://evil.example"})
    with urllib.request.urlopen(request, timeout=5) as response:
        allowed = response.headers["Access-Control-Allow-Origin"]

    assert allowed not in ("*", "https://evil.example")


def test_figures_are_measured(address: str) -> None:
    request = urllib.request.Request(f"{address}/metrics", headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=5) as response:
        metrics = response.read().decode()

    assert "llamacpp:requests_processing" in metrics


def test_a_model_of_your_own_is_named_after_its_file(tmp_path: Path) -> None:
    file = tmp_path / "my-model-7b.gguf"
    file.write_bytes(b"GGUF rest")

    assert engine.model_file(file) == file
    assert engine.model_name(file) == "my-model-7b"


def test_another_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "my-model.gguf"
    file.write_bytes(b"<html>")

    with pytest.raises(CannotRun, match="is not a GGUF file"):
        engine.model_file(file)


def test_a_broken_model_ends_the_engine_with_a_reason(tmp_path: Path) -> None:
    for name in ("logs", "run"):
        (tmp_path / name).mkdir()
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF and then nothing that makes sense")
    url = f"http://127.0.0.1:{free_port()}"
    service = Service(
        "The model",
        "engine",
        [sys.executable, "-m", "backend.embedded.engine", str(file), "broken"],
        ready_url=f"{url}/health",
        env=os.environ | {engine.VARIABLE: json.dumps({"name": "embedded", "url": url, "api_key": KEY})},
        folder=tmp_path,
        patience=5,
    )
    service.begin()

    with pytest.raises(CannotRun, match=r"llama.cpp cannot serve .*broken.gguf"):
        service.wait_until_ready(30)

    service.stop()


async def test_it_is_measured_as_people_would_meet_it_and_tells_its_room(address: str) -> None:
    async with EngineClient(address, KEY, kind=Kind.LLAMACPP) as client:
        measuring = Measuring(client, Target("embedded", engine.BUNDLED), Plan((1,), turns=1, answer_tokens=16))
        await measuring.run()
        room = await client.room()

    found = measuring.measurement
    assert found.ended is Ended.DONE, found.problem
    (level,) = found.levels
    assert (level.people, level.answered, level.completion_tokens, level.estimated) == (1, 1, 16, False)
    assert room is not None and room.context == 4096

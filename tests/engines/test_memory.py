import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from backend.core.errors import Conflict
from backend.engines.client import EngineClient
from backend.engines.dialects import ModelState
from backend.engines.kinds import Kind
from backend.engines.memory import Change, Memory
from tests.engines import strangers
from tests.fakes.engine import FakeEngine


def spawn(work: Coroutine[Any, Any, None], *, name: str) -> "asyncio.Task[None]":
    return asyncio.create_task(work, name=name)


def memory_of(client: EngineClient) -> Memory:
    return Memory(client, spawn, lambda: None)


async def test_what_is_loaded_is_read_and_changed() -> None:
    async with (
        FakeEngine(kind=Kind.OLLAMA, models=["a", "b"]) as engine,
        EngineClient(engine.url, kind=Kind.OLLAMA) as client,
    ):
        memory = memory_of(client)
        await memory.read()
        before = {model.name: model.state for model in memory.models or ()}
        memory.begin(Change.KEEP, "a")
        ended = await memory.until_quiet(5)

    assert before == {"a": ModelState.UNLOADED, "b": ModelState.UNLOADED}
    assert ended
    assert {model.name: model.state for model in memory.models or ()}["a"] is ModelState.LOADED
    assert memory.work is None
    assert memory.failed is None
    assert engine.kept == {"a"}


async def test_nobody_waits_for_a_load_that_takes_long_and_nothing_else_begins_meanwhile() -> None:
    with strangers.silent() as url:
        async with EngineClient(url, kind=Kind.OLLAMA) as client:
            memory = memory_of(client)
            memory.begin(Change.LOAD, "huge")
            ended = await memory.until_quiet(0.05)
            with pytest.raises(Conflict):
                memory.begin(Change.UNLOAD, "other")
            work = memory.work
            memory.end()

    assert not ended
    assert work is not None
    assert (work.change, work.model) == (Change.LOAD, "huge")


async def test_a_load_that_fails_is_told_until_something_else_is_asked_for() -> None:
    async with (
        FakeEngine(kind=Kind.OLLAMA, models=["a"]) as engine,
        EngineClient(engine.url, kind=Kind.OLLAMA) as client,
    ):
        memory = memory_of(client)
        memory.begin(Change.LOAD, "gone")
        await memory.until_quiet(5)
        failed = memory.failed
        memory.begin(Change.LOAD, "a")
        await memory.until_quiet(5)

    assert failed is not None
    assert "model 'gone' not found" in failed.detail
    assert memory.failed is None


async def test_an_engine_that_cannot_be_told_is_asked_once_until_it_may_have_changed() -> None:
    async with FakeEngine() as engine, EngineClient(engine.url, kind=Kind.VLLM) as client:
        memory = memory_of(client)
        await memory.read()
        engine.dev_mode = True
        await memory.read()
        closed = memory.models
        memory.ask_again()
        await memory.read()

    assert closed is None
    assert [model.state for model in memory.models or ()] == [ModelState.LOADED]
    assert memory.asleep == frozenset()

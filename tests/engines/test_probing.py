import asyncio
from datetime import timedelta

import pytest

from backend.core.clock import now
from backend.engines import probing
from backend.engines.client import EngineClient
from backend.engines.events import EngineFailed, Failure
from backend.engines.failures import failed
from backend.engines.probing import Health
from tests.engines import strangers
from tests.fakes.engine import FakeEngine


async def test_a_thorough_look_tells_what_an_engine_is() -> None:
    async with FakeEngine(models=["linden", "hazel"], window=4096) as engine, EngineClient(engine.url) as client:
        found = await probing.look(client, 5, thorough=True)
        quick = await probing.look(client, 5, thorough=False)

    assert (found.kind, found.version) == ("vllm", "0.32.0")
    assert [(model.id, model.context_length) for model in found.models] == [("linden", 4096), ("hazel", 4096)]
    assert (quick.kind, quick.version, quick.models) == (None, None, found.models)


async def test_an_engine_that_never_answers_costs_one_short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with strangers.silent() as url:
        monkeypatch.setattr(probing, "_LEAST_WAIT", 0.05)
        async with EngineClient(url) as client, asyncio.timeout(2):
            with pytest.raises(EngineFailed) as caught:
                await probing.look(client, 0.05, thorough=False)

    assert caught.value.kind is Failure.TIMEOUT


def test_a_problem_is_dated_from_when_it_began() -> None:
    began = now()

    first = Health().failed(failed(Failure.UNREACHABLE), began, answered_before=True)
    later = first.failed(failed(Failure.TIMEOUT), began + timedelta(minutes=1), answered_before=True)

    assert first.problem == "The engine cannot be reached."
    assert later.since == began
    assert later.checked_at == began + timedelta(minutes=1)
    assert later.problem == "The engine took too long."


def test_an_address_where_no_engine_ever_answered_does_not_tell_what_is_there() -> None:
    problems = {
        Health().failed(failed(kind, "words"), now(), answered_before=False).problem
        for kind in (Failure.UNREACHABLE, Failure.TIMEOUT, Failure.NONSENSE, Failure.DEAD, Failure.BAD_REQUEST)
    }

    assert problems == {"No engine answers at this address."}


@pytest.mark.parametrize("kind", [Failure.AUTH, Failure.LOADING])
def test_a_wrong_key_and_a_loading_model_are_told_from_the_start(kind: Failure) -> None:
    health = Health().failed(failed(kind), now(), answered_before=False)

    assert health.problem == str(failed(kind))


def test_an_engine_that_went_away_is_looked_for_soon_and_then_less_and_less() -> None:
    pauses = [probing.pause(10, failures) for failures in (0, 1, 2, 3, 4, 5, 50, 5000)]

    for pause, expected in zip(pauses, (10, 1.25, 2.5, 5, 10, 20, 30, 30), strict=True):
        assert 0.8 * expected <= pause <= 1.2 * expected


def test_looks_are_spread() -> None:
    assert len({probing.pause(10, 0) for _ in range(10)}) > 1

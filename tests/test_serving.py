"""`parley serve` as an operator runs it: processes of its own, ended by signals."""

import asyncio
import os
import re
import signal

import httpx
import pytest

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.ids import new_id
from backend.core.settings import Settings
from backend.serving import _Supervisor
from tests.conftest import sign_in
from tests.fakes.engine import FakeEngine
from tests.served import Serve, Served

pytestmark = pytest.mark.long


async def test_two_processes_share_a_port_come_back_when_killed_and_drain_when_stopped(
    serve: Serve, engine: FakeEngine, db: Sessions, alice: User
) -> None:
    served = serve(processes=2, drain_seconds=60)
    served.until(served.is_ready)
    served.until(lambda: len(served.workers) == 2)
    go_on = asyncio.Event()
    engine.plan(["Once ", go_on, "upon a time."])
    headers = {"sec-fetch-site": "same-origin", "hx-request": "true", "cookie": f"sid={await sign_in(db, alice)}"}

    async with httpx.AsyncClient(base_url=served.address, headers=headers, timeout=30) as browser:
        # Both answer.
        async with asyncio.timeout(60):
            while {line.get("process") for line in served.log if "GET" in line["message"]} < {1, 2}:
                await asyncio.gather(*(_get_by_itself(served) for _ in range(10)))

        # One is killed: the other one goes on at once, and soon there are two again.
        killed = served.workers[1]
        os.kill(killed, signal.SIGKILL)
        assert await _get_by_itself(served) == 200
        served.until(lambda: served.workers.get(1, killed) != killed)

        # Stopped in mid-answer: it is written to its end, and whoever comes meanwhile is told to come back.
        page = await browser.get("/")
        model = re.search(r'<option value="([^"]+)"', page.text)
        assert model
        question = {"text": "Tell me a story.", "model": model[1], "key": str(new_id())}
        asked = await browser.post("/chat", data=question)
        stream = re.search(r'hx-sse:connect="([^"]+)"', asked.text)
        assert stream
        async with browser.stream("GET", stream[1], headers={"accept": "text/event-stream"}) as answer:
            lines = answer.aiter_lines()
            while "Once" not in await anext(lines):
                pass
            served.process.send_signal(signal.SIGTERM)
            served.until(lambda: any("told to stop" in line["message"] for line in served.log))
            ready = await browser.get("/readyz")
            refused = await browser.post("/chat", data=question | {"key": str(new_id())})
            go_on.set()
            rest = [line async for line in lines]

    served.until(lambda: served.is_gone)
    assert (ready.status_code, ready.json()) == (503, {"status": "stopping"})
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0
    assert "upon a time." in "".join(rest)
    assert served.process.returncode == 0


async def _get_by_itself(served: Served) -> int:
    async with httpx.AsyncClient(base_url=served.address, timeout=30) as stranger:
        return (await stranger.get("/login")).status_code


def test_when_the_first_process_is_killed_the_others_end_by_themselves(serve: Serve) -> None:
    served = serve(processes=2)
    served.until(served.is_ready)
    served.until(lambda: len(served.workers) == 2)

    served.process.kill()
    served.until(lambda: served.is_gone)

    assert not served.is_ready()


def test_what_keeps_every_process_from_starting_ends_all_of_them_with_a_sentence(
    serve: Serve, settings: Settings
) -> None:
    nowhere = settings.database_url.replace("/test?", "/postgres?")  # it has none of our tables

    served = serve(processes=2, database_url=nowhere)
    served.until(lambda: served.is_gone)

    assert served.process.returncode > 0
    assert any("Run `parley migrate` first." in str(line) for line in served.log)


def test_a_process_that_serves_alone_ends_with_one_signal(serve: Serve) -> None:
    served = serve()
    served.until(served.is_ready)

    served.process.send_signal(signal.SIGTERM)
    served.until(lambda: served.is_gone)

    assert served.process.returncode == 0
    assert served.workers == {}


class _FakeWorker:
    """Of a supervisor: what became of it."""

    def __init__(self, *, exit_code: int | None = None, is_well: bool = False) -> None:
        self.exit_code = exit_code
        self.is_well = is_well
        self.looks = 0

    def look(self) -> None:
        self.looks += 1


def test_where_none_was_ever_well_one_that_cannot_start_ends_them_all(settings: Settings) -> None:
    """A wrong setting is said once, and not again and again by ever new processes."""
    cannot_start = _Supervisor([_FakeWorker(), _FakeWorker(exit_code=1)], settings)  # type: ignore[list-item]
    with pytest.raises(SystemExit) as ended:
        cannot_start._look()

    killed = _FakeWorker(exit_code=-9)
    _Supervisor([killed], settings)._look()  # type: ignore[list-item]

    was_well, failed = _FakeWorker(is_well=True), _FakeWorker()
    running = _Supervisor([was_well, failed], settings)  # type: ignore[list-item]
    running._look()
    was_well.is_well, failed.exit_code = False, 1
    running._look()

    assert ended.value.code == 1
    assert killed.looks == 1
    assert failed.looks == 2

"""Administration: measurements, from the question whether to begin to the record that is kept."""

import asyncio
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from uuid import UUID

import httpx
import pytest
from sqlalchemy import select

from backend.accounts.models import User
from backend.bench.models import BenchRun
from backend.core.db import Sessions
from backend.core.ids import new_id
from backend.engines.models import Deployment
from backend.usage.models import Cause, UsageRecord
from tests.bench.support import level, measurement
from tests.bench.test_meaning import HOSTILE
from tests.conftest import OpenBrowser
from tests.fakes.engine import FakeEngine
from tests.site import Browser, Site
from tests.web.accounts.conftest import submit, text_of, value_of

SIZE = {"people": "2", "turns": "1", "answer_tokens": "16", "seconds": "60"}


@pytest.fixture
async def page(browser: OpenBrowser, carol: User, site: Site) -> Browser:
    await site.until_offered("fake-8b", "fake-70b")
    return await browser(carol)


@pytest.fixture
async def size(page: Browser, db: Sessions) -> Mapping[str, str]:
    """A small measurement of the fake engine."""
    async with db.begin() as session:
        found = (await session.scalars(select(Deployment.id).where(Deployment.upstream_name == "fake-8b"))).one()
    return {"deployment": str(found), **SIZE}


async def until_over(page: Browser, address: str) -> httpx.Response:
    async with asyncio.timeout(10):
        while True:
            shown = await page.get(address, hx=True)
            if "hx-get" not in shown.text:
                return await page.get(address)
            await asyncio.sleep(0.05)


async def keep(db: Sessions, **changed: str) -> UUID:
    """A run of another day."""
    found = measurement(level(1), level(2), **changed)
    progress = {"people": 0, "answers": 0, "of": 0}
    row = BenchRun(
        id=new_id(),
        engine_name="gpu-1",
        upstream_name="linden-8b",
        result=found.as_json() | {"progress": progress, "beat": found.made_at.isoformat(), "stop": False},
    )
    async with db.begin() as session:
        session.add(row)
    return row.id


async def test_it_says_what_it_takes_before_anything_begins(
    page: Browser, size: Mapping[str, str], engine: FakeEngine, db: Sessions
) -> None:
    asked = await page.get("/admin/bench", params=size)

    text = text_of(asked)
    assert asked.status_code == 200
    assert "Measure fake-8b on fake? It asks up to 3 questions, at most 2 at the same time, for at most 60 s" in text
    assert "Chats with this engine are slower meanwhile." in text
    assert value_of(asked, "people") == "2"
    assert engine.requests == []
    async with db.begin() as session:
        assert (await session.scalars(select(BenchRun))).all() == []


async def test_a_measurement_is_started_watched_and_kept(
    page: Browser, size: Mapping[str, str], engine: FakeEngine, db: Sessions, carol: User
) -> None:
    engine.hold()
    started = await submit(page, "/admin/bench", **size)
    address = started.headers["location"]
    await engine.until(lambda engine: engine.running == 1)
    running = await page.get(address)
    second = await submit(page, "/admin/bench", **size)
    engine.release()
    over = await until_over(page, address)
    listed = await page.get("/admin/bench")

    assert started.status_code == 303
    assert "Running." in text_of(running)
    assert f'hx-get="{address}"' in running.text
    assert second.status_code == 409
    assert "Another measurement is running." in text_of(second)
    assert "A benchmark with one request at a time would have said" in text_of(over)
    assert "Complete" in text_of(over)
    assert re.search(r'<svg[^>]*class="chart bench"[^>]*role="img"', over.text)
    assert "fake-8b fake" in text_of(listed)
    assert "Complete" in text_of(listed)
    async with asyncio.timeout(5):
        while True:
            async with db.begin() as session:
                used = (await session.scalars(select(UsageRecord))).all()
            if used:
                break
            await asyncio.sleep(0.02)
    assert {(row.cause, row.user_id) for row in used} == {(Cause.BENCH, carol.id)}
    assert len(used) == 4


async def test_a_measurement_is_ended_by_hand(page: Browser, size: Mapping[str, str], engine: FakeEngine) -> None:
    engine.hold()
    address = (await submit(page, "/admin/bench", **size)).headers["location"]
    await engine.until(lambda engine: engine.running == 1)

    refused = await submit(page, f"{address}/delete")
    ended = await submit(page, f"{address}/cancel")
    over = await until_over(page, address)
    await engine.until(lambda engine: engine.running == 0)
    deleted = await submit(page, f"{address}/delete")

    assert refused.status_code == 409
    assert (ended.status_code, ended.headers["location"]) == (303, address)
    assert "Ended by hand" in text_of(over)
    assert "It ended before there was anything to measure." in text_of(over)
    assert deleted.headers["location"] == "/admin/bench"
    assert (await page.get(address)).status_code == 404


async def test_the_record_and_the_picture_are_for_taking_along(page: Browser, db: Sessions) -> None:
    run_id = await keep(db)

    record = await page.get(f"/admin/bench/{run_id}/record")
    picture = await page.get(f"/admin/bench/{run_id}/picture")

    assert record.headers["content-disposition"] == f'attachment; filename="bench-{run_id}.json"'
    assert [each["people"] for each in record.json()["levels"]] == [1, 2]
    assert picture.headers["content-disposition"] == f'attachment; filename="bench-{run_id}.svg"'
    assert ET.fromstring(picture.text).get("role") == "img"


async def test_a_hostile_name_of_a_model_stays_text(page: Browser, db: Sessions) -> None:
    hostile = HOSTILE.replace("\x01", "")  # what Postgres would not keep anyway
    run_id = await keep(db, model=hostile, engine=hostile)

    shown = await page.get(f"/admin/bench/{run_id}")
    listed = await page.get("/admin/bench")

    assert shown.status_code == listed.status_code == 200
    assert "<script>alert(1)" not in shown.text + listed.text
    assert "<script>alert(1)</script>" in text_of(shown)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"people": "1000"}, "“People at once” is a number from 1 to 256."),
        ({"turns": "many"}, "“Turns” is a number from 1 to 8."),
        ({"seconds": "-5"}, "“Seconds in all” is a number from 5 to 3,600."),
    ],
)
async def test_a_wrong_size_is_told_with_what_was_typed(
    page: Browser, size: Mapping[str, str], wrong: dict[str, str], words: str
) -> None:
    asked = await page.get("/admin/bench", params={**size, **wrong})
    posted = await submit(page, "/admin/bench", **{**size, **wrong})

    for reply in (asked, posted):
        assert reply.status_code == 422
        assert words in text_of(reply)
        assert value_of(reply, next(iter(wrong))) == next(iter(wrong.values()))


async def test_a_model_that_is_not_there_is_told(page: Browser, size: Mapping[str, str]) -> None:
    gone = await page.get("/admin/bench", params={**size, "deployment": str(new_id())})
    posted = await submit(page, "/admin/bench", **{**size, "deployment": "none"})

    assert "does not offer this model" in text_of(gone)
    assert (posted.status_code, "There is no such model." in text_of(posted)) == (404, True)


async def test_for_members_none_of_it_is_there(browser: OpenBrowser, alice: User, db: Sessions, site: Site) -> None:
    page = await browser(alice)
    run_id = await keep(db)

    replies = [
        await page.get("/admin/bench"),
        await page.get(f"/admin/bench/{run_id}"),
        await page.get(f"/admin/bench/{run_id}/record"),
        await page.get(f"/admin/bench/{run_id}/picture"),
        await page.get("/admin/capacity"),
        await submit(page, "/admin/bench", **SIZE),
        await submit(page, f"/admin/bench/{run_id}/cancel"),
        await submit(page, f"/admin/bench/{run_id}/delete"),
    ]

    assert [reply.status_code for reply in replies] == [404] * 8

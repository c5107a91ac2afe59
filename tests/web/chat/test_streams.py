"""Following an answer: joining late, dropping out, coming back."""

import asyncio
import time

import pytest

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.settings import Settings
from tests.conftest import OpenBrowser, sign_in
from tests.fakes.engine import FakeEngine, Pause
from tests.site import Browser, Event, Site
from tests.web.chat.conftest import Chat, assemble, visible

BLOCKS = [f"Paragraph {number} with **bold** text.\n\n" for number in range(12)]


async def test_headers_come_before_the_first_token(chat: Chat, engine: FakeEngine) -> None:
    """WEB-09: with every middleware in place."""
    engine.hold()
    asked = await chat.ask("Hello")
    began = time.perf_counter()

    async with chat.browser.watch(asked.stream):
        seconds = time.perf_counter() - began

    assert seconds < 0.3
    engine.release()


async def test_tokens_arrive_one_by_one(chat: Chat, engine: FakeEngine) -> None:
    """WEB-08: nothing on the way collects them, whatever encodings the browser takes."""
    engine.script = [piece for number in range(5) for piece in (f"word{number} ", Pause(0.2))]
    asked = await chat.ask("Hello")
    arrived: dict[str, float] = {}

    async with chat.browser.watch(asked.stream) as events:
        async for event in events:
            for number in range(5):
                if f"word{number}" in event.data:
                    arrived.setdefault(f"word{number}", time.perf_counter())

    gaps = [later - earlier for earlier, later in zip(arrived.values(), list(arrived.values())[1:], strict=False)]
    assert len(arrived) == 5
    assert all(0.05 < gap < 0.5 for gap in gaps), gaps


@pytest.mark.parametrize("by_header", [True, False])
async def test_a_reader_that_drops_out_comes_back_where_it_was(chat: Chat, engine: FakeEngine, by_header: bool) -> None:
    """WEB-02: by Last-Event-ID, and by the page's own cursor."""
    engine.script = [piece for block in BLOCKS for piece in (block, Pause(0.03))]
    asked = await chat.ask("Hello")
    seen: list[Event] = []
    cursor = None

    for _drop in range(4):
        stream = asked.stream if by_header or cursor is None else f"{asked.answer}/events?since={cursor}"
        async with chat.browser.watch(stream, last_event_id=cursor if by_header else None) as events:
            async for event in events:
                seen.append(event)
                cursor = event.id or cursor
                if len(seen) % 3 == 0:
                    break
    async with chat.browser.watch(asked.stream, last_event_id=cursor) as events:
        seen += [event async for event in events]

    live = visible(assemble([event for event in seen if "<article" not in event.data]))
    stored = visible("".join(BLOCKS)).replace("*", "")
    assert stored.startswith(live)
    assert all(live.count(f"Paragraph {number} ") <= 1 for number in range(12))
    assert visible(seen[-2].data).count("Paragraph 11 ") == 1


async def test_a_late_request_gets_the_one_last_event(chat: Chat) -> None:
    """WEB-03"""
    asked = await chat.ask("Hello")
    await chat.ended(asked)

    events = await chat.browser.read(asked.stream)

    assert [event.name for event in events] == ["", "finished"]
    assert "Hello" in events[0].data


@pytest.mark.parametrize("cursor", ["x", "1.2", "9.9.9", "1.0.999999", "-1.0.0", "1.0.99999999999999999999"])
async def test_a_cursor_that_does_not_fit_starts_from_the_beginning(
    chat: Chat, engine: FakeEngine, cursor: str
) -> None:
    go_on = asyncio.Event()
    engine.script = ("All of ", "it", go_on, ".")
    asked = await chat.ask("Hello")

    async with chat.browser.watch(f"{asked.answer}/events", last_event_id=cursor) as events:
        async for event in events:
            if "All of it" in visible(event.data):
                break
        else:
            pytest.fail("the text did not come from its beginning")
    go_on.set()


async def test_two_readers_see_the_same(chat: Chat, engine: FakeEngine) -> None:
    engine.script = [piece for block in BLOCKS[:4] for piece in (block, Pause(0.02))]
    asked = await chat.ask("Hello")

    one, two = await asyncio.gather(chat.ended(asked), chat.ended(asked))

    assert one[-2].data == two[-2].data


async def test_reading_a_stream_from_another_site_is_refused(chat: Chat, engine: FakeEngine) -> None:
    asked = await chat.ask("Hello")

    response = await chat.browser.get(asked.stream, headers={"sec-fetch-site": "cross-site"})

    assert response.status_code == 403
    await chat.ended(asked)


async def test_a_stream_without_a_session_says_401_and_never_redirects(
    chat: Chat, browser: OpenBrowser, engine: FakeEngine
) -> None:
    """WEB-06, and design: a redirect would be followed by fetch."""
    asked = await chat.ask("Hello")
    nobody = await browser(None)

    response = await nobody.get(asked.stream, hx=True, headers={"accept": "text/html, text/event-stream"})

    assert response.status_code == 401
    assert "location" not in response.headers
    assert "hx-redirect" not in response.headers
    await chat.ended(asked)


async def test_thinking_is_shown_apart(chat: Chat, engine: FakeEngine) -> None:
    """SEM-03"""
    from tests.fakes.engine import Thought

    engine.script = (Thought("let me "), Thought("see"), "42")
    asked = await chat.ask("What is the answer?")

    events = await chat.ended(asked)
    page = (await chat.browser.get(asked.address)).text

    assert "let me see" in visible(events[-2].data)
    assert visible(page.partition('class="prose"')[2].partition("</div>")[0].partition(">")[2]) == "42"


async def test_streams_hold_no_database_connection(
    chat: Chat, engine: FakeEngine, site: Site, alice: User, browser: OpenBrowser
) -> None:
    """More open streams than connections, and the pages still answer at once."""
    engine.hold()
    asked = [await chat.ask(f"Question {number}") for number in range(site.settings.database_connections + 2)]
    streams = [asyncio.create_task(chat.ended(one)) for one in asked]
    await asyncio.sleep(0.1)
    began = time.perf_counter()

    page = await chat.browser.get("/")

    assert page.status_code == 200
    assert time.perf_counter() - began < 1
    engine.release()
    await asyncio.gather(*streams)


async def test_a_stream_ends_with_the_session(
    chat: Chat, engine: FakeEngine, browser: OpenBrowser, alice: User
) -> None:
    """The other browser of the same person comes back by itself; the one that signed out is refused."""
    go_on = asyncio.Event()
    engine.script = ("Half of ", go_on, "it.")
    asked = await chat.ask("Hello")
    other = await browser(alice)
    events = asyncio.create_task(chat.browser.read(asked.stream))
    await asyncio.sleep(0.2)

    await chat.browser.post("/logout", hx=False)
    seen = await asyncio.wait_for(events, 2)

    assert seen[-1].name != "finished"
    assert (await chat.browser.get(asked.stream, hx=True)).status_code == 401
    go_on.set()
    assert "Half of it." in (await other.read(asked.stream))[-2].data


async def test_a_huge_answer_holds_nobody_up(chat: Chat, engine: FakeEngine) -> None:
    engine.script = ["word " * 200_000]
    asked = await chat.ask("A million characters")
    await chat.ended(asked)
    began = time.perf_counter()

    page = await chat.browser.get(asked.address)

    assert page.status_code == 200
    assert page.text.count("word") >= 200_000
    assert time.perf_counter() - began < 1


async def test_an_odd_finish_reason_loses_nothing(chat: Chat, engine: FakeEngine) -> None:
    engine.script = [b'data: {"choices":[{"delta":{"content":"All of it."},"finish_reason":"a\\u0000\\ud800b"}]}\n\n']
    asked = await chat.ask("Hello")

    events = await chat.ended(asked)

    assert "All of it." in events[-2].data
    assert "Interrupted" not in events[-2].data


async def test_a_session_that_idles_out_takes_no_answer_with_it(
    settings: Settings, engine: FakeEngine, db: Sessions, alice: User
) -> None:
    """LIFE-08: an open stream is no click, and is read to its end all the same; whoever comes back has to sign in."""
    engine.script = [piece for number in range(12) for piece in (f"word{number} ", Pause(0.15))]
    briefly = settings.model_copy(update={"session_idle_hours": 0.8 / 3600})
    async with Site(briefly) as site, Browser(site, token=await sign_in(db, alice)) as browser:
        asked = await Chat(browser, next(iter((await site.until_offered()).values()))).ask("Hello")

        events = await browser.read(asked.stream)
        again = await browser.get(asked.stream, hx=True)
        page = await browser.get(asked.address)
        async with Browser(site, token=await sign_in(db, alice)) as signed_in:
            stored = await signed_in.get(asked.address)

    assert events[-1].name == "finished"
    assert "word11" in events[-2].data
    assert again.status_code == 401
    assert (page.status_code, page.headers["location"]) == (303, f"/login?next={asked.address}")
    assert "word11" in stored.text
    assert len(engine.questions) == 1

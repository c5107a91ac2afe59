"""Sending a question, and what comes back."""

import asyncio
import re
from uuid import uuid4

import pytest

from backend.accounts.models import User
from backend.core.ids import new_id
from backend.core.settings import Settings
from tests.conftest import OpenBrowser
from tests.fakes.engine import RESET, FakeEngine, Script, refusal
from tests.site import Site
from tests.web.chat.conftest import Chat, stream_of, visible


async def test_a_first_question_begins_a_conversation(chat: Chat, engine: FakeEngine) -> None:
    engine.script = ("Par", "is.")

    asked = await chat.ask("What is the capital of France?")
    events = await chat.ended(asked)
    page = await chat.browser.get(asked.address)

    assert asked.address.startswith("/chat/")
    assert "Paris." in events[-2].data
    assert events[-1].name == "finished"
    assert page.text.count("What is the capital of France?") >= 2  # the question and the sidebar
    assert "Paris." in visible(page.text)


async def test_the_second_question_is_appended_with_a_fresh_composer(chat: Chat) -> None:
    first = await chat.ask("One?")
    await chat.ended(first)

    second = await chat.ask("Two?", to=first.address)

    assert second.html.count("<article") == 2
    assert 'hx-target="#composer"' in second.html
    assert second.answer.rpartition("/")[2] in second.html.partition('name="after"')[2][:80]


async def test_without_script_a_question_leads_to_its_page(chat: Chat) -> None:
    data = {"text": "Hello", "model": str(chat.model), "key": str(new_id())}

    response = await chat.browser.post("/chat", data, hx=False)

    assert response.status_code == 303
    assert (await chat.browser.get(response.headers["location"])).status_code == 200


async def test_a_second_question_has_to_wait_with_its_text(chat: Chat, engine: FakeEngine) -> None:
    engine.hold()
    first = await chat.ask("One?")

    response = await chat.browser.send("Two?", model=chat.model, to=first.address)

    assert response.status_code == 409
    assert response.headers["hx-retarget"] == "#toasts"
    assert "Your text is kept" in response.text
    engine.release()
    await chat.ended(first)


@pytest.mark.parametrize("text", ["", "  \n ", "\0"])
async def test_an_empty_message_is_refused(chat: Chat, engine: FakeEngine, text: str) -> None:
    response = await chat.browser.send(text, model=chat.model)

    assert response.status_code == 422
    assert "There is nothing to send yet." in response.text
    assert not engine.requests


async def test_the_largest_message_works_and_one_byte_more_is_refused(chat: Chat, settings: Settings) -> None:
    """TXT-03: urlencoded is the one encoding the page uses; four-byte characters take twelve bytes there."""
    longest = "😀" * (settings.message_bytes // 4)

    asked = await chat.ask(longest)
    await chat.ended(asked)
    refused = await chat.browser.send(longest + "x", model=chat.model, to=asked.address)
    enormous = await chat.browser.send("😀" * settings.message_bytes, model=chat.model, to=asked.address)

    assert refused.status_code == enormous.status_code == 413
    assert "kept" in refused.text
    assert "kept" in enormous.text
    assert refused.headers["hx-retarget"] == "#toasts"


async def test_text_that_cannot_be_stored_is_made_storable(chat: Chat) -> None:
    """TXT-01, TXT-02, from a form."""
    body = f"text=a%00b%ED%A0%80c&model={chat.model}&key={new_id()}"

    response = await chat.browser.http.post(
        "/chat", content=body, headers={"hx-request": "true", "content-type": "application/x-www-form-urlencoded"}
    )

    assert response.status_code == 200
    assert "ab" in visible(response.text)
    assert "�c" in visible(response.text)


async def test_an_unknown_model_is_refused(chat: Chat) -> None:
    response = await chat.browser.send("Hello", model=uuid4())

    assert response.status_code == 422
    assert "Choose another one" in response.text


async def test_a_failed_answer_says_so_and_can_be_tried_again(chat: Chat, engine: FakeEngine) -> None:
    engine.plan([b'data: {"error":{"message":"CUDA out of memory","code":500}}\n\n'], ("Fine.",))
    asked = await chat.ask("Hello")

    events = await chat.ended(asked)
    engine.hold()
    again = await chat.browser.post(f"{asked.answer}/regenerate")
    engine.release()
    events_again = await chat.browser.read(again.text.partition('hx-sse:connect="')[2].partition('"')[0])

    assert "No answer." in visible(events[-2].data)
    assert "Regenerate" in visible(events[-2].data)
    assert "CUDA" not in events[-2].data
    assert "Fine." in events_again[-2].data


async def test_an_interrupted_answer_keeps_its_text(chat: Chat, engine: FakeEngine) -> None:
    engine.plan(["Half of ", RESET])
    asked = await chat.ask("Hello")

    await chat.ended(asked)
    page = visible((await chat.browser.get(asked.address)).text)

    assert "Half of" in page
    assert "Interrupted." in page
    assert "Continue" in page


async def test_html_of_a_login_page_is_never_shown(chat: Chat, engine: FakeEngine) -> None:
    """STR-11c"""
    from tests.fakes.engine import Status

    engine.plan(Status(200, b"<html><body>Proxy login</body></html>", {"content-type": "text/html"}))
    asked = await chat.ask("Hello")

    await chat.ended(asked)

    assert "Proxy login" not in (await chat.browser.get(asked.address)).text


async def test_stop_keeps_the_text_and_frees_the_engine(chat: Chat, engine: FakeEngine) -> None:
    """LIFE-01"""
    go_on = asyncio.Event()
    engine.script = ("Well, ", go_on, "yes.")
    asked = await chat.ask("Hello")
    async with chat.browser.watch(asked.stream) as events:
        async for event in events:
            if "Well," in event.data:
                break

        stopped = await chat.browser.post(f"{asked.answer}/stop")

    assert "You stopped this answer." in visible(stopped.text)
    assert "Well," in visible(stopped.text)
    await engine.until(lambda fake: len(fake.aborted) == 1 and fake.running == 0)
    go_on.set()


async def test_a_stopped_answer_counts_as_far_as_it_came(chat: Chat, engine: FakeEngine) -> None:
    """The meter beside the message box is told with the answer that takes the place of the running one."""
    engine.script = ("word " * 400, asyncio.Event())
    asked = await chat.ask("Hello")
    async with chat.browser.watch(asked.stream) as events:
        async for event in events:
            if "word" in event.data:
                break

    stopped = await chat.browser.post(f"{asked.answer}/stop")

    used = re.search(r'<data id="used" value="(\d+)"', stopped.text)
    assert used
    assert int(used[1]) > 400


async def test_what_was_too_long_is_not_asked_for_again_as_it_is(chat: Chat, engine: FakeEngine) -> None:
    engine.plan(refusal(400, "This model's maximum context length is 1000 tokens. However, you requested 1200 tokens."))
    asked = await chat.ask("Far too long")

    events = await chat.ended(asked)

    assert "No answer." in visible(events[-2].data)
    assert "data-too-long" in events[-2].data
    assert "Try again" not in visible(events[-2].data)


async def test_closing_the_tab_loses_nothing(chat: Chat, engine: FakeEngine) -> None:
    """LIFE-02, LIFE-03: one engine call, and the page that comes back goes on where the answer is."""
    go_on = asyncio.Event()
    engine.plan(("First.\n\n", "Second", go_on, " half."), ("Fine.",))
    asked = await chat.ask("Hello")
    async with chat.browser.watch(asked.stream) as events:
        await anext(events)

    other = await chat.ask("Something else meanwhile")
    await chat.ended(other)
    page = (await chat.browser.get(asked.address)).text
    sidebar = (await chat.browser.get("/")).text
    go_on.set()
    events_again = await chat.ended(asked)

    assert "First." in visible(page)
    assert "Second" in visible(page)
    assert "Answer in progress" in sidebar
    assert "Second half." in events_again[-2].data
    assert len([a for a in engine.requests if a.last_text == "Hello"]) == 1


async def test_a_stranger_can_neither_ask_nor_stop_nor_read(
    chat: Chat, engine: FakeEngine, browser: OpenBrowser, bob: User, carol: User, site: Site
) -> None:
    """AZN-01: a stranger, an administrator and nobody get what they get for an id that does not exist."""
    engine.hold()
    asked = await chat.ask("Hello")
    elsewhere = f"/chat/{uuid4()}"
    message = asked.answer.removeprefix(asked.address)

    for person in (bob, carol):
        other = await browser(person)
        for method, path in [
            ("GET", ""),
            ("GET", message),
            ("GET", f"{message}/events"),
            ("POST", f"{message}/stop"),
            ("POST", f"{message}/regenerate"),
            ("POST", "/title"),
            ("GET", "/title"),
            ("POST", "/delete"),
        ]:
            as_form = {"content-type": "application/x-www-form-urlencoded"}
            mine = await other.http.request(method, asked.address + path, headers=as_form)
            unknown = await other.http.request(method, elsewhere + path, headers=as_form)
            assert mine.status_code == unknown.status_code == 404, (method, path)
            assert _without_id(mine.text) == _without_id(unknown.text)
        sent = await other.send("Mine now", model=chat.model, to=asked.address)
        assert sent.status_code == 404
    nobody = await browser(None)
    assert (await nobody.get(f"{asked.stream}", hx=True)).status_code == 401
    engine.release()
    assert "Hello" in (await chat.ended(asked))[-2].data


async def test_a_message_is_not_found_under_another_conversation(chat: Chat) -> None:
    """Both ids are checked, also between two conversations of the same person."""
    one, two = await chat.ask("One"), await chat.ask("Two")
    await chat.ended(one)
    await chat.ended(two)

    mixed = two.address + one.answer.removeprefix(one.address)

    assert (await chat.browser.get(mixed)).status_code == 404


def _without_id(html: str) -> str:
    """Ids and times differ from page to page."""
    return re.sub(r"[0-9a-f-]{36}|[a-z0-9]{4}-[a-z0-9]{4}|\d", "", html)


async def test_the_next_question_follows_the_answer_that_was_tried_again(chat: Chat, engine: FakeEngine) -> None:
    """The page's composer is told, and a reload shows the same."""
    engine.plan(refusal(500, "no"), ("Fine.",), ("Good.",))
    first = await chat.ask("One?")
    await chat.ended(first)
    engine.hold()
    again = await chat.browser.post(f"{first.answer}/regenerate")
    engine.release()
    await chat.browser.read(stream_of(again.text))
    after = again.text.partition('id="after" value="')[2].partition('"')[0]

    second = await chat.browser.send("Two?", model=chat.model, to=first.address, after=after)
    await chat.browser.read(stream_of(second.text))
    page = visible((await chat.browser.get(first.address)).text)

    assert [said["content"] for said in engine.requests[-1].messages] == ["One?", "Fine.", "Two?"]
    assert "Fine." in page
    assert "No answer." not in page


async def test_stops_at_the_same_moment_do_not_exhaust_the_connections(
    chat: Chat, engine: FakeEngine, site: Site
) -> None:
    engine.hold()
    asked = [await chat.ask(f"Question {number}") for number in range(site.settings.database_connections + 2)]

    stopped = await asyncio.gather(*(chat.browser.post(f"{one.answer}/stop") for one in asked))

    assert {response.status_code for response in stopped} == {200}
    assert all("You stopped this answer." in response.text for response in stopped)
    engine.release()


@pytest.mark.parametrize(
    "script",
    [
        [b'data: {"choices":[{"delta":{"content":"the marker word"},]}\n\n'],
        refusal(400, "cannot read: the marker word"),
        [b'data: {"error":{"message":"bad input: the marker word","code":400}}\n\n'],
    ],
)
async def test_nothing_that_was_said_reaches_the_log(
    chat: Chat, engine: FakeEngine, caplog: pytest.LogCaptureFixture, script: Script
) -> None:
    caplog.set_level("DEBUG", logger="backend")
    engine.plan(script)

    await chat.ended(await chat.ask("the marker word"))

    assert "broke off" in caplog.text
    assert "marker" not in "".join(str(vars(record)) for record in caplog.records if record.name.startswith("backend"))

"""Versions of questions and answers, as a browser asks for them: edit, regenerate, continue, step, delete, fork."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from backend.accounts.models import User
from backend.core.ids import new_id
from tests.conftest import OpenBrowser
from tests.fakes.engine import RESET, FakeEngine, finish, refusal
from tests.fakes.script import DONE, T
from tests.site import Site
from tests.web.chat.conftest import Asked, Chat, stream_of, visible


@pytest.fixture
def abilities() -> dict[str, Any]:
    """What is special about the engine of a test; one that needs another parametrizes it."""
    return {}


@pytest.fixture
def engine(abilities: dict[str, Any]) -> Iterator[FakeEngine]:
    options: dict[str, Any] = {"models": ["fake-8b", "fake-70b"], "window": 1_000_000} | abilities
    with FakeEngine(**options) as running:
        yield running


async def until_it_continues(site: Site) -> None:
    """The probe that proves it comes a moment after the start."""
    async with asyncio.timeout(5):
        while not all(each.continues for offer in site.registry.offers for each in offer.endpoints):
            await asyncio.sleep(0.01)


ACTIONS = ("regenerate", "continue", "show", "delete", "fork")


def question_of(html: str) -> str:
    """The id of the last question of a page or fragment."""
    found: list[str] = re.findall(r'<article class="message you" id="message-([0-9a-f-]+)"', html)
    return found[-1]


async def asked_and_answered(chat: Chat, text: str, *, to: str = "") -> Asked:
    asked = await chat.ask(text, to=to)
    await chat.ended(asked)
    return asked


async def ended(chat: Chat, html: str) -> None:
    """Until the answer that a reply shows is complete; it may have been so before the reply was drawn."""
    if "hx-sse:connect" in html:
        await chat.browser.read(stream_of(html))


def about(html: str) -> str:
    """The id of the message that gets the focus."""
    found = re.search(r'data-about="message-([0-9a-f-]+)"', html)
    assert found
    return found[1]


async def thread(chat: Chat, asked: Asked) -> str:
    return visible(
        (await chat.browser.get(asked.address)).text.partition('id="thread"')[2].partition('class="dock"')[0]
    )


async def edit(chat: Chat, asked: Asked, text: str) -> str:
    data = {"text": text, "model": str(chat.model), "key": str(new_id()), "edits": question_of(asked.html)}
    response = await chat.browser.post(f"{asked.address}/messages", data)
    assert (response.status_code, response.headers["hx-retarget"]) == (200, "#thread")
    await ended(chat, response.text)
    return response.text


async def test_an_edited_question_is_a_second_version_and_the_first_is_one_step_away(chat: Chat) -> None:
    asked = await asked_and_answered(chat, "One?")
    form = await chat.browser.get(f"{asked.address}/messages/{question_of(asked.html)}?edit=x", hx=True)
    page = await chat.browser.get(f"{asked.address}?edit={question_of(asked.html)}")

    edited = await edit(chat, asked, "One and a half?")
    first = await chat.browser.post(f"{asked.address}/messages/{question_of(asked.html)}/show")

    assert form.status_code == 422  # garbage
    assert 'aria-label="Edit this question"' in page.text
    assert "2/2" in visible(edited)
    assert "One and a half?" in visible(edited)
    assert f'<article class="message assistant" id="message-{about(edited)}"' in edited  # the answer to come
    assert "1/2" in visible(first.text)
    assert "Version 1 of 2." in visible(first.text)
    assert "One and a half?" not in visible(first.text)
    assert asked.answer.rpartition("/")[2] in first.text.partition('name="after"')[2]  # what the next question follows
    assert "1/2" in await thread(chat, asked)


async def test_an_answer_is_written_again_with_a_wish_and_by_another_model(
    chat: Chat, site: Site, engine: FakeEngine
) -> None:
    models = await site.until_offered("fake-8b", "fake-70b")
    go_on = asyncio.Event()
    engine.plan(("Long.",), (go_on, "Short."), ("Big.",))
    asked = await asked_and_answered(chat, "Hello")

    shorter = await chat.browser.post(f"{asked.answer}/regenerate", {"instruction": "Shorter"})
    go_on.set()
    events = await chat.browser.read(stream_of(shorter.text))
    bigger = await chat.browser.post(f"{asked.answer}/regenerate", {"model": str(models["fake-70b"])})
    await ended(chat, bigger.text)

    assert "2/2" in visible(shorter.text)  # while it streams
    assert "Shorter" in visible(shorter.text)
    assert "2/2" in visible(events[-2].data)  # and when it has ended
    assert "Shorter" in visible(events[-2].data)
    assert 'id="used"' in events[-2].data
    page = await thread(chat, asked)
    assert "3/3" in page
    assert "Big." in page
    assert "fake-70b" in page


async def test_a_stopped_answer_goes_on_in_place_where_the_engine_can(
    chat: Chat, engine: FakeEngine, site: Site
) -> None:
    await until_it_continues(site)
    engine.plan(("Half ", asyncio.Event()))
    asked = await chat.ask("Hello")
    async with chat.browser.watch(asked.stream) as events:
        async for event in events:
            if "Half" in event.data:
                break
        stopped = await chat.browser.post(f"{asked.answer}/stop")
    engine.plan(("Half and the rest.",))

    response = await chat.browser.post(f"{asked.answer}/continue")
    await ended(chat, response.text)
    again = await chat.browser.post(f"{asked.answer}/continue")

    assert "Continue" in visible(stopped.text)
    assert "in a new message" not in visible(stopped.text)
    assert "The answer goes on." in visible(response.text) or "The answer is complete." in visible(response.text)
    page = await thread(chat, asked)
    assert page.count("You") == 1
    assert "Half and the rest." in page
    assert "in 2 parts" in page
    assert "Continued when asked Once" in page
    assert again.status_code == 409  # it is whole


@pytest.mark.parametrize("abilities", [{"continues": False}])
async def test_elsewhere_an_answer_that_broke_off_goes_on_in_a_new_message(chat: Chat, engine: FakeEngine) -> None:
    engine.plan((T("Half of "), finish("length"), DONE), ("the rest.",))
    asked = await asked_and_answered(chat, "Hello")
    before = await thread(chat, asked)

    response = await chat.browser.post(f"{asked.answer}/continue")
    await ended(chat, response.text)

    page = await thread(chat, asked)
    assert "Continue goes on in a new message." in before
    assert "You asked the model to go on." in page
    assert "Please go on" not in page
    assert "the rest." in page
    assert page.count("Continue") == 0  # only what is last can go on


async def test_a_deleted_message_is_gone_and_another_version_takes_its_place(chat: Chat, engine: FakeEngine) -> None:
    engine.plan(("First.",), ("Second.",), ("Third.",))
    asked = await asked_and_answered(chat, "Hello")
    again = await chat.browser.post(f"{asked.answer}/regenerate")
    await ended(chat, again.text)

    deleted = await chat.browser.post(f"{asked.address}/messages/{about(again.text)}/delete")
    alone = await thread(chat, asked)
    await chat.browser.post(f"{asked.answer}/delete")
    rest = await thread(chat, asked)
    await chat.browser.post(f"{asked.address}/messages/{question_of(asked.html)}/delete")

    assert "The message was deleted." in visible(deleted.text)
    assert "Second." not in visible(deleted.text)
    assert "First." in alone
    assert "1/" not in alone
    assert "First." not in rest
    assert "Hello" in rest
    assert "All messages here were deleted." not in rest
    assert "All messages here were deleted." in await thread(chat, asked)


async def test_an_answer_that_is_being_written_can_be_deleted(chat: Chat, engine: FakeEngine) -> None:
    """From a second tab, where it is not seen to run yet; or by two at once."""
    engine.plan(["Once ", asyncio.Event()])
    asked = await chat.ask("Tell me a story.")

    replies = await asyncio.gather(*(chat.browser.post(f"{asked.answer}/delete") for _ in range(2)))

    assert {reply.status_code for reply in replies} == {200}
    assert "Once" not in await thread(chat, asked)
    async with asyncio.timeout(20):
        while engine.running:
            await asyncio.sleep(0.01)


async def test_what_follows_a_deleted_version_can_still_be_reached(chat: Chat, engine: FakeEngine) -> None:
    asked = await asked_and_answered(chat, "One?")
    edited = await edit(chat, asked, "Two?")

    deleted = await chat.browser.post(f"{asked.address}/messages/{question_of(edited)}/delete")
    await chat.browser.post(f"{asked.address}/messages/{question_of(asked.html)}/show")
    first = await thread(chat, asked)
    await chat.browser.post(f"{asked.address}/messages/{question_of(edited)}/show")

    assert "You deleted this version." in visible(deleted.text)
    assert "2/2" in visible(deleted.text)
    assert "One?" in first
    assert "1/2" in first
    assert "You deleted this version. 2/2" in await thread(chat, asked)


async def test_a_fork_is_another_conversation_up_to_here(chat: Chat) -> None:
    asked = await asked_and_answered(chat, "One?")
    await asked_and_answered(chat, "Two?", to=asked.address)

    response = await chat.browser.post(f"{asked.answer}/fork")

    page = await chat.browser.get(response.headers["hx-redirect"])
    assert "One?" in visible(page.text)
    assert "Two?" not in visible(page.text.partition('id="thread"')[2])


async def test_without_script_each_of_them_leads_back_to_the_page(chat: Chat, engine: FakeEngine) -> None:
    asked = await asked_and_answered(chat, "Hello")
    data = {"text": "Hello there", "model": str(chat.model), "key": str(new_id()), "edits": question_of(asked.html)}

    edited = await chat.browser.post(f"{asked.address}/messages", data, hx=False)
    await engine.until(lambda fake: len(fake.requests) == 2 and fake.running == 0)
    replies = {}
    for action in ("show", "delete", "fork"):
        replies[action] = await chat.browser.post(f"{asked.answer}/{action}", hx=False)
    regenerated = await chat.browser.post(f"{asked.answer}/regenerate", hx=False)

    for reply in (edited, regenerated, replies["show"]):
        assert reply.status_code == 303
        assert re.fullmatch(rf"{asked.address}#message-[0-9a-f-]+", reply.headers["location"])
    page = (await chat.browser.get(asked.address)).text
    all_menus = (await chat.browser.get(f"{asked.address}?menus=1")).text
    assert f'href="{asked.address}?menus=1"' in page
    assert all_menus.count("/fork") > page.count("/fork")
    assert replies["delete"].headers["location"] == asked.address
    assert (await chat.browser.get(replies["fork"].headers["location"])).status_code == 200


async def test_while_an_answer_runs_another_one_has_to_wait_and_it_cannot_be_forked(
    chat: Chat, engine: FakeEngine
) -> None:
    first = await asked_and_answered(chat, "One?")
    engine.hold()
    second = await chat.ask("Two?", to=first.address)

    again = await chat.browser.post(f"{first.answer}/regenerate")
    forked = await chat.browser.post(f"{second.answer}/fork")
    elsewhere = await chat.browser.post(f"{first.answer}/show")
    engine.release()
    await chat.ended(second)

    assert (again.status_code, forked.status_code) == (409, 409)
    assert again.headers["hx-retarget"] == "#toasts"
    assert "still being written" in again.text
    assert elsewhere.status_code == 200  # looking is not writing
    assert "Two?" in await thread(chat, first)


async def test_only_answers_are_written_again_and_only_questions_edited(chat: Chat) -> None:
    asked = await asked_and_answered(chat, "Hello")
    question = f"{asked.address}/messages/{question_of(asked.html)}"

    assert (await chat.browser.post(f"{question}/regenerate")).status_code == 404
    assert (await chat.browser.post(f"{question}/continue")).status_code == 404
    assert (await chat.browser.get(f"{asked.answer}?edit={uuid4()}", hx=True)).status_code == 404


async def test_a_stranger_finds_no_message_to_change(chat: Chat, browser: OpenBrowser, bob: User, carol: User) -> None:
    asked = await asked_and_answered(chat, "Hello")

    for person in (bob, carol):
        other = await browser(person)
        for action in ACTIONS:
            assert (await other.post(f"{asked.answer}/{action}")).status_code == 404, action
        data = {"text": "Mine", "model": str(chat.model), "key": str(new_id()), "edits": question_of(asked.html)}
        assert (await other.post(f"{asked.address}/messages", data)).status_code == 404
    assert "Hello" in await thread(chat, asked)


async def test_an_interrupted_answer_without_text_is_offered_again_not_on(chat: Chat, engine: FakeEngine) -> None:
    engine.plan([RESET], [RESET])
    asked = await asked_and_answered(chat, "Hello")

    page = await thread(chat, asked)

    assert "Regenerate" in page
    assert "Continue" not in page


@pytest.mark.parametrize("abilities", [{"window": 1000}])
async def test_the_gauge_tells_how_full_the_window_is(chat: Chat) -> None:
    asked = await asked_and_answered(chat, "word " * 100)

    page = (await chat.browser.get(asked.address)).text

    used = re.search(r'id="used" value="(\d+)"', page)
    assert used
    assert int(used[1]) > 200
    assert "of 1,000 tokens" in visible(page)
    assert 'data-window="1000" data-room="750"' in page


@pytest.mark.parametrize("abilities", [{"window": 1000}])
async def test_a_conversation_that_outgrew_the_window_shows_from_where_it_is_sent(
    chat: Chat, engine: FakeEngine
) -> None:
    engine.script = ("Fine.",)
    asked = await asked_and_answered(chat, "first " * 180)
    await asked_and_answered(chat, "second " * 180, to=asked.address)
    before = await thread(chat, asked)

    third = await chat.ask("third " * 180, to=asked.address)
    events = await chat.ended(third)

    sentence = "Earlier messages are no longer sent to the model."
    page = await thread(chat, asked)
    assert sentence not in before
    assert sentence in visible(events[-2].data)  # at once, where the reader is
    assert page.count(sentence) == 1
    assert page.index("first first") < page.index(sentence) < page.index("third third")


async def test_a_question_no_model_can_read_says_so(chat: Chat, engine: FakeEngine) -> None:
    sentence = "This model's maximum context length is 1000 tokens. However, your request has 1200 input tokens."
    engine.plan(refusal(400, sentence))
    asked = await chat.ask("Hello")

    events = await chat.ended(asked)

    assert "data-too-long" in events[-2].data

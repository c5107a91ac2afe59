"""What people think of an answer."""

import asyncio
import re
from uuid import uuid4

import pytest

from backend.accounts.models import User
from tests.conftest import OpenBrowser
from tests.fakes.engine import FakeEngine, finish
from tests.site import Site
from tests.web.chat.conftest import Chat
from tests.web.chat.test_branches import asked_and_answered, question_of, until_it_continues


def pressed(html: str) -> list[str]:
    """The names of the buttons that are pressed, of those that rate."""
    buttons = re.findall(r"<button[^>]*name=\"rating\"[^>]*>", html)
    return [button.partition('title="')[2].partition('"')[0] for button in buttons if 'aria-pressed="true"' in button]


async def test_an_answer_is_rated_the_rating_stays_and_can_be_taken_back(chat: Chat) -> None:
    asked = await asked_and_answered(chat, "Hello")
    address = asked.answer

    good = await chat.browser.post(f"{address}/rate", {"rating": "good"})
    shown = await chat.browser.get(asked.address)
    bad = await chat.browser.post(f"{address}/rate", {"rating": "bad"})
    none = await chat.browser.post(f"{address}/rate", {"rating": "none"})
    plain = await chat.browser.post(f"{address}/rate", {"rating": "good"}, hx=False)

    assert (pressed(good.text), pressed(shown.text), pressed(bad.text)) == (
        ["Good answer"],
        ["Good answer"],
        ["Bad answer"],
    )
    assert pressed(none.text) == []
    assert 'value="good"' in none.text and 'value="none"' in good.text
    assert plain.headers["location"] == f"{asked.address}#message-{address.split('/')[-1]}"


async def test_a_stranger_rates_nothing(chat: Chat, browser: OpenBrowser, bob: User) -> None:
    asked = await asked_and_answered(chat, "Hello")
    stranger = await browser(bob)

    foreign = await stranger.post(f"{asked.answer}/rate", {"rating": "bad"})
    shown = await chat.browser.get(asked.address)

    assert foreign.status_code == 404
    assert pressed(shown.text) == []


async def test_an_answer_that_is_being_written_or_goes_on_has_no_rating(
    chat: Chat, site: Site, engine: FakeEngine
) -> None:
    await until_it_continues(site)
    more = asyncio.Event()
    engine.script = ("Half ", finish("length"))
    asked = await asked_and_answered(chat, "Hello")
    await chat.browser.post(f"{asked.answer}/rate", {"rating": "good"})
    engine.script = ("of it.", more)

    await chat.browser.post(f"{asked.answer}/continue", {})
    running = await chat.browser.post(f"{asked.answer}/rate", {"rating": "good"})
    more.set()
    await chat.browser.read(f"{asked.answer}/events")

    assert running.status_code == 409
    assert pressed((await chat.browser.get(asked.address)).text) == []


@pytest.mark.parametrize("rating", ["", "1", "excellent"])
async def test_what_is_no_rating_changes_nothing(chat: Chat, rating: str) -> None:
    asked = await asked_and_answered(chat, "Hello")

    refused = await chat.browser.post(f"{asked.answer}/rate", {"rating": rating})

    assert refused.status_code == 422
    assert pressed((await chat.browser.get(asked.address)).text) == []


async def test_only_answers_that_are_there_are_rated(chat: Chat) -> None:
    asked = await asked_and_answered(chat, "Hello")
    question = question_of((await chat.browser.get(asked.address)).text)
    await chat.browser.post(f"{asked.answer}/delete", {})

    of_question = await chat.browser.post(f"{asked.address}/messages/{question}/rate", {"rating": "good"})
    of_deleted = await chat.browser.post(f"{asked.answer}/rate", {"rating": "good"})
    of_none = await chat.browser.post(f"{asked.address}/messages/{uuid4()}/rate", {"rating": "good"})

    assert [each.status_code for each in (of_question, of_deleted, of_none)] == [404, 409, 404]

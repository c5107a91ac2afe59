"""Waiting in line: the page says where, keeps saying it, and lets you go."""

import re
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import update

from backend.accounts.models import Role, User
from backend.engines.models import Model
from tests.conftest import AddPerson, OpenBrowser
from tests.fakes.engine import FakeEngine
from tests.site import Event, Site
from tests.web.chat.conftest import Asked, Chat, visible

AskAs = Callable[[User], Awaitable[tuple[Chat, Asked]]]


@pytest.fixture
async def ask_as(browser: OpenBrowser, site: Site, engine: FakeEngine) -> AskAs:
    """Each model gives one answer at a time, and the engine is held."""
    model = next(iter((await site.until_offered()).values()))
    async with site.sessions.begin() as session:
        await session.execute(update(Model).values(max_concurrent=1))
    await site.registry.reload()
    engine.hold()

    async def ask(person: User) -> tuple[Chat, Asked]:
        chat = Chat(await browser(person), model)
        return chat, await chat.ask("Hello")

    return ask


def status_of(event: Event) -> str:
    found = re.search(r'hx-target="#status-[^"]*" hx-swap="innerMorph">(.*?)</hx-partial>', event.data, re.DOTALL)
    return visible(found[1]) if found else ""


async def test_whoever_waits_sees_the_place_move_up_and_then_the_answer(
    ask_as: AskAs, engine: FakeEngine, alice: User, bob: User, carol: User
) -> None:
    carols, first = await ask_as(carol)
    await engine.until(lambda fake: fake.running == 1)
    bobs, second = await ask_as(bob)
    alices, third = await ask_as(alice)
    said: list[str] = []
    events: list[Event] = []

    async with alices.browser.watch(third.stream) as stream:
        async for event in stream:
            events.append(event)
            if (status := status_of(event)).startswith("You are") and status != (said[-1] if said else ""):
                said.append(status)
                if "number 2" in status:
                    assert "You are number 2 in line." in visible((await alices.browser.get(third.address)).text)
                    stopped = await bobs.browser.post(f"{second.answer}/stop")
                    assert "You stopped this answer." in stopped.text, "at once, although the engine is held"
                elif "number 1" in status:
                    engine.release()

    assert [sentence.partition(" in line")[0] for sentence in said] == ["You are number 2", "You are number 1"]
    assert [event.name for event in events][-1] == "finished"
    assert "You asked: Hello" in visible(events[-2].data)
    spoken = [event for event in events if 'hx-target="#announcer"' in event.data and "in line" in event.data]
    assert len(spoken) == 1, "a screen reader hears it once"
    assert len(engine.questions) == 2
    await carols.ended(first)


async def test_too_many_answers_of_ones_own_are_waited_for_and_hold_nobody_else_up(
    chat: Chat, engine: FakeEngine, browser: OpenBrowser, add_person: AddPerson
) -> None:
    engine.hold()
    for _ in range(4):
        await chat.ask("Hello")
    fifth = await chat.ask("Hello")
    stranger = Chat(await browser(await add_person("Dora", Role.MEMBER)), chat.model)

    asked = await stranger.ask("Hello")
    await engine.until(lambda fake: fake.running == 5)
    async with chat.browser.watch(fifth.stream) as stream:
        async for event in stream:
            if "Waiting for your other answers to finish." in status_of(event):
                engine.release()

    assert "You asked: Hello" in visible(event.data) or event.name == "finished"
    await stranger.ended(asked)
    await engine.until(lambda fake: len(fake.questions) == 6)

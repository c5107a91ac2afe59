"""Which models a person meets in the chat: their own only, with what became of one that a conversation had."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import select

from backend.accounts.models import User
from backend.conversations.models import Message
from backend.core.db import Sessions
from backend.engines import publishing
from backend.engines.models import Model, ModelGroup
from backend.groups import service as groups
from backend.groups.models import Group
from tests.conftest import OpenBrowser
from tests.fakes.engine import RESET, FakeEngine
from tests.site import Site
from tests.web.chat.conftest import Chat, stream_of, visible

Rule = Callable[..., Awaitable[None]]


@pytest.fixture
async def models(site: Site) -> dict[str, UUID]:
    return await site.until_offered("fake-8b", "fake-70b")


@pytest.fixture
async def lab(db: Sessions) -> Group:
    async with db.begin() as session:
        return await groups.create(session, "Lab")


@pytest.fixture
def rule(db: Sessions, site: Site, models: dict[str, UUID]) -> Rule:
    """`await rule("fake-8b", color="plum")`; `group=` is the only one it is for."""

    async def change(name: str, *, group: Group | None = None, **values: Any) -> None:
        async with db.begin() as session:
            model = await session.get_one(Model, models[name])
            for field, value in values.items():
                setattr(model, field, value)
            if group:
                model.for_everybody = False
                session.add(ModelGroup(model_id=model.id, group_id=group.id))
        await site.registry.reload()

    return change


def choices(page: httpx.Response) -> list[str]:
    found = re.search(r'<select name="model".*?</select>', page.text, re.DOTALL)
    return re.findall(r"<span>([\w-]+)", found[0]) if found else []


def chosen(page: httpx.Response) -> str:
    found = re.search(r'<option value="([^"]+)"[^>]* selected', page.text)
    return found[1] if found else ""


def notice(page: httpx.Response) -> str:
    found = re.search(r'<div class="notice" role="note">.*?</div>', page.text, re.DOTALL)
    return visible(found[0]) if found else ""


async def test_a_member_of_the_group_has_the_model_and_others_do_not(
    chat: Chat, browser: OpenBrowser, bob: User, rule: Rule, lab: Group, db: Sessions, site: Site
) -> None:
    await rule("fake-70b", group=lab)
    without = choices(await chat.browser.get("/"))

    async with site.sessions.begin() as session:  # as a page would: every process is told
        await groups.add_member(session, lab, bob)
    other = await browser(bob)
    async with asyncio.timeout(5):
        while "fake-70b" not in choices(await other.get("/")):
            await asyncio.sleep(0.02)

    assert without == choices(await chat.browser.get("/")) == ["fake-8b"]


@pytest.mark.parametrize("way", ["a new chat", "the next question", "an edited question", "another answer"])
async def test_a_model_of_others_is_refused_as_one_that_does_not_exist(
    chat: Chat, rule: Rule, lab: Group, models: dict[str, UUID], engine: FakeEngine, way: str
) -> None:
    """AZN-01 for models: whatever way its id is posted, the reply is the one for an id that nobody has."""
    asked = await chat.ask("Hello")
    await chat.ended(asked)
    await rule("fake-70b", group=lab)
    question = re.search(r'class="message you" id="message-([^"]+)"', asked.html)
    assert question

    async def post(model: UUID) -> httpx.Response:
        if way == "another answer":
            return await chat.browser.post(f"{asked.answer}/regenerate", {"model": str(model)})
        more: dict[str, Any] = {"edits": question[1]} if way == "an edited question" else {}
        return await chat.browser.send("Let me", model=model, to="" if way == "a new chat" else asked.address, **more)

    theirs, unknown = await post(models["fake-70b"]), await post(uuid4())

    assert theirs.status_code == unknown.status_code == 422
    assert re.sub(r"[0-9a-z]{4}-[0-9a-z]{4}", "", theirs.text) == re.sub(r"[0-9a-z]{4}-[0-9a-z]{4}", "", unknown.text)
    assert "This model is not here any more. Choose another one; your text is kept." in theirs.text
    assert "fake-70b" not in theirs.text
    assert len(engine.questions) == 1


async def test_an_answer_of_a_model_that_was_taken_away_goes_on_elsewhere(
    chat: Chat, rule: Rule, lab: Group, models: dict[str, UUID], engine: FakeEngine
) -> None:
    engine.plan(["Half of ", RESET])
    asked = await chat.ask("Hello")
    await chat.ended(asked)

    await rule("fake-8b", group=lab)
    refused = await chat.browser.post(f"{asked.answer}/continue")
    await rule("fake-8b", fallback_id=models["fake-70b"])
    goes_on = await chat.browser.post(f"{asked.answer}/continue")
    await chat.browser.read(stream_of(goes_on.text))

    assert refused.status_code == 422
    assert [question.body["model"] for question in engine.questions] == ["fake-8b", "fake-70b"]


async def test_a_fork_takes_no_model_along_that_is_gone(chat: Chat, rule: Rule, lab: Group) -> None:
    asked = await chat.ask("Hello")
    await chat.ended(asked)
    await rule("fake-8b", group=lab)

    forked = await chat.browser.post(f"{asked.answer}/fork")
    page = await chat.browser.get(forked.headers["hx-redirect"])

    assert choices(page) == ["fake-70b"]
    assert notice(page) == "“fake-8b” is not here any more. This conversation goes on with “fake-70b”."


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("retired", "“fake-8b” has retired."),
        ("group", "“fake-8b” is not here any more."),
        ("published", "“fake-8b” is not here any more."),
        ("maintenance", "“fake-8b” is under maintenance until 1 January 2100, 13:30."),
    ],
)
async def test_a_conversation_says_what_became_of_its_model_and_goes_on(
    chat: Chat, rule: Rule, lab: Group, models: dict[str, UUID], what: str, words: str, db: Sessions
) -> None:
    """The time is the reader's own, an hour from UTC; the fallback is chosen, and what is typed is not touched."""
    async with db.begin() as session:
        moment = (await session.get_one(Model, models["fake-8b"])).created_at.replace(
            year=2100, month=1, day=1, hour=12, minute=30
        )
    asked = await chat.ask("Hello")
    await chat.ended(asked)
    changes: dict[str, dict[str, Any]] = {
        "retired": {"retired_at": moment},
        "group": {"group": lab},
        "published": {"published": False},
        "maintenance": {"maintenance_until": moment},
    }

    await rule("fake-8b", fallback_id=models["fake-70b"], **changes[what])
    page = await chat.browser.get(asked.address)
    sent = await chat.browser.send("And now?", model=UUID(chosen(page)), to=asked.address)
    after = await chat.browser.get(asked.address)

    assert notice(page) == f"{words} This conversation goes on with “fake-70b”."
    assert chosen(page) == str(models["fake-70b"])
    assert 'aria-label="fake-8b"' in page.text, "old answers keep the name"
    assert sent.status_code == 200
    assert notice(after) == ""


async def test_a_model_in_maintenance_can_be_seen_and_not_chosen(chat: Chat, rule: Rule, db: Sessions) -> None:
    async with db.begin() as session:
        until = (await session.scalars(select(Model.created_at))).first()
    assert until

    await rule("fake-70b", maintenance_until=until.replace(year=2100))
    page = await chat.browser.get("/")

    assert choices(page) == ["fake-8b", "fake-70b"]
    assert re.search(
        r" disabled>(?:<i[^>]*></i>)?<span>fake-70b <small>Under maintenance until \d+ \w+ 2100,", page.text
    )


async def test_without_any_model_the_page_says_so(chat: Chat, rule: Rule, lab: Group) -> None:
    asked = await chat.ask("Hello")
    await chat.ended(asked)
    for name in ("fake-8b", "fake-70b"):
        await rule(name, group=lab)

    page = await chat.browser.get(asked.address)

    assert notice(page) == "“fake-8b” is not here any more. There is no other model for you."
    assert "There is no model yet." in page.text


async def test_a_new_chat_begins_with_ones_own_default(
    chat: Chat, models: dict[str, UUID], site: Site, alice: User
) -> None:
    before = chosen(await chat.browser.get("/"))
    async with site.sessions.begin() as session:
        await publishing.choose_default(session, models["fake-70b"], person_id=alice.id)
    await site.registry.reload()

    assert before == str(models["fake-8b"])
    assert chosen(await chat.browser.get("/")) == str(models["fake-70b"])


async def test_settings_of_answers_are_taken_from_the_message_box(
    chat: Chat, rule: Rule, engine: FakeEngine, models: dict[str, UUID], db: Sessions
) -> None:
    await rule("fake-8b", adjustable=["temperature", "max_tokens"], color="plum")
    fields: dict[str, Any] = {"adjusts": "1", "temperature": "0,2", "max_tokens": "64", "thinking": "", "json": "1"}

    refused = await chat.browser.send("Hello", model=chat.model, **fields | {"temperature": "9"})
    begun = await chat.browser.send("Hello", model=chat.model, **fields)
    address = begun.headers["hx-push-url"]
    await chat.browser.read(stream_of(begun.text))
    again = await chat.browser.send("More", model=chat.model, to=address)
    await chat.browser.read(stream_of(again.text))
    page = await chat.browser.get(address)

    assert refused.status_code == 422
    assert "The temperature is a number from 0 to 2." in refused.text
    bodies = [question.body for question in engine.questions]
    assert [(body["temperature"], body["max_tokens"]) for body in bodies] == [(0.2, 64), (0.2, 64)]
    assert "response_format" not in bodies[0], "the model does not leave that to people"
    assert 'name="temperature"' in again.text
    assert 'value="0.2"' in page.text
    assert "Settings temperature 0.2, at most 64 tokens" in visible(page.text)
    assert 'data-adjusts="max_tokens temperature"' in page.text
    assert page.text.count('<i class="mark plum"></i>') >= 3, "beside both answers, and in the picker"
    async with db.as_worker() as session:
        stored = (await session.scalars(select(Message).where(Message.model_id == chat.model))).all()
    assert [message.parameters for message in stored] == [{"temperature": 0.2, "max_tokens": 64, "json": True}] * 2

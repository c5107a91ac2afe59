"""A title is worth less than any answer: it waits, makes way, and fails in silence."""

import asyncio
import logging
import time
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import given, settings, strategies as st

from backend.conversations import service, titles
from backend.conversations.asking import Turn
from backend.conversations.models import Conversation, Status, TitleSource
from backend.conversations.titles import MAX_LENGTH, first_words, tidy
from tests.conversations.conftest import Desk
from tests.fakes.engine import HANG, HANG_UP, FakeEngine, Pause, Thought, refusal


@pytest.fixture
def titles_enabled() -> bool:
    return True


async def titled(desk: Desk, turn: Turn) -> Conversation:
    """The conversation, once no title is being made for it any more."""
    async with asyncio.timeout(5):
        while desk.turns.live(turn.answer.id) or desk.titles.is_pending(turn.conversation.id):
            await asyncio.sleep(0.01)
    return await desk.conversation(turn.conversation.id)


async def test_the_first_words_are_the_title_until_the_model_has_a_moment(desk: Desk, engine: FakeEngine) -> None:
    go_on = asyncio.Event()
    engine.title_script = ("Capitals ", go_on, "of Europe")

    turn = await desk.ask("What is the capital of France?")
    at_once = turn.conversation.title
    await desk.ended(turn)
    await engine.until(lambda fake: len(fake.titles) == 1)
    go_on.set()
    chat = await titled(desk, turn)

    assert at_once == "What is the capital of France?"
    assert (chat.title, chat.title_source) == ("Capitals of Europe", TitleSource.MODEL)


async def test_a_title_is_a_small_request_about_the_first_exchange(desk: Desk, engine: FakeEngine) -> None:
    engine.script = ("Paris. ", "y" * 5_000)

    await titled(desk, await desk.ask("What is the capital of France? " + "x" * 5_000))

    (asked,) = engine.titles
    assert asked.body["model"] == engine.questions[0].body["model"]
    assert (asked.body["max_tokens"], asked.body["temperature"]) == (32, 0)
    assert asked.body["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False}
    assert "What is the capital of France?" in asked.last_text
    assert "Paris." in asked.last_text
    assert len(asked.last_text) < 3_500


async def test_a_title_is_counted_as_what_it_is(desk: Desk, owner_url: str) -> None:
    await titled(desk, await desk.ask("Hello"))

    with psycopg.connect(owner_url) as connection:
        rows = connection.execute("SELECT cause, user_id, message_id IS NULL FROM usage ORDER BY id").fetchall()

    assert rows == [("chat", desk.owner.id, False), ("title", desk.owner.id, True)]


async def test_one_title_is_made_for_a_conversation(desk: Desk, engine: FakeEngine) -> None:
    first = await desk.ask("One?")
    await titled(desk, first)

    await titled(desk, await desk.ask("Two?", first.conversation))

    assert len(engine.titles) == 1


async def test_an_answer_that_failed_gives_no_title_and_the_next_one_does(desk: Desk, engine: FakeEngine) -> None:
    engine.plan(refusal(500, "no"))
    failed = await desk.ask("One?")
    assert (await desk.ended(failed)).status is Status.FAILED
    assert (await titled(desk, failed)).title_source is TitleSource.FIRST_WORDS
    assert engine.titles == []

    chat = await titled(desk, await desk.ask("Two?", failed.conversation))

    assert chat.title_source is TitleSource.MODEL


class TestSwitchedOff:
    @pytest.fixture
    def titles_enabled(self) -> bool:
        return False

    async def test_nothing_is_asked_for(self, desk: Desk, engine: FakeEngine) -> None:
        """ENG-05: not one call more."""
        chat = await titled(desk, await desk.ask("What is the capital of France?"))

        assert (chat.title, chat.title_source) == ("What is the capital of France?", TitleSource.FIRST_WORDS)
        assert len(engine.requests) == 1


# It fails in silence


@pytest.mark.parametrize(
    "script",
    [
        refusal(500, "EngineCore encountered an issue."),
        refusal(400, "This model's maximum context length is 10 tokens."),
        ("A sho", HANG_UP),
        (Thought("what could I call it"),),
        ("\n \n",),
        ('"**"',),
        (),
    ],
)
async def test_nobody_hears_of_a_title_that_failed(
    desk: Desk, engine: FakeEngine, script: object, caplog: pytest.LogCaptureFixture
) -> None:
    engine.title_script = script  # type: ignore[assignment]
    turn = await desk.ask("Hello there")

    chat = await titled(desk, turn)

    assert (chat.title, chat.title_source) == ("Hello there", TitleSource.FIRST_WORDS)
    assert len(engine.titles) == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert (await desk.ended(await desk.ask("And now?", turn.conversation))).status is Status.DONE


async def test_a_title_that_takes_too_long_is_given_up(
    desk: Desk, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(titles, "_SECONDS", 0.1)
    engine.title_script = HANG

    chat = await titled(desk, await desk.ask("Hello there"))

    assert chat.title == "Hello there"
    await engine.until(lambda fake: len(fake.aborted) == 1)


# It never overwrites


async def test_a_name_that_a_person_gave_stays(desk: Desk, engine: FakeEngine) -> None:
    """Also when it is given while the model is just thinking of one."""
    go_on = asyncio.Event()
    engine.title_script = ("A worse ", go_on, "title")
    turn = await desk.ask("Hello")
    await engine.until(lambda fake: len(fake.titles) == 1)

    async with desk.db.as_person(desk.owner.id) as session:
        service.rename(await session.get_one(Conversation, turn.conversation.id), "Mine")
    go_on.set()
    chat = await titled(desk, turn)

    assert (chat.title, chat.title_source) == ("Mine", TitleSource.PERSON)


async def test_a_conversation_that_was_renamed_before_is_not_asked_about(desk: Desk, engine: FakeEngine) -> None:
    engine.hold()
    turn = await desk.ask("Hello")
    async with desk.db.as_person(desk.owner.id) as session:
        service.rename(await session.get_one(Conversation, turn.conversation.id), "Mine")

    engine.release()
    chat = await titled(desk, turn)

    assert chat.title == "Mine"
    assert engine.titles == []


async def test_a_conversation_that_was_deleted_meanwhile_does_not_come_back(
    desk: Desk, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = asyncio.Event()
    engine.title_script = ("A ", go_on, "title")
    turn = await desk.ask("Hello")
    await engine.until(lambda fake: len(fake.titles) == 1)

    async with desk.db.as_person(desk.owner.id) as session:
        await service.delete(session, await session.get_one(Conversation, turn.conversation.id))
    go_on.set()
    async with asyncio.timeout(5):
        while desk.titles.is_pending(turn.conversation.id):
            await asyncio.sleep(0.01)

    assert await desk.messages(turn.conversation.id) == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# It makes way


class TestAnEngineForOneAtATime:
    """ENG-05: such an engine, and a title that takes half a minute."""

    @pytest.fixture
    def engine(self) -> Iterator[FakeEngine]:
        with FakeEngine(seats=1) as running:
            running.title_script = (Pause(30), "Slow")
            yield running

    async def test_a_title_never_delays_an_answer(self, desk: Desk, engine: FakeEngine) -> None:
        """Neither in its own conversation nor in any other."""
        own = await desk.ask("One?")
        await desk.ended(own)
        await engine.until(lambda fake: len(fake.titles) == 1 and fake.running == 1)
        began = time.monotonic()

        await desk.ended(await desk.ask("Two?", own.conversation))
        await desk.ended(await desk.ask("In another conversation?"))

        assert time.monotonic() - began < 10, "the title would have taken thirty seconds"
        assert len(engine.aborted) >= 1

    async def test_a_title_that_made_way_is_made_later(self, desk: Desk, engine: FakeEngine) -> None:
        turn = await desk.ask("One?")
        await desk.ended(turn)
        await engine.until(lambda fake: len(fake.titles) == 1 and fake.running == 1)
        engine.title_script = ("Quick",)

        second = await desk.ask("Two?", turn.conversation)
        chat = await titled(desk, second)

        assert (await desk.message(second.answer.id)).status is Status.DONE
        assert chat.title == "Quick"
        assert len(engine.titles) == 2

    async def test_titles_wait_while_anybody_is_answered(self, desk: Desk, engine: FakeEngine) -> None:
        engine.title_script = ("Quick",)
        go_on = asyncio.Event()
        engine.script = ("Long ", go_on, "answer")
        long = await desk.ask("Something long")
        await engine.until(lambda fake: fake.running == 1)
        engine.script = ("Short.",)

        short = await desk.ask("Something short")  # waits at the engine, for there is one seat
        await asyncio.sleep(0.1)
        asked_meanwhile = len(engine.titles)
        go_on.set()
        chats = [await titled(desk, turn) for turn in (long, short)]

        assert asked_meanwhile == 0
        assert [asked.last_text for asked in engine.requests[:2]] == ["Something long", "Something short"]
        assert [chat.title for chat in chats] == ["Quick", "Quick"]


async def test_a_title_gives_up_the_place_that_an_answer_waits_for(
    desk: Desk, engine: FakeEngine, owner_url: str
) -> None:
    """The model takes one at a time, and the engine would take many."""
    with psycopg.connect(owner_url) as connection:
        connection.execute("UPDATE models SET max_concurrent = 1")
    await desk.registry.reload()
    engine.title_script = (Pause(30), "Slow")
    turn = await desk.ask("One?")
    await engine.until(lambda fake: len(fake.titles) == 1 and fake.running == 1)
    engine.title_script = ("Quick",)
    began = time.monotonic()

    second = await desk.ask("Two?", turn.conversation)
    chat = await titled(desk, second)

    assert time.monotonic() - began < 10, "the title would have taken thirty seconds"
    assert (await desk.message(second.answer.id)).status is Status.DONE
    assert chat.title == "Quick"


async def test_a_title_of_one_model_does_not_wait_for_another(desk: Desk, engine: FakeEngine) -> None:
    small, large = sorted(desk.registry.offers, key=lambda offer: offer.name != "fake-8b")
    engine.plan(("One.",))
    first = await desk.ask("One?", model_id=small.id)
    await desk.ended(first)
    engine.hold()
    held = await desk.ask("Two?", model_id=large.id)

    engine.release()
    chat = await titled(desk, first)

    assert chat.title == "A short title"
    await desk.ended(held)


async def test_leaving_ends_the_titles_that_are_being_made(desk: Desk, engine: FakeEngine) -> None:
    engine.title_script = HANG
    turn = await desk.ask("Hello")
    await engine.until(lambda fake: len(fake.titles) == 1)

    async with asyncio.timeout(1):
        await desk.titles.close()

    await engine.until(lambda fake: len(fake.aborted) == 1)
    assert (await desk.conversation(turn.conversation.id)).title == "Hello"


# What becomes of the words


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("Capitals of Europe", "Capitals of Europe"),
        ('"Capitals of Europe"', "Capitals of Europe"),
        ("“Capitals of Europe.”", "Capitals of Europe"),
        ("# Capitals of Europe\n\nSure! Here is a title.", "Capitals of Europe"),
        ("\n\n**Capitals of Europe**", "Capitals of Europe"),
        ("Title: Capitals of Europe.", "Capitals of Europe"),
        ("Capitals\tof \0 Europe", "Capitals of Europe"),
        ("<script>alert(1)</script>", "script>alert(1)</script"),  # text, as everywhere; the page escapes it
        ("Hauptstädte – und Flüsse", "Hauptstädte – und Flüsse"),
        ("", ""),
        ("  \n ", ""),
        ('"."', ""),
    ],
)
def test_a_title_is_one_plain_line(written: str, title: str) -> None:
    assert tidy(written) == title


def test_whole_sentences_are_no_title() -> None:
    """A small model may begin to answer instead; the first words are better than half of that."""
    assert tidy("Sure, I can help you with that. Here is everything that you should know about it.") == ""


@settings(deadline=None)
@given(st.text())
def test_whatever_a_model_writes_a_title_is_short_and_in_one_line(written: str) -> None:
    for title in (tidy(written), first_words(written)):
        assert len(title) <= MAX_LENGTH
        assert len(title.splitlines()) <= 1
        assert title == title.strip()
        assert "\0" not in title


def test_the_first_words_are_whole_words() -> None:
    assert first_words("  Please\ncompare  these two contracts and tell me which of them is better") == (
        "Please compare these two contracts and tell me which of…"
    )


async def test_a_title_that_waited_too_long_is_made_beside_other_answers(
    desk: Desk, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an engine that is never idle it would otherwise never come."""
    monkeypatch.setattr(titles, "_PATIENCE", -1)
    go_on = asyncio.Event()
    engine.title_script = ("Capitals ", go_on, "of Europe")
    turn = await desk.ask("What is the capital of France?")
    await engine.until(lambda fake: len(fake.titles) == 1)

    await desk.ended(await desk.ask("Something else"))
    go_on.set()
    chat = await titled(desk, turn)

    assert chat.title == "Capitals of Europe"

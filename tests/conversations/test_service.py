"""Changes to conversations that are not a turn."""

import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import psycopg
import pytest

from backend.accounts.models import User
from backend.conversations import service
from backend.conversations.models import Conversation, TitleSource
from backend.core.errors import BadInput
from tests.conversations.conftest import Desk
from tests.fakes.engine import FakeEngine


def conversation() -> Conversation:
    old = datetime(2026, 1, 1, tzinfo=UTC)
    return Conversation(id=uuid4(), title="Hello", title_source=TitleSource.FIRST_WORDS, seen_at=old, updated_at=old)


def test_a_person_gives_a_title() -> None:
    chat = conversation()

    service.rename(chat, "  My\n title\0 ")

    assert (chat.title, chat.title_source) == ("My title", TitleSource.PERSON)


def test_a_title_fits_its_column() -> None:
    chat = conversation()

    service.rename(chat, "word " * 100)

    assert len(chat.title) <= 200
    assert chat.title.endswith("word…")


@pytest.mark.parametrize("title", ["", "  ", "\n\t", "\0"])
def test_nothing_is_no_title(title: str) -> None:
    chat = conversation()

    with pytest.raises(BadInput, match="enter a title"):
        service.rename(chat, title)

    assert (chat.title, chat.title_source) == ("Hello", TitleSource.FIRST_WORDS)


def test_what_was_seen_is_not_new_any_more_and_stays_where_it_is_in_the_list() -> None:
    chat = conversation()
    before = chat.updated_at

    service.see(chat)

    assert chat.seen_at > before
    assert chat.updated_at == before


async def test_a_conversation_goes_with_all_that_is_in_it(
    desk: Desk, engine: FakeEngine, owner_url: str, bob: User
) -> None:
    """Also with a running answer, its parts and all its branches; what was used stays counted."""
    kept = await desk.ask("Keep this")
    await desk.ended(kept)
    turn = await desk.ask("Hello")
    await desk.ended(turn)
    go_on = asyncio.Event()
    engine.script = ("Half of ", go_on)
    running = await desk.ask("More", turn.conversation)
    live = desk.turns.live(running.answer.id)
    assert live is not None
    while not live.text:
        await live.news(live.version)
    await desk.turns._upkeep.save()

    async with desk.db.as_person(desk.owner.id) as session:
        await service.delete(session, await session.get_one(Conversation, turn.conversation.id))
    desk.turns.stop_all(conversation_id=turn.conversation.id)
    go_on.set()
    async with asyncio.timeout(5):
        while desk.turns.live(running.answer.id):
            await asyncio.sleep(0.01)

    with psycopg.connect(owner_url) as connection:
        left = {
            table: connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
            for table in ("conversations", "messages", "answer_parts")
        }
        counted = connection.execute("SELECT count(*) FROM usage WHERE message_id = %s", [turn.answer.id]).fetchone()
    assert left == {"conversations": (1,), "messages": (2,), "answer_parts": (0,)}
    assert counted == (1,)
    assert engine.running == 0

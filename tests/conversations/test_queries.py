"""Selects over conversations: whose rows, in which order."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.models import User
from backend.conversations import queries, tree
from backend.conversations.models import Conversation, Message, Speaker, Status, TitleSource
from backend.core.db import Sessions
from backend.core.ids import new_id

NOON = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)


def chat_of(person: User, *, minutes: int = 0, title: str = "Hello", id_: UUID | None = None) -> Conversation:
    moment = NOON + timedelta(minutes=minutes)
    return Conversation(
        id=id_ or new_id(),
        owner_id=person.id,
        title=title,
        title_source=TitleSource.FIRST_WORDS,
        updated_at=moment,
        seen_at=moment,
    )


def question_in(chat: Conversation, after: Message | None = None, text: str = "Hello") -> Message:
    return Message(
        id=new_id(),
        conversation_id=chat.id,
        owner_id=chat.owner_id,
        parent_id=after.id if after else None,
        speaker=Speaker.PERSON,
        text=text,
        status=Status.DONE,
        finished_at=NOON,
        send_key=uuid4(),
    )


def answer_to(question: Message, status: Status = Status.DONE, *, ended: int = 0, heard: int = 0) -> Message:
    return Message(
        id=new_id(),
        conversation_id=question.conversation_id,
        owner_id=question.owner_id,
        parent_id=question.id,
        speaker=Speaker.MODEL,
        text=f"to {question.text}",
        status=status,
        finished_at=None if status.running else NOON + timedelta(minutes=ended),
        heartbeat_at=NOON + timedelta(minutes=heard),
    )


async def store(db: Sessions, *rows: object) -> None:
    """One after the other, as a tree of messages has to be."""
    async with db.as_worker() as session:
        for row in rows:
            session.add(row)
            await session.flush()


async def texts(session: AsyncSession, select: Select[Message]) -> list[str]:
    return [message.text for message in await session.scalars(select)]


async def test_only_its_owner_sees_a_conversation(db: Sessions, alice: User, bob: User) -> None:
    hers, his = chat_of(alice), chat_of(bob)
    await store(db, hers, his)

    async with db.as_worker() as session:  # past row-level security: the select itself decides
        found = (await session.scalars(queries.visible_to(alice.id))).all()

    assert [chat.id for chat in found] == [hers.id]


async def test_a_message_is_found_by_all_of_its_ids_and_its_person_or_not_at_all(
    db: Sessions, alice: User, bob: User
) -> None:
    """AZN-01: neither id is trusted because the other one was checked."""
    chat, other = chat_of(alice), chat_of(alice)
    question = question_in(chat)
    await store(db, chat, other, question)

    async with db.as_worker() as session:
        found = [
            await session.scalar(queries.message_visible_to(person, conversation, message))
            for person, conversation, message in (
                (alice.id, chat.id, question.id),
                (bob.id, chat.id, question.id),
                (alice.id, other.id, question.id),
                (alice.id, chat.id, uuid4()),
            )
        ]

    assert [row.id if row else None for row in found] == [question.id, None, None, None]


# The tree


async def test_the_messages_of_a_conversation_are_all_of_them_in_order(db: Sessions, alice: User) -> None:
    chat, other = chat_of(alice), chat_of(alice)
    one = question_in(chat, text="1")
    failed, better = answer_to(one, Status.FAILED), answer_to(one)
    await store(db, chat, one, failed, better, other, question_in(other))

    async with db.as_worker() as session:
        found = (await session.scalars(queries.messages_of(chat.id))).all()
        newest = await session.scalar(queries.newest_answer_to(one.id))

    assert [message.id for message in found] == [one.id, failed.id, better.id]
    assert newest is not None
    assert newest.id == better.id


async def test_versions_are_those_of_one_speaker_after_the_same_message(db: Sessions, alice: User) -> None:
    """Without what was deleted, and the same whether all rows are at hand or only one."""
    chat = chat_of(alice)
    one, instead = question_in(chat, text="1"), question_in(chat, text="one")
    answers = [answer_to(one), answer_to(one), answer_to(one)]
    answers[1].text, answers[1].deleted_at = "", NOON
    await store(db, chat, one, instead, *answers, question_in(chat, one, text="without an answer"))

    async with db.as_worker() as session:
        messages = (await session.scalars(queries.messages_of(chat.id))).all()
        found = {each.id: (await session.scalars(queries.versions(each))).all() for each in messages}

    first, deleted, last = (answer.id for answer in answers)
    assert found[one.id] == found[instead.id] == [one.id, instead.id]
    assert found[first] == found[last] == [first, last]
    assert found[deleted] == [first, deleted, last]
    versions = tree.versions(messages)
    assert {each.id: list(versions(each)) for each in messages} == {key: list(ids) for key, ids in found.items()}


async def test_a_deleted_version_counts_while_something_that_follows_it_was_not_deleted(
    db: Sessions, alice: User
) -> None:
    """However far below; of one that only deleted messages follow, nothing is left to be reached."""
    chat = chat_of(alice)
    kept, reached, empty = (question_in(chat, text=text) for text in ("kept", "reached", "empty"))
    answers = [answer_to(each) for each in (kept, reached, empty)]
    last = question_in(chat, answers[1], text="last")
    for each in (reached, empty, *answers):
        each.text, each.deleted_at = "", NOON
    await store(db, chat, kept, reached, empty, *answers, last)

    async with db.as_worker() as session:
        messages = (await session.scalars(queries.messages_of(chat.id))).all()
        found = {each.id: (await session.scalars(queries.versions(each))).all() for each in messages}

    assert found[kept.id] == found[reached.id] == [kept.id, reached.id]
    assert found[empty.id] == [kept.id, reached.id, empty.id]
    versions = tree.versions(messages)
    assert {each.id: list(versions(each)) for each in messages} == {key: list(ids) for key, ids in found.items()}


async def test_a_title_is_made_from_the_first_two_messages(db: Sessions, alice: User) -> None:
    chat = chat_of(alice)
    one = question_in(chat, text="1")
    answer = answer_to(one)
    await store(db, chat, one, answer, question_in(chat, answer, text="2"))

    async with db.as_worker() as session:
        assert await texts(session, queries.opening(chat.id)) == ["1", "to 1"]


async def test_a_send_is_found_again_by_its_person_alone(db: Sessions, alice: User, bob: User) -> None:
    chat = chat_of(alice)
    question = question_in(chat)
    await store(db, chat, question)
    assert question.send_key is not None

    async with db.as_worker() as session:
        found = await session.scalar(queries.sent_with(alice.id, question.send_key))
        strange = await session.scalar(queries.sent_with(bob.id, question.send_key))

    assert found is not None
    assert (found.id, strange) == (question.id, None)


# The sidebar

Shown = Sequence[tuple[str, bool, bool]]


async def sidebar(db: Sessions, person: User, before: tuple[datetime, UUID] | None = None, limit: int = 50) -> Shown:
    async with db.as_person(person.id) as session:
        rows = await session.execute(queries.sidebar(person.id, before, limit))
        return [(row.title, row.running, row.unread) for row in rows]


async def test_the_sidebar_is_newest_first_and_ones_own(db: Sessions, alice: User, bob: User) -> None:
    await store(
        db,
        chat_of(alice, title="old"),
        chat_of(alice, title="new", minutes=2),
        chat_of(alice, title="newer", minutes=3),
        chat_of(bob, title="his", minutes=4),
    )

    assert await sidebar(db, alice) == [("newer", False, False), ("new", False, False), ("old", False, False)]


@pytest.mark.parametrize(
    ("status", "ended", "running", "unread"),
    [
        (Status.QUEUED, 0, True, False),
        (Status.STREAMING, 0, True, False),
        (Status.DONE, -1, False, False),
        (Status.DONE, 1, False, True),
        (Status.FAILED, 1, False, True),
        (Status.INTERRUPTED, 1, False, True),
    ],
)
async def test_the_sidebar_shows_what_is_running_and_what_came_unseen(
    db: Sessions, alice: User, status: Status, ended: int, running: bool, unread: bool
) -> None:
    chat = chat_of(alice)
    question = question_in(chat)
    await store(db, chat, question, answer_to(question, status, ended=ended))

    assert await sidebar(db, alice) == [("Hello", running, unread)]


async def test_a_question_of_ones_own_is_not_unread(db: Sessions, alice: User) -> None:
    chat = chat_of(alice, minutes=-1)
    await store(db, chat, question_in(chat))

    assert await sidebar(db, alice) == [("Hello", False, False)]


async def test_pages_of_the_sidebar_show_every_conversation_once(db: Sessions, alice: User) -> None:
    """DB-06: also where many are of the same moment, and while new ones are being added."""
    chats = [chat_of(alice, title=str(number), minutes=number // 7) for number in range(40)]
    await store(db, *chats)
    seen: list[str] = []
    before = None

    while page := await sidebar(db, alice, before, limit=6):
        seen += [title for title, _running, _unread in page]
        last = next(chat for chat in chats if chat.title == page[-1][0])
        before = last.updated_at, last.id
        await store(db, chat_of(alice, title="added meanwhile", minutes=1_000))

    assert len(seen) == 40
    assert seen == [chat.title for chat in sorted(chats, key=lambda chat: (chat.updated_at, chat.id), reverse=True)]


async def test_the_sidebar_reads_no_text_of_messages(alice: User) -> None:
    """DB-06: some conversations have megabytes."""
    statement = str(queries.sidebar(alice.id, None, 50))

    assert "messages.text" not in statement
    assert "messages.reasoning" not in statement

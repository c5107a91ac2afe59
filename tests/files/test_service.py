"""Attachments from upload to deletion, on the real database."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import delete, update

from backend.accounts.models import User
from backend.conversations.models import Conversation, Message, Speaker, Status, TitleSource
from backend.core.clock import now
from backend.core.db import Sessions
from backend.core.errors import AppError, BadInput, NotFound, TooLarge, TooMany
from backend.core.ids import new_id
from backend.files import queries, service
from backend.files.extracting import Extractor
from backend.files.models import File
from backend.files.prompt import PromptFile
from backend.files.service import CHUNK, Limits
from tests.files.samples import on_disk, pdf, picture

LIMITS = Limits(bytes=1_000_000, characters=800_000, per_message=3)

Upload = Callable[..., Awaitable[File]]
AddQuestion = Callable[[User], Awaitable[Message]]


@pytest.fixture
def upload(db: Sessions) -> Upload:
    extractor = Extractor()

    async def receive(owner: User, content: bytes = b"a,b", name: str = "data.csv", **options: str) -> File:
        with on_disk(content) as file:
            return await service.receive(db, extractor, owner.id, name, file, LIMITS, **options)

    return receive


@pytest.fixture
def add_question(db: Sessions) -> AddQuestion:
    async def add(owner: User) -> Message:
        chat = Conversation(
            id=new_id(),
            owner_id=owner.id,
            title="Hello",
            title_source=TitleSource.FIRST_WORDS,
            updated_at=now(),
            seen_at=now(),
        )
        question = Message(
            id=new_id(),
            conversation_id=chat.id,
            owner_id=owner.id,
            speaker=Speaker.PERSON,
            text="?",
            status=Status.DONE,
            finished_at=now(),
            send_key=uuid4(),
        )
        async with db.as_person(owner.id) as session:
            session.add(chat)
            await session.flush()
            session.add(question)
        return question

    return add


@pytest.fixture
def counted(owner_url: str) -> Callable[[], dict[str, int]]:
    def count() -> dict[str, int]:
        with psycopg.connect(owner_url) as connection:
            found = connection.execute(
                "SELECT (SELECT count(*) FROM files), (SELECT count(*) FROM blobs), (SELECT count(*) FROM file_chunks)"
            ).fetchone()
            assert found is not None
            return dict(zip(("files", "blobs", "chunks"), found, strict=True))

    return count


Counted = Callable[[], dict[str, int]]


async def whole(db: Sessions, file: File) -> bytes:
    return b"".join([piece async for piece in service.stream(db, file)])


async def attach(db: Sessions, owner: User, message: Message, *files: File, **options: object) -> None:
    async with db.as_person(owner.id) as session:
        await service.attach(session, owner.id, [file.id for file in files], message.id, **options)  # type: ignore[arg-type]


async def test_what_was_uploaded_comes_back_byte_for_byte(db: Sessions, alice: User, upload: Upload) -> None:
    """Also beyond one chunk, and where a child process has read the file first."""
    text = b"0123456789abcdef" * (CHUNK // 16 * 2 + 1)
    document = pdf(*["A page with some words"] * 300)
    assert len(document) > 20_000

    first, second = await upload(alice, text, "long.txt"), await upload(alice, document, "paper.pdf")

    assert await whole(db, first) == text
    assert await whole(db, second) == document
    assert (first.name, first.blob.size, first.blob.kind, first.message_id) == ("long.txt", len(text), "text", None)


async def test_the_same_bytes_are_stored_once_for_each_person(
    alice: User, bob: User, upload: Upload, counted: Counted
) -> None:
    await asyncio.gather(*(upload(alice, name=f"{number}.csv") for number in range(3)))
    await upload(bob)

    assert counted() == {"files": 4, "blobs": 2, "chunks": 2}


async def test_engines_are_shown_the_text_and_the_picture(
    db: Sessions, alice: User, upload: Upload, add_question: AddQuestion
) -> None:
    question, other = await add_question(alice), await add_question(alice)
    paper, photo = await upload(alice, pdf("Words"), "paper.pdf"), await upload(alice, picture(), "photo.gif")
    await attach(db, alice, question, photo, paper)

    async with db.as_person(alice.id) as session:
        shown = await service.for_prompt(session, [question.id, other.id])

    assert shown.keys() == {question.id}
    first, second = shown[question.id]
    assert first == PromptFile("paper.pdf", text="Words")
    assert (second.name, second.text) == ("photo.gif", None)
    assert (second.image or "").startswith("data:image/png;base64,iVBOR")


@pytest.mark.parametrize(
    ("name", "content", "kind", "sentence"),
    [
        ("empty.txt", b"", BadInput, "“empty.txt” is empty."),
        ("big.bin", b"x" * 1_000_001, TooLarge, "“big.bin” has 977 kB; the limit is 977 kB."),
        ("long.txt", b"x" * 800_001, TooLarge, "“long.txt” holds too much text: at most 800,000 characters"),
        ("a/b/old.doc", bytes(range(256)) * 9, BadInput, "“old.doc” cannot be read here. Text, PDF, Word (DOCX)"),
        ("photo.png", picture(), BadInput, "“photo.png” is a picture. “Fake 8B” cannot see pictures."),
    ],
)
async def test_a_refusal_names_the_file_and_stores_nothing(
    alice: User, upload: Upload, counted: Counted, name: str, content: bytes, kind: type[AppError], sentence: str
) -> None:
    with pytest.raises(kind) as raised:
        await upload(alice, content, name, refuse_pictures="“Fake 8B” cannot see pictures.")

    assert str(raised.value).startswith(sentence)
    assert counted() == {"files": 0, "blobs": 0, "chunks": 0}


async def test_nobody_piles_up_files_that_are_never_sent(
    alice: User, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_MOST_UNSENT", 2)
    await upload(alice)
    await upload(alice)

    with pytest.raises(TooMany):
        await upload(alice)


async def test_a_file_is_sent_once(db: Sessions, alice: User, upload: Upload, add_question: AddQuestion) -> None:
    question, other = await add_question(alice), await add_question(alice)
    file, fresh = await upload(alice), await upload(alice)
    await attach(db, alice, question, file)

    with pytest.raises(BadInput, match="was sent already"):
        await attach(db, alice, other, fresh, file)

    async with db.as_person(alice.id) as session:
        kept = (await session.scalars(queries.of_messages([question.id, other.id]))).all()
    assert [(one.id, one.message_id) for one in kept] == [(file.id, question.id)]


async def test_what_a_message_may_not_carry(
    db: Sessions, alice: User, upload: Upload, add_question: AddQuestion
) -> None:
    question = await add_question(alice)
    files = [await upload(alice) for _ in range(3)]
    photo = await upload(alice, picture(), "photo.png")

    with pytest.raises(BadInput, match="At most 2 files"):
        await attach(db, alice, question, *files, most=2)
    with pytest.raises(BadInput, match="cannot see"):
        await attach(db, alice, question, photo, refuse_pictures="“Fake 8B” cannot see pictures.")

    await attach(db, alice, question, *files, most=3, refuse_pictures="“Fake 8B” cannot see pictures.")


async def test_to_bob_a_file_of_alices_is_not_there(
    db: Sessions, alice: User, bob: User, upload: Upload, add_question: AddQuestion, counted: Counted
) -> None:
    file, question = await upload(alice), await add_question(bob)

    with pytest.raises(NotFound):
        await attach(db, bob, question, file)
    async with db.as_person(bob.id) as session:
        assert (await session.scalars(queries.visible_to(bob.id))).all() == []
        # Not even where a query forgets to ask whose it is.
        assert await session.scalar(queries.chunk(file.blob_id, 0)) is None
        assert (await session.scalars(queries.visible_to(alice.id))).all() == []
        assert await service.for_prompt(session, [question.id]) == {}
        with pytest.raises(NotFound):
            await service.remove_unsent(session, bob.id, file.id)
    with pytest.raises(NotFound):
        async with db.as_person(bob.id) as session:
            await service.remove_unsent(session, alice.id, file.id)
    assert counted()["files"] == 1


async def test_a_copy_shares_the_bytes_and_they_go_with_the_last(
    db: Sessions, alice: User, upload: Upload, add_question: AddQuestion, counted: Counted
) -> None:
    question, forked = await add_question(alice), await add_question(alice)
    await attach(db, alice, question, await upload(alice), await upload(alice, b"other", "other.md"))

    async with db.as_person(alice.id) as session:
        await service.copy(session, {question.id: forked.id})
        names = [file.name for file in await session.scalars(queries.of_messages([forked.id]))]
    assert names == ["data.csv", "other.md"]
    assert counted() == {"files": 4, "blobs": 2, "chunks": 2}

    async with db.as_person(alice.id) as session:
        await service.remove_from(session, alice.id, [question.id])
    assert counted() == {"files": 2, "blobs": 2, "chunks": 2}

    async with db.as_person(alice.id) as session:
        await session.execute(delete(Conversation).where(Conversation.id == forked.conversation_id))
        await service.free(session, alice.id)
    assert counted() == {"files": 0, "blobs": 0, "chunks": 0}


async def test_what_was_never_sent_is_forgotten_after_a_day(
    db: Sessions, alice: User, bob: User, upload: Upload, add_question: AddQuestion, counted: Counted
) -> None:
    sent, old, fresh = await upload(alice, b"1"), await upload(alice, b"2"), await upload(alice, b"3")
    await upload(bob, b"4")
    await attach(db, alice, await add_question(alice), sent)
    async with db.as_worker() as session:
        for file in (sent, old):
            await session.execute(update(File).where(File.id == file.id).values(created_at=now() - timedelta(hours=25)))

    await service.clean_up(db, now() - timedelta(days=1))

    async with db.as_person(alice.id) as session:
        left = {file.id for file in await session.scalars(queries.visible_to(alice.id))}
    assert left == {sent.id, fresh.id}
    assert counted() == {"files": 3, "blobs": 3, "chunks": 3}


async def test_with_a_person_goes_everything(
    db: Sessions, alice: User, upload: Upload, add_question: AddQuestion, counted: Counted, owner_url: str
) -> None:
    await attach(db, alice, await add_question(alice), await upload(alice))
    await upload(alice)

    with psycopg.connect(owner_url) as connection:
        connection.execute("DELETE FROM users WHERE id = %s", [alice.id])

    assert counted() == {"files": 0, "blobs": 0, "chunks": 0}


async def test_storing_and_freeing_the_same_bytes_at_once_loses_nothing(
    db: Sessions, alice: User, upload: Upload
) -> None:
    """Twenty times the last file goes while the same one comes again."""

    async def remove(file_id: UUID) -> None:
        async with db.as_person(alice.id) as session:
            await service.remove_unsent(session, alice.id, file_id)

    last = await upload(alice)
    for _ in range(20):
        last, _none = await asyncio.gather(upload(alice), remove(last.id))

        assert await whole(db, last) == b"a,b"

"""Taking one's data along: one archive with everything that is kept of a person, made while it is read.

    about.json             the account, its groups, keys and browsers
    conversations.jsonl    one conversation a line, with all its messages, also those of other branches
    usage.jsonl            what was counted, one answer a line
    files/…                attachments, under the ids by which the messages name them

No transaction is open while a slow reader takes the archive: each conversation and each piece of a file is read in one
of its own. Secrets are not in it; of keys and sessions nothing is kept that could be handed out.
"""

import json
import zipfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import joinedload

from backend.accounts import queries as people
from backend.accounts.models import LoginSession, User
from backend.audit import service as audit
from backend.audit.service import Action, Target
from backend.conversations.models import Conversation, Message
from backend.core.clock import now
from backend.core.db import Base, Sessions
from backend.core.errors import NotFound, TooMany
from backend.core.i18n import _
from backend.files import service as attachments
from backend.files.models import File
from backend.groups import queries as groups
from backend.keys.models import ApiKey
from backend.privacy.models import Export
from backend.usage.models import UsageRecord

MOST_AN_HOUR: Final = 6

_HIDDEN: Final = frozenset(
    {"password_hash", "digest", "token_digest", "owner_id", "user_id", "attempt", "heartbeat_at", "send_key"}
)
_AT_A_TIME: Final = 500  # rows of the ledger


async def note(session: AsyncSession, person_id: UUID) -> None:
    """Count one export. Raises TooMany."""
    await session.scalar(people.held(person_id))  # two at once count one after the other
    since = now() - timedelta(hours=1)
    mine = select(func.count(), func.min(Export.created_at)).where(
        Export.user_id == person_id, Export.created_at > since
    )
    count, first = (await session.execute(mine)).one()
    if count >= MOST_AN_HOUR:
        wait = max(1, round((first - since).total_seconds()))
        sentence = _("You have taken your data along {count} times within an hour. Try again in {minutes} minutes.")
        raise TooMany(sentence.format(count=count, minutes=wait // 60 + 1), retry_after=wait)
    session.add(Export(user_id=person_id))
    await audit.record(session, Action.DATA_EXPORTED, Target("person", person_id))
    await session.flush()


async def archive(db: Sessions, person_id: UUID) -> AsyncIterator[bytes]:
    """The bytes of a ZIP file, as they come."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as made:
        async with db.as_person(person_id) as session:
            about = await _about(session, person_id)
        made.writestr("about.json", json.dumps(about, indent=2, ensure_ascii=False))
        async for piece in _lines(made, sink, "conversations.jsonl", _conversations(db, person_id)):
            yield piece
        async for piece in _lines(made, sink, "usage.jsonl", _usage(db, person_id)):
            yield piece
        async for piece in _files(made, sink, db, person_id):
            yield piece
    yield sink.taken()


class _Sink:
    """Where the archive is written to; what was written is taken out again, so that it is never there as a whole."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes, /) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def taken(self) -> bytes:
        found, self._pieces = b"".join(self._pieces), []
        return found


async def _lines(
    made: zipfile.ZipFile, sink: _Sink, name: str, rows: AsyncIterator[Mapping[str, Any]]
) -> AsyncIterator[bytes]:
    with made.open(name, "w") as entry:
        async for row in rows:
            entry.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            yield sink.taken()


async def _files(made: zipfile.ZipFile, sink: _Sink, db: Sessions, person_id: UUID) -> AsyncIterator[bytes]:
    async with db.as_person(person_id) as session:
        mine = select(File).where(File.owner_id == person_id).options(joinedload(File.blob)).order_by(File.id)
        files = (await session.scalars(mine)).all()
    for file in files:
        with made.open(f"files/{file.id}-{_plain(file.name)}", "w", force_zip64=True) as entry:
            with suppress(NotFound):  # deleted meanwhile
                async for piece in attachments.stream(db, file):
                    entry.write(piece)
                    yield sink.taken()


async def _about(session: AsyncSession, person_id: UUID) -> dict[str, Any]:
    person = await session.scalar(people.person(person_id))
    joined = await session.execute(groups.of_person(person_id))
    keys = select(ApiKey).where(ApiKey.owner_id == person_id).order_by(ApiKey.id)
    browsers = select(LoginSession).where(LoginSession.user_id == person_id).order_by(LoginSession.id)
    return {
        "account": _row(person) if isinstance(person, User) else {},
        "groups": [{"name": group.name, "source": source.value} for group, source in joined],
        "keys": [_row(key) for key in await session.scalars(keys)],
        "sessions": [_row(browser) for browser in await session.scalars(browsers)],
    }


async def _conversations(db: Sessions, person_id: UUID) -> AsyncIterator[dict[str, Any]]:
    async with db.as_person(person_id) as session:
        mine = select(Conversation.id).where(Conversation.owner_id == person_id).order_by(Conversation.id)
        ids = (await session.scalars(mine)).all()
    for conversation_id in ids:
        async with db.as_person(person_id) as session:
            own = Conversation.owner_id == person_id
            conversation = await session.scalar(select(Conversation).where(own, Conversation.id == conversation_id))
            of_it = Message.owner_id == person_id, Message.conversation_id == conversation_id
            messages = (await session.scalars(select(Message).where(*of_it).order_by(Message.id))).all()
            attached = select(File.id, File.message_id).where(
                File.owner_id == person_id, File.message_id.in_([message.id for message in messages])
            )
            files: dict[UUID | None, list[str]] = {}
            for file_id, message_id in await session.execute(attached):
                files.setdefault(message_id, []).append(str(file_id))
        if conversation is None:
            continue  # deleted meanwhile
        yield _row(conversation) | {
            "messages": [_row(message) | {"files": files.get(message.id, [])} for message in messages]
        }


async def _usage(db: Sessions, person_id: UUID) -> AsyncIterator[dict[str, Any]]:
    last = UUID(int=0)
    while True:
        async with db.as_person(person_id) as session:
            mine = select(UsageRecord).where(UsageRecord.user_id == person_id, UsageRecord.id > last)
            rows = (await session.scalars(mine.order_by(UsageRecord.id).limit(_AT_A_TIME))).all()
        for row in rows:
            yield _row(row)
        if len(rows) < _AT_A_TIME:
            return
        last = rows[-1].id


def _row(row: Base) -> dict[str, Any]:
    """Everything but what is nobody's business, and what says only whose it is."""
    return {
        column.key: _plain_value(getattr(row, column.key))
        for column in row.__mapper__.column_attrs
        if column.key not in _HIDDEN
    }


def _plain_value(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, list):
        return [_plain_value(each) for each in value]
    return value


def _plain(name: str) -> str:
    """A name that leads nowhere else when the archive is unpacked."""
    return "".join(_allowed(name))[:100].lstrip(".") or "file"


def _allowed(name: str) -> Iterator[str]:
    for letter in name:
        yield letter if letter.isalnum() or letter in " .-_()" else "_"

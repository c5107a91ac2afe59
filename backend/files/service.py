"""Attachments from upload to the last message that carries them.

A person's bytes are stored once, under their digest. Whatever stores, copies or frees them holds the person's lock
(`_hold`), because "nobody uses these bytes any more" and "the same bytes come once more" may happen together.
"""

import asyncio
import base64
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import IO
from uuid import UUID

from sqlalchemy import delete, exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm.attributes import set_committed_value

from backend.core import locks
from backend.core.db import Sessions
from backend.core.errors import BadInput, NotFound, TooLarge, TooMany
from backend.core.i18n import _, ngettext
from backend.core.ids import new_id
from backend.files import queries
from backend.files.extracting import Extractor, Found, explain
from backend.files.models import Blob, File, FileChunk
from backend.files.names import human_size, safe_name
from backend.files.problems import Problem, Unreadable
from backend.files.prompt import PromptFile

CHUNK = 256 * 1024
_MOST_UNSENT = 50  # of one person: more is not somebody writing a message


@dataclass(frozen=True)
class Limits:
    """What a deployment allows: `PARLEY_FILE_BYTES`, `PARLEY_FILE_CHARACTERS`, `PARLEY_FILES_PER_MESSAGE`."""

    bytes: int
    characters: int
    per_message: int


async def receive(
    sessions: Sessions,
    extractor: Extractor,
    owner_id: UUID,
    name: str,
    content: IO[bytes],
    limits: Limits,
    *,
    refuse_pictures: str | None = None,
) -> File:
    """Read an uploaded file and store it, unsent. Raises BadInput, TooLarge or TooMany with a sentence that names it.

    No transaction is open while the file is read, however long that takes. `content` is a real file.
    """
    name = safe_name(name)
    size = await asyncio.to_thread(content.seek, 0, 2)
    if not size:
        raise BadInput(_("“{name}” is empty.").format(name=name))
    if size > limits.bytes:
        raise TooLarge(
            _("“{name}” has {size}; the limit is {limit}.").format(
                name=name, size=human_size(size), limit=human_size(limits.bytes)
            )
        )
    try:
        found = await extractor.read(content, limits.characters, owner_id)
    except Unreadable as error:
        raised = TooLarge if error.problem in (Problem.LONG, Problem.PIXELS, Problem.UNPACKS) else BadInput
        raise raised(explain(error.problem, name, limits.characters)) from error
    if found.kind.is_picture and refuse_pictures:
        raise BadInput(_("“{name}” is a picture.").format(name=name) + " " + refuse_pictures)
    if found.content is not None:
        content = BytesIO(found.content)
    async with sessions.as_person(owner_id) as session:
        return await _store(session, owner_id, name, content, found)


async def attach(
    session: AsyncSession,
    owner_id: UUID,
    file_ids: Sequence[UUID],
    message_id: UUID,
    *,
    most: int | None = None,
    refuse_pictures: str | None = None,
) -> list[File]:
    """Give unsent files to a message that was just written, in the order of their upload.

    Raises NotFound for what is not there or not this person's, BadInput for what was sent already, for more than
    `most`, and with `refuse_pictures` (a sentence, see `sight.refusal`) for a picture. Of two sends at once one wins.
    """
    wanted = set(file_ids)
    if not wanted:
        return []
    if most is not None and len(wanted) > most:
        sentence = ngettext(
            "At most {most} file can be sent with a message.",
            "At most {most} files can be sent with a message.",
            most,
        )
        raise BadInput(sentence.format(most=most))
    given = update(File).where(File.owner_id == owner_id, File.id.in_(wanted), File.message_id.is_(None))
    taken = set(await session.scalars(given.values(message_id=message_id).returning(File.id)))
    if taken != wanted:
        rest = await session.scalars(queries.visible_to(owner_id).where(File.id.in_(wanted - taken)))
        sent = rest.first()
        if sent is not None:
            raise BadInput(_("“{name}” was sent already. Attach it again.").format(name=sent.name))
        raise NotFound(_("An attached file is no longer here. Remove it and attach it again."))
    files = list(await session.scalars(queries.of_messages([message_id])))
    if refuse_pictures and any(file.blob.kind.is_picture for file in files):
        raise BadInput(refuse_pictures)
    return files


async def copy(session: AsyncSession, copies: Mapping[UUID, UUID]) -> int:
    """What one message carries, another carries too: new rows for the same bytes. `copies` leads from one to the
    other, and all are of one person. Returns how many files it were."""
    files = (await session.scalars(queries.of_messages(copies))).all()
    if not files:
        return 0
    await _hold(session, files[0].owner_id)
    session.add_all(
        File(
            id=new_id(),
            owner_id=file.owner_id,
            blob_id=file.blob_id,
            message_id=copies[file.message_id],
            name=file.name,
        )
        for file in files
        if file.message_id
    )
    await session.flush()
    return len(files)


async def remove_unsent(session: AsyncSession, owner_id: UUID, file_id: UUID) -> None:
    """Raises NotFound for what is not there, not this person's, or part of a message by now."""
    gone = await session.scalar(
        delete(File).where(File.owner_id == owner_id, File.id == file_id, File.message_id.is_(None)).returning(File.id)
    )
    if gone is None:
        raise NotFound(_("There is no file here that could be removed."))
    await free(session, owner_id)


async def remove_from(session: AsyncSession, owner_id: UUID, message_ids: Iterable[UUID]) -> None:
    """These messages carry nothing any more: they were deleted, or emptied."""
    await session.execute(delete(File).where(File.owner_id == owner_id, File.message_id.in_(list(message_ids))))
    await free(session, owner_id)


async def free(session: AsyncSession, owner_id: UUID) -> None:
    """Delete the bytes that none of this person's files uses any more. Call it after rows were deleted."""
    await _hold(session, owner_id)
    await session.execute(delete(Blob).where(Blob.owner_id == owner_id, ~exists().where(File.blob_id == Blob.id)))


async def clean_up(sessions: Sessions, before: datetime) -> None:
    """Forget what was uploaded earlier than `before` and never sent, and all bytes without a file."""
    async with sessions.as_worker() as session:
        await session.execute(delete(File).where(File.message_id.is_(None), File.created_at < before))
        owners = (await session.scalars(queries.owners_of_unused())).all()
    for owner_id in owners:  # each in a transaction of its own, so that nobody's upload waits for all of them
        async with sessions.as_worker() as session:
            await free(session, owner_id)


async def for_prompt(session: AsyncSession, message_ids: Iterable[UUID]) -> dict[UUID, list[PromptFile]]:
    """What these messages carry, as engines are shown it; messages without files are not in it."""
    files = (await session.scalars(queries.of_messages(message_ids, with_text=True))).all()
    pictures = await _contents(session, {file.blob_id for file in files if file.blob.kind.is_picture})
    carried: dict[UUID, list[PromptFile]] = defaultdict(list)
    for file in files:
        assert file.message_id is not None
        image = None
        if file.blob.kind.is_picture:
            image = f"data:image/{file.blob.kind};base64,{base64.b64encode(pictures[file.blob_id]).decode()}"
        carried[file.message_id].append(PromptFile(file.name, file.blob.text, image))
    return dict(carried)


async def stream(sessions: Sessions, file: File) -> AsyncIterator[bytes]:
    """The bytes of a file. However slowly they are taken, no connection is held in between."""
    for number in range(-(-file.blob.size // CHUNK)):
        async with sessions.as_person(file.owner_id) as session:
            piece = await session.scalar(queries.chunk(file.blob_id, number))
        if piece is None:
            raise NotFound(_("This file was deleted meanwhile."))
        yield piece


async def _store(session: AsyncSession, owner_id: UUID, name: str, content: IO[bytes], found: Found) -> File:
    digest = await asyncio.to_thread(_digest, content)
    await _hold(session, owner_id)
    if (await session.scalar(queries.unsent(owner_id)) or 0) >= _MOST_UNSENT:
        raise TooMany(_("Too many files wait to be sent. Send or remove some of them first."))
    blob = await session.scalar(queries.same(owner_id, digest))
    if blob is None:
        blob = Blob(
            id=new_id(),
            owner_id=owner_id,
            digest=digest,
            size=await asyncio.to_thread(content.seek, 0, 2),
            kind=found.kind,
            text=found.text,
            width=found.width,
            height=found.height,
        )
        session.add(blob)
        await session.flush()
        await asyncio.to_thread(content.seek, 0)
        number = 0
        while piece := await asyncio.to_thread(content.read, CHUNK):
            await session.execute(insert(FileChunk).values(blob_id=blob.id, number=number, content=piece))
            number += 1
    file = File(id=new_id(), owner_id=owner_id, blob_id=blob.id, name=name)
    session.add(file)
    await session.flush()
    set_committed_value(file, "blob", blob)
    return file


async def _contents(session: AsyncSession, blob_ids: set[UUID]) -> dict[UUID, bytes]:
    pieces: dict[UUID, list[bytes]] = defaultdict(list)
    if blob_ids:
        for blob_id, piece in await session.execute(queries.chunks(blob_ids)):
            pieces[blob_id].append(piece)
    return {blob_id: b"".join(found) for blob_id, found in pieces.items()}


async def _hold(session: AsyncSession, owner_id: UUID) -> None:
    """Until this transaction ends, nobody else stores, copies or frees bytes of this person."""
    # Longer than other locks are waited for: a large file takes a second or two to be stored.
    await session.execute(select(func.set_config("lock_timeout", "9s", True)))
    await locks.hold(session, f"files {owner_id}")


def _digest(content: IO[bytes]) -> bytes:
    content.seek(0)
    found = hashlib.sha256()
    while piece := content.read(CHUNK):
        found.update(piece)
    return found.digest()

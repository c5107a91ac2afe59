"""Selects over attachments. Access is part of the select, as with conversations."""

from collections.abc import Iterable
from uuid import UUID

from sqlalchemy import Select, any_, exists, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import contains_eager, defer
from sqlalchemy.types import Uuid

from backend.files.models import Blob, File, FileChunk


def visible_to(person_id: UUID) -> Select[File]:
    """Every file this person may see, each with its blob, but without the text."""
    return _with_blob().where(File.owner_id == person_id)


def of_messages(message_ids: Iterable[UUID], *, with_text: bool = False) -> Select[File]:
    """What these messages carry, in the order it was attached. Whose messages they are was decided before."""
    wanted = literal(list(message_ids), ARRAY(Uuid))
    return _with_blob(with_text=with_text).where(File.message_id == any_(wanted)).order_by(File.id)


def _with_blob(*, with_text: bool = False) -> Select[File]:
    blob = contains_eager(File.blob)
    return select(File).join(File.blob).options(blob if with_text else blob.defer(Blob.text, raiseload=True))


def chunks(blob_ids: Iterable[UUID]) -> Select[UUID, bytes]:
    return (
        select(FileChunk.blob_id, FileChunk.content)
        .where(FileChunk.blob_id == any_(literal(list(blob_ids), ARRAY(Uuid))))
        .order_by(FileChunk.blob_id, FileChunk.number)
    )


def chunk(blob_id: UUID, number: int) -> Select[bytes]:
    return select(FileChunk.content).where(FileChunk.blob_id == blob_id, FileChunk.number == number)


def unsent(person_id: UUID) -> Select[int]:
    """How many files of this person wait to be sent."""
    return select(func.count()).select_from(File).where(File.owner_id == person_id, File.message_id.is_(None))


def owners_of_unused() -> Select[UUID]:
    """Whose bytes are used by no file any more."""
    return select(Blob.owner_id).where(~exists().where(File.blob_id == Blob.id)).distinct()


def same(person_id: UUID, digest: bytes) -> Select[Blob]:
    return (
        select(Blob).options(defer(Blob.text, raiseload=True)).where(Blob.owner_id == person_id, Blob.digest == digest)
    )

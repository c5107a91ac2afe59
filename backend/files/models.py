"""Attachments: what a message carries, and the bytes behind it, which a person has once however often they are used."""

from enum import StrEnum
from uuid import UUID

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from backend.core.db import Base, Row, words

MAX_NAME = 150


class Kind(StrEnum):
    """What a file is by its content; the name is not asked."""

    TEXT = "text"
    PDF = "pdf"
    DOCX = "docx"
    PNG = "png"
    JPEG = "jpeg"

    @property
    def is_picture(self) -> bool:
        return self in (Kind.PNG, Kind.JPEG)


class Blob(Row):
    """Bytes, and what was read from them once. A picture is the one we made, not the one that was sent."""

    __tablename__ = "blobs"
    __table_args__ = (
        UniqueConstraint("id", "owner_id"),
        UniqueConstraint("owner_id", "digest", name="uq_blobs_digest"),
        CheckConstraint("(kind IN ('png', 'jpeg')) = (text IS NULL)", name="document_has_text"),
        CheckConstraint("(text IS NULL) = (width IS NOT NULL AND height IS NOT NULL)", name="picture_has_size"),
    )

    owner_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    digest: Mapped[bytes] = mapped_column(LargeBinary(32))  # SHA-256
    size: Mapped[int]  # bytes
    kind: Mapped[Kind] = mapped_column(words(Kind, "kind"))
    text: Mapped[str | None]  # of a document: what engines are shown
    width: Mapped[int | None]
    height: Mapped[int | None]


class FileChunk(Base):
    """A piece of a blob, small enough that a slow reader holds neither much memory nor a transaction."""

    __tablename__ = "file_chunks"

    blob_id: Mapped[UUID] = mapped_column(ForeignKey("blobs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    content: Mapped[bytes] = mapped_column(LargeBinary)


class File(Row):
    """One attachment. Without a message it was uploaded and is not sent yet; ids grow, so they give the order."""

    __tablename__ = "files"
    __table_args__ = (
        ForeignKeyConstraint(  # nobody's file points at another's bytes; bytes in use cannot be deleted
            ["blob_id", "owner_id"], ["blobs.id", "blobs.owner_id"], name="fk_files_blob"
        ),
        Index("ix_files_message_id", "message_id"),
        Index("ix_files_blob_id", "blob_id"),
        Index("ix_files_owner_id", "owner_id"),
        Index("ix_files_unsent", "created_at", postgresql_where=text("message_id IS NULL")),
    )

    owner_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    blob_id: Mapped[UUID]
    message_id: Mapped[UUID | None] = mapped_column(ForeignKey("messages.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(String(MAX_NAME))

    blob: Mapped[Blob] = relationship(lazy="raise", viewonly=True)

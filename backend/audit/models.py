"""What was done, in a chain. Names and addresses of people are in a table of their own, which can be erased."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Index, LargeBinary, String
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from backend.audit.acting import Via
from backend.core.clock import now
from backend.core.db import Base, words

MAX_NAME = 200  # of a target


class AuditEvent(Base):
    """The role of the app may add and read these, and neither change nor delete them (`migrations/`)."""

    __tablename__ = "audit_events"
    __table_args__ = (
        Index("ix_audit_events_actor_id", "actor_id", "number"),
        Index("ix_audit_events_target_id", "target_id", "number"),
        Index("ix_audit_events_action", "action", "number"),
    )

    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)  # without gaps
    at: Mapped[datetime] = mapped_column(index=True)
    via: Mapped[Via] = mapped_column(words(Via, "via"))
    actor_id: Mapped[UUID | None]  # no foreign key: who is gone has still done it
    address: Mapped[str] = mapped_column(String(64))
    action: Mapped[str] = mapped_column(String(60))
    target_kind: Mapped[str] = mapped_column(String(40))
    target_id: Mapped[UUID | None]
    target_name: Mapped[str] = mapped_column(String(MAX_NAME))
    before: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    after: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    key_id: Mapped[bytes] = mapped_column(LargeBinary(4))  # which secret the mac was made with
    mac: Mapped[bytes] = mapped_column(LargeBinary(32))


class AuditName(Base):
    """As somebody was called when they last did something, or something was done to them."""

    __tablename__ = "audit_names"

    person_id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(100))
    email: Mapped[str] = mapped_column(String(254))


class AuditAnchor(Base):
    """Where the chain begins since its oldest part was removed; signed, so that nobody else can say so."""

    __tablename__ = "audit_anchors"

    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)  # of the last one removed
    mac: Mapped[bytes] = mapped_column(LargeBinary(32))
    at: Mapped[datetime] = mapped_column(default=now)
    key_id: Mapped[bytes] = mapped_column(LargeBinary(4))
    signature: Mapped[bytes] = mapped_column(LargeBinary(32))

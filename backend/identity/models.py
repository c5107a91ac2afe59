"""Where the company keeps its people, and who of them is who here."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, LargeBinary, String, UniqueConstraint
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from backend.accounts.models import LoginSession, User
from backend.core.db import Base, Row, words
from backend.groups.models import Group


class Kind(StrEnum):
    OIDC = "oidc"


class Source(StrEnum):
    DATABASE = "database"
    DEPLOYMENT = "deployment"  # from `PARLEY_OIDC`: shown, and not changed in the pages


class IdentityProvider(Row):
    __tablename__ = "identity_providers"
    __table_args__ = (CheckConstraint("slug ~ '^[a-z0-9][a-z0-9-]*$'", name="slug"),)

    slug: Mapped[str] = mapped_column(String(40), unique=True)  # in the addresses that the provider knows
    name: Mapped[str] = mapped_column(String(80), unique=True)
    kind: Mapped[Kind] = mapped_column(words(Kind, "kind"))
    source: Mapped[Source] = mapped_column(words(Source, "source"))
    enabled: Mapped[bool]
    issuer: Mapped[str] = mapped_column(String(500))
    client_id: Mapped[str] = mapped_column(String(500))
    sealed_secret: Mapped[bytes | None] = mapped_column(LargeBinary)
    rules: Mapped[dict[str, Any]] = mapped_column(JSONB)  # see `rules.py`


class Identity(Row):
    """A person as a provider knows them. By issuer and subject, which never change hands; by no address."""

    __tablename__ = "identities"
    __table_args__ = (UniqueConstraint("issuer", "subject"),)

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), index=True)
    issuer: Mapped[str] = mapped_column(String(500))
    subject: Mapped[str] = mapped_column(String(255))
    last_used_at: Mapped[datetime | None]


class IdentitySession(Base):
    """Which session a provider opened, so that it can end it."""

    __tablename__ = "identity_sessions"

    session_id: Mapped[UUID] = mapped_column(ForeignKey(LoginSession.id, ondelete="CASCADE"), primary_key=True)
    identity_id: Mapped[UUID] = mapped_column(ForeignKey(Identity.id, ondelete="CASCADE"), index=True)
    provider_id: Mapped[UUID | None] = mapped_column(ForeignKey(IdentityProvider.id, ondelete="SET NULL"), index=True)
    sid: Mapped[str | None] = mapped_column(String(255))  # what the provider calls the session


class SpentToken(Base):
    """What may be used once: states of sign-ins and logout tokens, by digest, until they would not be taken anyway."""

    __tablename__ = "spent_tokens"

    digest: Mapped[bytes] = mapped_column(LargeBinary(32), primary_key=True)
    expires_at: Mapped[datetime] = mapped_column(index=True)


class DirectoryGroup(Row):
    """A group that is filled from elsewhere, and what it is called there."""

    __tablename__ = "directory_groups"
    __table_args__ = (UniqueConstraint("origin", "external_name"),)

    group_id: Mapped[UUID] = mapped_column(ForeignKey(Group.id, ondelete="CASCADE"), index=True)
    origin: Mapped[str] = mapped_column(String(500))  # an issuer
    external_name: Mapped[str] = mapped_column(String(255))

"""Keys with which a person's programs use the API in their name."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, LargeBinary, String, Uuid, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from backend.accounts.models import User
from backend.core.db import Row


class Scope(StrEnum):
    """What a key is for."""

    MODELS = "models"  # see which there are
    CHAT = "chat"  # ask them


class ApiKey(Row):
    """Its scopes and models never change: whoever wants others makes another key."""

    __tablename__ = "api_keys"
    __table_args__ = (CheckConstraint("scopes <@ ARRAY['models', 'chat']::varchar[]", name="scopes"),)

    owner_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(80))
    digest: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)  # the key itself is shown once and not kept
    hint: Mapped[str] = mapped_column(String(12))  # its last characters, by which its owner knows it again
    scopes: Mapped[list[str]] = mapped_column(
        ARRAY(String(20)), default=lambda: list(Scope), server_default=text("'{models,chat}'")
    )
    model_ids: Mapped[list[UUID] | None] = mapped_column(ARRAY(Uuid))  # only these; None: all that its owner may use
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

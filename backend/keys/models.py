"""Keys with which a person's programs use the API in their name."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from backend.accounts.models import User
from backend.core.db import Row


class ApiKey(Row):
    __tablename__ = "api_keys"

    owner_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(80))
    digest: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)  # the key itself is shown once and not kept
    hint: Mapped[str] = mapped_column(String(12))  # its last characters, by which its owner knows it again
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

"""Settings that are made in the product rather than by the deployment: a name and a JSON value, one row each."""

from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from backend.core.clock import now
from backend.core.db import Base


class Setting(Base):
    __tablename__ = "settings"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[Any] = mapped_column(JSONB)
    updated_at: Mapped[datetime] = mapped_column(default=now, onupdate=now)


async def read(session: AsyncSession, name: str, default: Any = None) -> Any:
    value = await session.scalar(select(Setting.value).where(Setting.name == name))
    return default if value is None else value


async def write(session: AsyncSession, name: str, value: Any) -> None:
    new = insert(Setting).values(name=name, value=value, updated_at=now())
    await session.execute(
        new.on_conflict_do_update(
            index_elements=[Setting.name], set_={"value": new.excluded.value, "updated_at": new.excluded.updated_at}
        )
    )

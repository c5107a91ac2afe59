"""Measurements of engines that were made here, for the record."""

from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKey, String
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from backend.core.db import Row
from backend.engines.models import Engine


class BenchRun(Row):
    __tablename__ = "bench_runs"

    engine_id: Mapped[UUID | None] = mapped_column(ForeignKey(Engine.id, ondelete="SET NULL"), index=True)
    engine_name: Mapped[str] = mapped_column(String(80))
    upstream_name: Mapped[str] = mapped_column(String(300))
    result: Mapped[dict[str, Any]] = mapped_column(JSONB)  # as `parley bench --json` writes it

"""Engine = a connection. Model = what people see and pick. Deployment = one model on one engine."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, LargeBinary, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from backend.core.db import Row, words


class Source(StrEnum):
    """Who says that an engine exists; only those of the database can be changed in the pages."""

    EMBEDDED = "embedded"
    ENVIRONMENT = "environment"
    DATABASE = "database"


class Engine(Row):
    __tablename__ = "engines"

    name: Mapped[str] = mapped_column(String(80), unique=True)
    url: Mapped[str] = mapped_column(String(500))
    sealed_api_key: Mapped[bytes | None] = mapped_column(LargeBinary)
    kind: Mapped[str | None] = mapped_column(String(20))  # as detected, or as forced by the deployment
    version: Mapped[str | None] = mapped_column(String(80))
    source: Mapped[Source] = mapped_column(words(Source, "source"))
    enabled: Mapped[bool] = mapped_column(default=True)

    deployments: Mapped[list["Deployment"]] = relationship(back_populates="engine", lazy="raise", passive_deletes=True)


class Model(Row):
    __tablename__ = "models"
    __table_args__ = (
        CheckConstraint("temperature IS NULL OR temperature BETWEEN 0 AND 2", name="temperature"),
        CheckConstraint("max_tokens IS NULL OR max_tokens > 0", name="max_tokens"),
    )

    name: Mapped[str] = mapped_column(String(100), unique=True)
    description: Mapped[str] = mapped_column(String(200), default="")
    system_prompt: Mapped[str] = mapped_column(default="")
    system_role: Mapped[bool] = mapped_column(default=True)  # False: its chat template knows no system message
    temperature: Mapped[float | None]
    max_tokens: Mapped[int | None]
    published: Mapped[bool] = mapped_column(default=False)
    position: Mapped[int] = mapped_column(default=0)

    deployments: Mapped[list["Deployment"]] = relationship(back_populates="model", lazy="raise", passive_deletes=True)


class Deployment(Row):
    """What an engine calls a model. Without a `model_id` it was found, and no admin has published it yet."""

    __tablename__ = "deployments"
    __table_args__ = (
        UniqueConstraint("engine_id", "upstream_name", "model_id", postgresql_nulls_not_distinct=True),
        Index("ix_deployments_model_id", "model_id"),
    )

    engine_id: Mapped[UUID] = mapped_column(ForeignKey("engines.id", ondelete="CASCADE"))
    model_id: Mapped[UUID | None] = mapped_column(ForeignKey("models.id", ondelete="SET NULL"))
    upstream_name: Mapped[str] = mapped_column(String(300))
    context_length: Mapped[int | None]
    missing_since: Mapped[datetime | None]  # the engine answers, but no longer lists this name
    continues: Mapped[bool | None]  # picks an answer up where it broke off; None: not tried yet
    sees: Mapped[bool | None]  # takes pictures; None: not tried yet

    engine: Mapped[Engine] = relationship(back_populates="deployments", lazy="raise")
    model: Mapped[Model | None] = relationship(back_populates="deployments", lazy="raise")

"""Engine = a connection. Model = what people see and pick. Deployment = one model on one engine."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, LargeBinary, String, UniqueConstraint
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship

from backend.accounts.models import User
from backend.core.db import Base, Row, words
from backend.groups.models import Group


class Source(StrEnum):
    """Who says that an engine exists; only those of the database can be changed in the pages."""

    EMBEDDED = "embedded"
    ENVIRONMENT = "environment"
    DATABASE = "database"


class Stage(StrEnum):
    """Of a revision, which is what the deployments of one model in one stage have in common."""

    CURRENT = "current"
    TRIAL = "trial"  # for a share of new conversations, or for one group; see `trials.py`
    FORMER = "former"  # replaced by a trial that was promoted; conversations that began there stay
    WITHDRAWN = "withdrawn"  # a trial that was rolled back: nobody goes there


class Engine(Row):
    __tablename__ = "engines"

    name: Mapped[str] = mapped_column(String(80), unique=True)
    url: Mapped[str] = mapped_column(String(500))
    sealed_api_key: Mapped[bytes | None] = mapped_column(LargeBinary)
    kind: Mapped[str | None] = mapped_column(String(20))  # as detected
    forced_kind: Mapped[str | None] = mapped_column(String(20))  # an admin's or the deployment's word on it
    version: Mapped[str | None] = mapped_column(String(80))
    source: Mapped[Source] = mapped_column(words(Source, "source"))
    enabled: Mapped[bool] = mapped_column(default=True)
    draining: Mapped[bool] = mapped_column(default=False)  # nothing new goes there, and it is still looked at
    external: Mapped[bool] = mapped_column(default=False)  # what is sent there leaves the building
    priorities: Mapped[bool] = mapped_column(default=False)  # it was started with scheduling by priority
    session_header: Mapped[str] = mapped_column(String(80), default="")  # by which a router in front keeps affinity

    deployments: Mapped[list["Deployment"]] = relationship(back_populates="engine", lazy="raise", passive_deletes=True)

    @property
    def spoken_kind(self) -> str | None:
        """What it is treated as: somebody's word on it counts more than what was found."""
        return self.forced_kind or self.kind


class Model(Row):
    __tablename__ = "models"
    __table_args__ = (
        CheckConstraint("temperature IS NULL OR temperature BETWEEN 0 AND 2", name="temperature"),
        CheckConstraint("max_tokens IS NULL OR max_tokens > 0", name="max_tokens"),
        CheckConstraint("max_concurrent IS NULL OR max_concurrent > 0", name="max_concurrent"),
        CheckConstraint("fallback_id <> id", name="fallback"),
        CheckConstraint("trial_share BETWEEN 0 AND 100", name="trial_share"),
    )

    name: Mapped[str] = mapped_column(String(100), unique=True)
    description: Mapped[str] = mapped_column(String(200), default="")
    system_prompt: Mapped[str] = mapped_column(default="")
    system_role: Mapped[bool] = mapped_column(default=True)  # False: its chat template knows no system message
    temperature: Mapped[float | None]
    max_tokens: Mapped[int | None]
    published: Mapped[bool] = mapped_column(default=False)
    position: Mapped[int] = mapped_column(default=0)
    color: Mapped[str] = mapped_column(String(20), default="")
    thinking: Mapped[str] = mapped_column(String(10), default="")  # off, on, low, medium, high; "": as the engine does
    adjustable: Mapped[list[str]] = mapped_column(JSONB, default=list)  # parameters that people may choose themselves
    max_concurrent: Mapped[int | None]  # answers at once; None: as many as its engines say they take
    maintenance_until: Mapped[datetime | None]
    retired_at: Mapped[datetime | None]  # nobody can choose it any more; chats that used it go on with the fallback
    fallback_id: Mapped[UUID | None] = mapped_column(ForeignKey("models.id", ondelete="SET NULL"), index=True)
    for_everybody: Mapped[bool] = mapped_column(default=True)  # else for the groups in `model_groups`
    trial_share: Mapped[int] = mapped_column(
        default=0, server_default="0"
    )  # per cent of new conversations that try a new revision
    trial_group_id: Mapped[UUID | None] = mapped_column(ForeignKey(Group.id, ondelete="SET NULL"), index=True)
    trial_since: Mapped[datetime | None]  # answers are compared from then on

    deployments: Mapped[list["Deployment"]] = relationship(back_populates="model", lazy="raise", passive_deletes=True)


class ModelGroup(Base):
    """A group whose members may use a model that is not for everybody."""

    __tablename__ = "model_groups"

    model_id: Mapped[UUID] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"), primary_key=True)
    group_id: Mapped[UUID] = mapped_column(ForeignKey(Group.id, ondelete="CASCADE"), primary_key=True, index=True)


class DefaultModel(Row):
    """What a new chat begins with: for one person, for the members of a group, or (neither) for everybody."""

    __tablename__ = "default_models"
    __table_args__ = (
        UniqueConstraint("user_id", "group_id", postgresql_nulls_not_distinct=True),
        CheckConstraint("num_nonnulls(user_id, group_id) <= 1", name="whose"),
    )

    user_id: Mapped[UUID | None] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"))
    group_id: Mapped[UUID | None] = mapped_column(ForeignKey(Group.id, ondelete="CASCADE"), index=True)
    model_id: Mapped[UUID] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"), index=True)


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
    thinks: Mapped[bool | None]  # writes its reasoning apart; None: not known
    revision: Mapped[str | None] = mapped_column(String(300))  # of the weights, as the engine tells it
    pinned_revision: Mapped[str | None] = mapped_column(String(300))  # what it should be
    pinned_version: Mapped[str | None] = mapped_column(String(80))  # of the engine, likewise
    stage: Mapped[Stage] = mapped_column(words(Stage, "stage"), default=Stage.CURRENT, server_default="current")

    engine: Mapped[Engine] = relationship(back_populates="deployments", lazy="raise")
    model: Mapped[Model | None] = relationship(back_populates="deployments", lazy="raise")

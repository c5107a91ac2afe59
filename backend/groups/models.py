"""People together. What a group may use is said where that is: see `engines/models.py`.

A group may lie within another one, one level deep: its members count as members of that one, too. That it is no deeper,
and so never goes round, is a constraint: a parent is referred to together with its depth, which is 0.
"""

from enum import StrEnum
from uuid import UUID

from sqlalchemy import CheckConstraint, Computed, ForeignKey, ForeignKeyConstraint, String, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from backend.accounts.models import User
from backend.core.db import Base, Row, words


class Origin(StrEnum):
    """Who says that it is so. What a directory says is not changed by hand: its next word would undo it."""

    MANUAL = "manual"
    DIRECTORY = "directory"


class Group(Row):
    __tablename__ = "groups"
    __table_args__ = (
        CheckConstraint("weight BETWEEN 1 AND 100", name="weight"),
        CheckConstraint("(source = 'directory') = (external_id IS NOT NULL)", name="directory_knows_it"),
        UniqueConstraint("id", "depth", name="uq_groups_depth"),
        ForeignKeyConstraint(["parent_id", "parent_depth"], ["groups.id", "groups.depth"], name="fk_groups_parent"),
    )

    name: Mapped[str] = mapped_column(String(80), unique=True)
    weight: Mapped[int] = mapped_column(default=1)  # of its members' questions while people have to wait
    rights: Mapped[list[str]] = mapped_column(ARRAY(String(20)), default=list, server_default=text("'{}'"))
    parent_id: Mapped[UUID | None] = mapped_column(index=True)
    source: Mapped[Origin] = mapped_column(
        words(Origin, "source"), default=Origin.MANUAL, server_default=Origin.MANUAL.value
    )
    external_id: Mapped[str | None] = mapped_column(String(300), unique=True)  # under which the directory knows it
    depth: Mapped[int] = mapped_column(Computed("CASE WHEN parent_id IS NULL THEN 0 ELSE 1 END", persisted=True))
    parent_depth: Mapped[int | None] = mapped_column(
        Computed("CASE WHEN parent_id IS NULL THEN NULL::integer ELSE 0 END", persisted=True)
    )


class GroupMember(Base):
    __tablename__ = "group_members"

    group_id: Mapped[UUID] = mapped_column(ForeignKey("groups.id", ondelete="CASCADE"), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True, index=True)
    source: Mapped[Origin] = mapped_column(
        words(Origin, "source"), default=Origin.MANUAL, server_default=Origin.MANUAL.value
    )

"""People together. What a group may use is said where that is: see `engines/models.py`."""

from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from backend.accounts.models import User
from backend.core.db import Base, Row


class Group(Row):
    __tablename__ = "groups"
    __table_args__ = (CheckConstraint("weight BETWEEN 1 AND 100", name="weight"),)

    name: Mapped[str] = mapped_column(String(80), unique=True)
    weight: Mapped[int] = mapped_column(default=1)  # of its members' questions while people have to wait


class GroupMember(Base):
    __tablename__ = "group_members"

    group_id: Mapped[UUID] = mapped_column(ForeignKey("groups.id", ondelete="CASCADE"), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True, index=True)

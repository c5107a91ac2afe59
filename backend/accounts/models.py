"""Who may come in: people, their browsers, and the links that let them in once."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, DateTime, ForeignKey, LargeBinary, String, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from backend.core.clock import now
from backend.core.db import Base, Row, words
from backend.core.text import clean


class Role(StrEnum):
    ADMIN = "admin"
    MEMBER = "member"


class Area(StrEnum):
    """What an administrator may be given of the administration."""

    PEOPLE = "people"  # and groups
    MODELS = "models"  # and engines, measurements, capacity
    USAGE = "usage"
    AUDIT = "audit"  # and what everybody may do


class Theme(StrEnum):
    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"


class Purpose(StrEnum):
    SETUP = "setup"  # make the first administrator
    INVITATION = "invitation"  # set the first password
    RESET = "reset"  # set a new password
    SECOND_STEP = "second_step"  # the password was right; now the second factor


def normal_email(email: str) -> str:
    """The one spelling under which an address is stored, looked up and counted."""
    return clean(email).strip().lower()


class User(Row):
    __tablename__ = "users"
    __table_args__ = (
        # One account per address however it is spelt: the rule lives here, not in code.
        CheckConstraint("email = lower(email)", name="email_lower"),
        # Who administers everything has no list of areas that could be shorter than that.
        CheckConstraint("role = 'member' OR areas = '{}'", name="areas_of_members"),
        CheckConstraint("areas <@ ARRAY['people', 'models', 'usage', 'audit']::varchar[]", name="areas"),
    )

    email: Mapped[str] = mapped_column(String(254), unique=True)
    name: Mapped[str] = mapped_column(String(100))
    role: Mapped[Role] = mapped_column(words(Role, "role"))
    areas: Mapped[list[str]] = mapped_column(ARRAY(String(20)), default=list, server_default=text("'{}'"))
    password_hash: Mapped[str | None]
    disabled_at: Mapped[datetime | None]
    last_seen_at: Mapped[datetime | None]
    theme: Mapped[Theme] = mapped_column(words(Theme, "theme"), default=Theme.SYSTEM)
    time_zone: Mapped[str | None] = mapped_column(String(64))

    @property
    def is_admin(self) -> bool:
        """Of everything. Whoever has only some areas is a member who administers these."""
        return self.role is Role.ADMIN

    @property
    def administers(self) -> frozenset[Area]:
        return frozenset(Area) if self.is_admin else frozenset(map(Area, self.areas))

    @property
    def is_active(self) -> bool:
        """Whether they can sign in: invited people cannot yet, disabled ones no more."""
        return self.password_hash is not None and self.disabled_at is None

    @property
    def initials(self) -> str:
        """One or two capitals for the small round mark."""
        parts = self.name.split() or [self.email]
        return (parts[0][:1] + (parts[-1][:1] if len(parts) > 1 else "")).upper()


class LoginSession(Row):
    """One browser that is signed in. The cookie holds the token, the table only its digest."""

    __tablename__ = "login_sessions"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    token_digest: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)
    last_seen_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    authenticated_at: Mapped[datetime] = mapped_column(default=now)  # when they last showed that it is them
    time_zone: Mapped[str | None] = mapped_column(String(64))
    address: Mapped[str] = mapped_column(String(64))
    user_agent: Mapped[str] = mapped_column(String(300))

    user: Mapped[User] = relationship(lazy="raise")


class OneTimeLink(Row):
    """A secret that lets its holder do one thing once."""

    __tablename__ = "one_time_links"
    __table_args__ = (CheckConstraint("(purpose = 'setup') = (user_id IS NULL)", name="setup_has_no_user"),)

    purpose: Mapped[Purpose] = mapped_column(words(Purpose, "purpose"))
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    token_digest: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]

    user: Mapped[User | None] = relationship(lazy="raise")


class SignInThrottle(Base):
    """Tries of one account from one network, or from all (no network); unknown accounts are counted alike."""

    __tablename__ = "sign_in_throttles"

    account: Mapped[bytes] = mapped_column(LargeBinary(32), primary_key=True)  # digest of the address
    network: Mapped[bytes] = mapped_column(LargeBinary(32), primary_key=True)  # digest of both; empty for all
    tries: Mapped[int]  # of the day, where it counts for all networks
    recent: Mapped[list[datetime]] = mapped_column(ARRAY(DateTime(timezone=True)))  # of the hour, from one network
    last_try_at: Mapped[datetime]
    known_until: Mapped[datetime | None]  # the person has signed in from there


class SecondFactor(Base):
    """The secret that an app on the person's telephone has, too (TOTP)."""

    __tablename__ = "second_factors"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    sealed: Mapped[bytes]
    confirmed_at: Mapped[datetime | None]  # a first code was right; until then it asks for nothing
    last_step: Mapped[int | None] = mapped_column(BigInteger)  # a code is good once


class RecoveryCode(Row):
    """One of the ten codes that stand in for a lost telephone, once each."""

    __tablename__ = "recovery_codes"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    digest: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)
    used_at: Mapped[datetime | None]


class Passkey(Row):
    """A key in somebody's telephone, computer or stick; of it the public half."""

    __tablename__ = "passkeys"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    credential_id: Mapped[bytes] = mapped_column(unique=True)
    public_key: Mapped[bytes]
    sign_count: Mapped[int] = mapped_column(BigInteger)
    name: Mapped[str] = mapped_column(String(80))
    last_used_at: Mapped[datetime | None]


class UsedChallenge(Base):
    """What a passkey has signed once; kept until it would have ended by itself."""

    __tablename__ = "used_challenges"

    digest: Mapped[bytes] = mapped_column(LargeBinary(32), primary_key=True)
    expires_at: Mapped[datetime]

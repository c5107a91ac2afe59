"""Who looks at a page: a copy of what routes and templates ask for, which outlives the row it was read from."""

from dataclasses import dataclass
from typing import Self
from uuid import UUID

from backend.accounts.models import Area, LoginSession, Theme


@dataclass(frozen=True)
class Viewer:
    id: UUID
    name: str
    email: str
    is_admin: bool  # of everything
    areas: frozenset[Area]  # of the administration
    initials: str
    theme: Theme
    zones: tuple[str | None, ...]  # names of time zones, the first that is known holds

    @classmethod
    def of(cls, login: LoginSession) -> Self:
        user = login.user
        return cls(
            id=user.id,
            name=user.name,
            email=user.email,
            is_admin=user.is_admin,
            areas=user.administers,
            initials=user.initials,
            theme=user.theme,
            zones=(user.time_zone, login.time_zone),
        )

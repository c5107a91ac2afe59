"""What an administrator decides about coming in."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self

from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.models import User
from backend.core import stored

_NAME = "sign_in"  # of the row in the settings


class Demand(StrEnum):
    """Who has to have a second factor, or come in with a passkey."""

    NOBODY = "nobody"
    ADMINS = "admins"
    EVERYBODY = "everybody"


@dataclass(frozen=True)
class Rules:
    second_factor: Demand = Demand.NOBODY

    def demand_second_factor_of(self, person: User) -> bool:
        if self.second_factor is Demand.ADMINS:
            return bool(person.administers)
        return self.second_factor is Demand.EVERYBODY

    def overridden(self, second_factor: Demand | None) -> Self:
        """With what the deployment has set, which counts more."""
        return self if second_factor is None else type(self)(second_factor)


async def read(session: AsyncSession) -> Rules:
    kept = await stored.read(session, _NAME, {})
    return Rules(
        second_factor=Demand(kept.get("second_factor", Demand.NOBODY)),
    )


async def write(session: AsyncSession, rules: Rules) -> None:
    await stored.write(session, _NAME, asdict(rules))

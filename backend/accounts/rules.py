"""What an administrator decides about coming in: who needs a second factor, and who may sign up by themselves."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self

from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.models import User, normal_email
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
    sign_up_domains: tuple[str, ...] = ()  # people with an address there may sign up; none is closed
    needs_approval: bool = True

    @property
    def is_open(self) -> bool:
        return bool(self.sign_up_domains)

    def demand_second_factor_of(self, person: User) -> bool:
        if self.second_factor is Demand.ADMINS:
            return person.is_admin
        return self.second_factor is Demand.EVERYBODY

    def may_sign_up(self, email: str) -> bool:
        return normal_email(email).rpartition("@")[2] in self.sign_up_domains

    def overridden(self, second_factor: Demand | None) -> Self:
        """With what the deployment has set, which counts more."""
        return self if second_factor is None else type(self)(second_factor, self.sign_up_domains, self.needs_approval)


async def read(session: AsyncSession) -> Rules:
    kept = await stored.read(session, _NAME, {})
    return Rules(
        second_factor=Demand(kept.get("second_factor", Demand.NOBODY)),
        sign_up_domains=tuple(kept.get("sign_up_domains", ())),
        needs_approval=kept.get("needs_approval", True),
    )


async def write(session: AsyncSession, rules: Rules) -> None:
    await stored.write(session, _NAME, asdict(rules))


def clean_domains(text: str) -> tuple[list[str], list[str]]:
    """What was typed, as domains and as what is none."""
    typed = [part.lstrip("@").rstrip(".") for part in text.replace(",", " ").replace(";", " ").lower().split()]
    good = [part for part in typed if _is_domain(part)]
    return list(dict.fromkeys(good)), [part for part in typed if part not in good]


def _is_domain(text: str) -> bool:
    labels = text.split(".")
    return len(text) <= 253 and len(labels) > 1 and all(_is_label(label) for label in labels)


def _is_label(label: str) -> bool:
    return 0 < len(label) <= 63 and not label.startswith("-") and all(each.isalnum() or each == "-" for each in label)


def described(rules: Rules) -> dict[str, object]:
    """For the audit."""
    return {**asdict(rules), "sign_up_domains": list(_shown(rules.sign_up_domains))}


def _shown(domains: Iterable[str]) -> Iterable[str]:
    return sorted(domains)

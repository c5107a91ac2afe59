"""What an administrator decided about a provider: what to ask for, what its claims mean, who may come in."""

import fnmatch
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Self

from backend.core.errors import BadInput
from backend.core.i18n import _
from backend.core.text import one_line

MAX_CLAIM, MAX_SCOPES, MAX_LINES = 200, 500, 200


class Unknown(StrEnum):
    """What happens to people who have no account here."""

    REFUSE = "refuse"
    CREATE = "create"


class Groups(StrEnum):
    IGNORE = "ignore"
    MAPPED = "mapped"  # only those that are named
    CREATE = "create"  # whatever it names is made here, but for the blocked


@dataclass(frozen=True, slots=True)
class Rules:
    scopes: str = "openid profile email"
    unknown: Unknown = Unknown.REFUSE
    link_by_email: bool = False
    name_claim: str = "name"
    email_claim: str = "email"
    groups_claim: str = "groups"
    groups: Groups = Groups.IGNORE
    group_map: tuple[tuple[str, str], ...] = ()  # what the provider says, and the group here
    blocked_groups: tuple[str, ...] = ()  # patterns like `*-admins`, never made here
    role_claim: str = ""
    admin_values: tuple[str, ...] = ()  # one of them in the claim makes an administrator
    logout: bool = False  # signing out here leads to the provider's sign-out

    @classmethod
    def stored(cls, value: dict[str, Any]) -> Self:
        """Of a row. A field that an older version did not know has its default."""
        known = {field.name for field in fields(cls)}
        given = {name: each for name, each in value.items() if name in known}
        for name in ("blocked_groups", "admin_values"):
            if name in given:
                given[name] = tuple(given[name])
        if "group_map" in given:
            given["group_map"] = tuple((pair[0], pair[1]) for pair in given["group_map"])
        if "unknown" in given:
            given["unknown"] = Unknown(given["unknown"])
        if "groups" in given:
            given["groups"] = Groups(given["groups"])
        return cls(**given)

    def to_store(self) -> dict[str, Any]:
        return asdict(self)

    def is_blocked(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in self.blocked_groups)

    def group_here(self, name: str) -> str | None:
        """What the group is called here that the provider calls `name`; None for one that is of no interest."""
        if self.groups is Groups.IGNORE:
            return None
        mapped = dict(self.group_map).get(name)
        if mapped is not None:
            return mapped
        if self.groups is Groups.MAPPED or self.is_blocked(name):
            return None
        return one_line(name, 80) or None


def group_map_of(text: str) -> tuple[tuple[str, str], ...]:
    """Of lines like `their name = our name`. Raises BadInput for the field `group_map`."""
    pairs = []
    for line in _lines(text):
        theirs, equals, ours = (part.strip() for part in line.partition("="))
        if not (equals and theirs and one_line(ours, 80)):
            wrong = _("One group a line: what the provider calls it, “=”, and the group here. “{line}” is not so.")
            raise BadInput(wrong, fields={"group_map": wrong.format(line=one_line(line, 60))})
        pairs.append((theirs[:255], one_line(ours, 80)))
    return tuple(dict(pairs).items())


def group_map_text(rules: Rules) -> str:
    return "\n".join(f"{theirs} = {ours}" for theirs, ours in rules.group_map)


def listed(text: str) -> tuple[str, ...]:
    """One a line."""
    return tuple(dict.fromkeys(one_line(line, MAX_CLAIM) for line in _lines(text)))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()][:MAX_LINES]

"""Writing down what was done, in the transaction that does it: no record, no change."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession


class Action(StrEnum):
    """What was done: `<kind of thing>.<verb>`."""

    SIGNED_IN = "session.opened"
    SIGN_IN_FAILED = "session.refused"
    SIGNED_OUT = "session.closed"
    SESSION_ENDED = "session.ended"
    PASSWORD_SET = "password.set"  # noqa: S105 - what was done
    SECOND_FACTOR_ADDED = "second_factor.added"
    SECOND_FACTOR_REMOVED = "second_factor.removed"
    RECOVERY_CODES_MADE = "recovery_codes.made"
    RECOVERY_CODE_USED = "recovery_code.used"
    PASSKEY_ADDED = "passkey.added"
    PASSKEY_REMOVED = "passkey.removed"
    SIGN_IN_RULES_CHANGED = "sign_in_rules.changed"
    PERSON_ADDED = "person.added"
    PERSON_ROLE_CHANGED = "person.role_changed"
    PERSON_DISABLED = "person.disabled"
    PERSON_ENABLED = "person.enabled"
    LINK_MADE = "link.made"


@dataclass(frozen=True, slots=True)
class Target:
    """What it was done to. A person is named by id alone: their name lives where it can be erased."""

    kind: str
    id: UUID | None = None
    name: str = ""  # of what is not a person


async def record(
    session: AsyncSession,
    action: Action,
    target: Target | None = None,
    *,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
) -> None:
    """Never give it chat text, secrets, names or addresses of people. Raises what the database raises: then nothing
    was done."""

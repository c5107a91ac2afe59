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
    SIGNED_OUT_BY_PROVIDER = "session.ended-by-provider"
    PERSON_PROVISIONED = "person.provisioned"
    IDENTITY_LINKED = "identity.linked"
    IDENTITY_UNLINKED = "identity.unlinked"
    PROVIDER_ADDED = "provider.added"
    PROVIDER_CHANGED = "provider.changed"
    PROVIDER_REMOVED = "provider.removed"


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

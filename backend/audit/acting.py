"""Who acts in a transaction. It is said once, where the transaction begins, and no function hands it on."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

_ACTOR: Final = "actor"  # in `session.info`


class Via(StrEnum):
    """What somebody acted through."""

    BROWSER = "browser"
    KEY = "key"
    SCIM = "scim"
    HOST = "host"  # the command line
    SYSTEM = "system"  # one of our own loops


@dataclass(frozen=True, slots=True)
class Actor:
    via: Via
    person_id: UUID | None = None  # nobody we know: a failed sign-in, the host, a loop
    address: str = ""  # of the true peer, behind listed proxies only


SYSTEM: Final = Actor(Via.SYSTEM)


def act_as(session: AsyncSession, actor: Actor) -> None:
    """From now on this is who acts in the session."""
    session.info[_ACTOR] = actor


def actor_of(session: AsyncSession) -> Actor:
    actor: Actor = session.info.get(_ACTOR, SYSTEM)
    return actor

"""The words that admission and those who ask it have in common."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID


class Urgency(IntEnum):
    CHAT = 0  # somebody is looking at the page
    API = 1
    BACKGROUND = 2


class Place(NamedTuple):
    """Where a request stands in line."""

    ahead: int
    seconds: float | None  # about how long it will take; None: nobody knows yet
    own: bool  # it waits for other answers of the same person


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants to have answered."""

    model_id: UUID
    person_id: UUID
    urgency: Urgency
    cost: int  # tokens, as estimated

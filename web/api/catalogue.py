"""Under which names programs find the models that people see.

The id of a model is its name in small letters with hyphens: "Qwen3 8B (fast)" is `qwen3-8b-fast`. It stays while the
name stays, whatever engines serve it. Where two names give the same id, the model that is older keeps it and the next
one gets `-2`. The name itself, and the number that a model has in the database and never loses, work as well.
"""

import re
from collections.abc import Mapping, Sequence
from uuid import UUID

from backend.engines.registry import Offer, Registry
from web.api.callers import Caller

_BETWEEN = re.compile(r"[^\w.]+")


def slug(name: str) -> str:
    return _BETWEEN.sub("-", name.casefold()).strip("-._")


def ids_of(offers: Sequence[Offer]) -> dict[UUID, str]:
    """By the id in the database. The older model comes first, for its id is smaller."""
    taken: set[str] = set()
    ids: dict[UUID, str] = {}
    for offer in sorted(offers, key=lambda offer: offer.id):
        wished = slug(offer.name) or offer.id.hex
        name, number = wished, 1
        while name in taken:
            number += 1
            name = f"{wished}-{number}"
        taken.add(name)
        ids[offer.id] = name
    return ids


class Catalogue:
    """Of this process. The ids are made once for each snapshot of the engines."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._seen: Sequence[Offer] = ()
        self._ids: dict[UUID, str] = {}

    def offers_for(self, caller: Caller) -> Mapping[str, Offer]:
        """By id, in the order people see them: what its person may use, and of that what the key is for."""
        ids = self._current()
        offers = self._registry.offers_for(caller.person_id)
        return {ids[offer.id]: offer for offer in offers if offer.id in ids and caller.is_for(offer.id)}

    def find(self, caller: Caller, wanted: str) -> tuple[str, Offer] | None:
        """The id and the model; None also for one that is there and not for this caller."""
        offers = self.offers_for(caller)
        if wanted in offers:
            return wanted, offers[wanted]
        for name, offer in offers.items():
            if wanted in (offer.name, str(offer.id)) or wanted.casefold() == name:
                return name, offer
        return None

    def _current(self) -> dict[UUID, str]:
        offers = self._registry.offers
        if offers is not self._seen:
            self._seen, self._ids = offers, ids_of(offers)
        return self._ids

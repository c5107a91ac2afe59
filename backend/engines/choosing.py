"""Which endpoint answers: a pure decision over what is known at this moment.

Every conversation has a favourite among the endpoints of its model, always the same one, so that its beginning is still
in that engine's prefix cache. It is found by rendezvous hashing: each endpoint draws a number for the conversation, and
the highest wins. When an endpoint comes or goes, only the conversations that are or were its own move. A favourite with
no room spills to the least busy of the others.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from uuid import UUID

from backend.core.errors import Unavailable
from backend.core.i18n import _
from backend.engines.snapshot import Endpoint


class NoEngineAvailable(Unavailable):
    """No engine that serves the model can be used at the moment."""


@dataclass(frozen=True, slots=True)
class Busy:
    """What an endpoint has to do, for us and for others."""

    running: int = 0
    waiting: int = 0
    slots: int | None = None  # how many it answers at once; None: it does not say

    @property
    def is_full(self) -> bool:
        return self.waiting > 0 or (self.slots is not None and self.running >= self.slots)

    @property
    def load(self) -> float:
        """Work for each slot; one that does not tell its slots is compared by its work alone."""
        return (self.running + self.waiting) / (self.slots or 1)


_IDLE = Busy()


def choose(
    endpoints: Sequence[Endpoint],
    affinity: UUID | None,
    busy: Mapping[UUID, Busy],
    excluded: Collection[UUID] = (),
) -> Endpoint:
    """`busy` and `excluded` by deployment id. Raises NoEngineAvailable.

    Without an affinity the least busy one is taken, and of equals the first.
    """
    healthy = [each for each in endpoints if each.problem is None and each.deployment_id not in excluded]
    if not healthy:
        raise NoEngineAvailable(_why_none(endpoints))
    if affinity is not None:
        healthy.sort(key=lambda each: _draw(affinity, each.deployment_id), reverse=True)
    works = [busy.get(each.deployment_id, _IDLE) for each in healthy]
    if affinity is not None and not works[0].is_full:
        return healthy[0]
    # `min` takes the first of equals, which for a conversation is the one that comes next in its order.
    return min(zip(healthy, _comparable(works), strict=True), key=lambda pair: pair[1])[0]


def _why_none(endpoints: Sequence[Endpoint]) -> str:
    if problem := next((each.problem for each in endpoints if each.problem), None):
        return problem
    if endpoints:
        return _("This model failed several times in a row. It is tried again in a moment.")
    return _("No engine serves this model at the moment.")


def _comparable(works: Sequence[Busy]) -> list[tuple[bool, float]]:
    told = all(work.slots for work in works)
    return [(work.is_full, work.load if told else work.running + work.waiting) for work in works]


def _draw(affinity: UUID, deployment_id: UUID) -> bytes:
    return blake2b(affinity.bytes + deployment_id.bytes, digest_size=8).digest()

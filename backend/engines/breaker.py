"""Circuit breakers: an endpoint that fails its answers is left alone for a while, then tried with a single one.

    closed      answers go there; some failures in a row open it
    open        nothing goes there, for a pause that doubles each time
    half open   the pause is over and one answer may try; how that ends closes or opens it

The looking at engines does a part of this already, but an engine may list its models and still answer nobody.
"""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from uuid import UUID

from backend.engines.events import Failure

_FAILURES = 3  # in a row; one lost connection says little
_PAUSE, _LONGEST_PAUSE = 2.0, 120.0

#: Failures that tell of the endpoint, as opposed to the request or the load of the moment.
_FAULTS = frozenset({Failure.UNREACHABLE, Failure.DEAD, Failure.CUT, Failure.TIMEOUT, Failure.NONSENSE, Failure.AUTH})


def _around_one() -> float:
    """Many processes may have opened a circuit at the same moment."""
    return random.uniform(0.8, 1.2)  # noqa: S311 — only spreads the load


@dataclass(slots=True)
class _Circuit:
    failures: int = 0  # in a row
    pauses: int = 0  # in a row
    until: float = 0.0  # open until then, if it has failed often enough
    because: Failure | None = None
    tried_by: int = 0  # answers that try while it is half open

    @property
    def is_closed(self) -> bool:
        return self.pauses == 0


class Breakers:
    """The circuits of all endpoints, by deployment id. `clock` in seconds."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        spread: Callable[[], float] = _around_one,
    ) -> None:
        self._clock = clock
        self._spread = spread
        self._circuits: dict[UUID, _Circuit] = {}

    def refuses(self, deployment_id: UUID) -> bool:
        """Whether an answer may not go there now."""
        circuit = self._circuits.get(deployment_id)
        if circuit is None or circuit.is_closed:
            return False
        return circuit.tried_by > 0 or self._clock() < circuit.until

    def begins(self, deployment_id: UUID) -> None:
        """An answer goes there; while the circuit is half open it is the one that tries."""
        circuit = self._circuits.get(deployment_id)
        if circuit is not None and not circuit.is_closed:
            circuit.tried_by += 1

    def ends(self, deployment_id: UUID) -> None:
        """It ended in whatever way, also by its reader."""
        circuit = self._circuits.get(deployment_id)
        if circuit is not None and circuit.tried_by:
            circuit.tried_by -= 1

    def succeeded(self, deployment_id: UUID) -> None:
        """It sent text."""
        self._circuits.pop(deployment_id, None)

    def failed(self, deployment_id: UUID, failure: Failure) -> None:
        if failure not in _FAULTS:
            return
        circuit = self._circuits.setdefault(deployment_id, _Circuit())
        circuit.failures += 1
        circuit.because = failure
        if circuit.is_closed and circuit.failures < _FAILURES:
            return
        if circuit.is_closed or self._clock() >= circuit.until:  # else: an answer that began before it opened
            circuit.until = self._clock() + self._pause(circuit.pauses)
            circuit.pauses += 1

    def looked_at(self, deployment_ids: Iterable[UUID]) -> None:
        """The engine told its models, so it can be reached again. Any other fault only an answer can disprove."""
        for deployment_id in deployment_ids:
            circuit = self._circuits.get(deployment_id)
            if circuit is not None and circuit.because is Failure.UNREACHABLE:
                del self._circuits[deployment_id]

    def forget(self, deployment_ids: Iterable[UUID]) -> None:
        """They are gone, or have another address or key now."""
        for deployment_id in deployment_ids:
            self._circuits.pop(deployment_id, None)

    def _pause(self, pauses: int) -> float:
        return min(_PAUSE * 2.0 ** min(pauses, 10), _LONGEST_PAUSE) * self._spread()

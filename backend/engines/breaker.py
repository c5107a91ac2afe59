"""Circuit breakers: an endpoint that fails its answers is left alone for a while, then tried with a single one.

    closed      answers go there; some failures in a row open it
    open        nothing goes there, for a pause that doubles each time
    half open   the pause is over and one answer may try; how that ends closes or opens it

The looking at engines does a part of this already, but an engine may list its models and still answer nobody.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from backend.engines.events import EngineFailed, Failure

_FAILURES = 3  # in a row; one lost connection says little
_PAUSE, _LONGEST_PAUSE = 2.0, 120.0


def _around_one() -> float:
    """Many processes may have opened a circuit at the same moment."""
    return random.uniform(0.8, 1.2)  # noqa: S311 — only spreads the load


@dataclass(slots=True)
class _Circuit:
    """It is forgotten as soon as an answer came to its end."""

    failures: int = 0
    pauses: int = 0
    is_open: bool = False  # or half open, once `until` has passed
    until: float = 0.0
    because: Failure | None = None
    tried_by: int = 0  # answers that try while it is half open


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
        if circuit is None or not circuit.is_open:
            return False
        return circuit.tried_by > 0 or self._clock() < circuit.until

    @contextmanager
    def answering(self, deployment_id: UUID) -> Iterator[None]:
        """An answer goes there; while the circuit is half open it is the one that tries. To leave normally means that
        it came to its end. Whoever stops it before proves nothing."""
        circuit = self._circuits.get(deployment_id)
        trial = circuit if circuit is not None and circuit.is_open else _Circuit()
        trial.tried_by += 1
        try:
            yield
        except EngineFailed as failure:
            self._failed(deployment_id, failure.kind)
            raise
        else:
            self._circuits.pop(deployment_id, None)
        finally:
            trial.tried_by -= 1

    def spoke(self, deployment_id: UUID) -> None:
        """The first words came, so others may go there, too. Only the end makes up for earlier failures: an engine may
        break off every answer."""
        if circuit := self._circuits.get(deployment_id):
            circuit.is_open = False

    def _failed(self, deployment_id: UUID, failure: Failure) -> None:
        if not failure.fault:
            return
        circuit = self._circuits.setdefault(deployment_id, _Circuit())
        circuit.failures += 1
        circuit.because = failure
        if not circuit.is_open and circuit.failures < _FAILURES:
            return
        if not circuit.is_open or self._clock() >= circuit.until:  # else: an answer that began before it opened
            circuit.is_open = True
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

"""An admission that lets everybody in at once, and remembers what it was told."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

from backend.admission.wishes import Place, Urgency


class Always:
    def __init__(self) -> None:
        self.inside = 0
        self.accepted_ones = 0
        self.refusals: list[float | None] = []
        self.tokens: list[int] = []

    @asynccontextmanager
    async def enter(
        self,
        _model_id: UUID,
        _person_id: UUID,
        _urgency: Urgency,
        *,
        cost: int,
        on_place: Callable[[Place], None],
    ) -> AsyncIterator["Always"]:
        self.inside += 1
        try:
            yield self
        finally:
            self.inside -= 1

    def spent(self, tokens: int) -> None:
        self.tokens.append(tokens)

    def refused(self, retry_after: float | None) -> None:
        self.refusals.append(retry_after)

    def accepted(self) -> None:
        self.accepted_ones += 1

"""An admission that lets everybody in at once, and remembers what it was told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

from backend.admission.wishes import Place, Urgency


class Always:
    def __init__(self) -> None:
        self.inside = 0
        self.entered = 0
        self._closes_after: int | None = None
        self.accepted_ones = 0
        self.refusals: list[float | None] = []
        self.tokens: list[int] = []

    def close_after(self, entered: int) -> None:
        """Nobody else gets in."""
        self._closes_after = entered

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
        if self.entered == self._closes_after:
            await asyncio.Event().wait()
        self.entered += 1
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

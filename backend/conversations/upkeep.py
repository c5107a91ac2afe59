"""What a process does beside its answers: it saves what they gained, and takes over those that nobody writes."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from backend.conversations import statements
from backend.conversations.live import Phase
from backend.conversations.running import Running
from backend.core.db import DatabaseGone
from backend.core.direct import Direct

log = logging.getLogger(__name__)


class Upkeep:
    """Two loops, from `start` to `close`. Times are in seconds."""

    def __init__(
        self,
        direct: Direct,
        running: Mapping[UUID, Running],
        *,
        give_up: Callable[[Running], None],
        resume: Callable[[Any], Awaitable[None]],
        save_every: float,
        reap_every: float,
        abandoned_after: float,
    ) -> None:
        """`give_up` is called for an answer that lost its row, `resume` with the row of one that lost its writer."""
        self._direct = direct
        self._running = running
        self._give_up = give_up
        self._resume = resume
        self._save_every = save_every
        self._reap_every = reap_every
        self._abandoned_after = abandoned_after
        self._loops: list[asyncio.Task[None]] = []
        self._reap_now = asyncio.Event()
        self._database_back_at = float("-inf")  # time.monotonic()
        self.takes_over = True  # until the process ends

    def start(self) -> None:
        self._loops = [
            asyncio.create_task(self._repeat(self.save, self._save_every, asyncio.Event())),
            asyncio.create_task(self._repeat(self._reap, self._reap_every, self._reap_now)),
        ]

    async def close(self) -> None:
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)

    def reap_soon(self) -> None:
        self._reap_now.set()

    async def save(self) -> None:
        for lost in await save(self._direct, [one for one in self._running.values() if not one.is_ending]):
            self._give_up(lost)

    async def _reap(self) -> None:
        """Take over what nobody writes any more. Silence counts only while the database could be reached from here."""
        if not self.takes_over or not await self._database_was_there():
            return
        values = {"silent": timedelta(seconds=self._abandoned_after), "ours": list(self._running)}
        for row in await self._direct.as_worker(statements.TAKE_OVER, values):
            await self._resume(row)

    async def _database_was_there(self) -> bool:
        if self._database_back_at == float("inf"):
            await self._direct.as_worker("SELECT 1", {})
            self._database_back_at = time.monotonic()
        return time.monotonic() - self._database_back_at >= self._abandoned_after

    async def _repeat(self, work: Callable[[], Awaitable[None]], every: float, at_once: asyncio.Event) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await at_once.wait()
            at_once.clear()
            try:
                await work()
            except DatabaseGone as error:
                self._database_back_at = float("inf")
                log.warning("the database is away: %s", type(error).__name__)
            except Exception:
                # The outermost place of a loop that must outlive its faults: without it nothing is saved any more.
                log.exception("a loop of the turns stumbled")


async def save(direct: Direct, answers: Sequence[Running]) -> list[Running]:
    """Heartbeats and new parts of all running answers in one statement; returns those that lost their row."""
    if not answers:
        return []
    texts = [one.live.text[one.saved.text :] for one in answers]
    reasonings = [one.live.reasoning[one.saved.reasoning :] for one in answers]
    rows = await direct.as_heartbeat(
        statements.SAVE,
        {
            "ids": [one.answer_id for one in answers],
            "attempts": [one.live.attempt for one in answers],
            "numbers": [one.saved.parts for one in answers],
            "texts": texts,
            "reasonings": reasonings,
            "begun": [one.live.phase is not Phase.WAITING for one in answers],
            "provenances": [_news_of_origin(one) for one in answers],
        },
    )
    ours = {row.id for row in rows}
    for one, text, reasoning in zip(answers, texts, reasonings, strict=True):
        if one.answer_id not in ours:
            continue
        one.saved.endpoint = one.endpoint if one.live.written else None
        if text or reasoning:
            one.saved.text += len(text)
            one.saved.reasoning += len(reasoning)
            one.saved.parts += 1
    return [one for one in answers if one.answer_id not in ours]


def _news_of_origin(one: Running) -> Jsonb | None:
    """Its provenance so far, once it has begun and as long as its row does not tell."""
    return Jsonb(one.provenance) if one.live.written and one.endpoint is not one.saved.endpoint else None

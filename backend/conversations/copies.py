"""Answers across processes: a copy of one that another process writes, for the readers who came here.

The reader's process says every few seconds that it wants an answer; only then, and only so long, does the writer's
process tell what the answer gains. Every piece says where it belongs. What was missed is read from the row, which
lags behind by a second at most, and which also tells when the writer has died.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from backend.conversations import statements
from backend.conversations.live import LiveAnswer, Phase, Tick
from backend.conversations.models import Status
from backend.conversations.running import Running
from backend.core.bus import Bus, Payload
from backend.core.db import DatabaseGone
from backend.core.direct import Direct
from backend.engines.pool import Place

log = logging.getLogger(__name__)

_LEASE_SECONDS = 12.0  # how long the writer goes on telling after it was last asked
_RENEW_SECONDS = 4.0
_SILENCE_SECONDS = 1.5  # a row is read again after so long without a word
_TELL_SECONDS = 0.05
_PIECE = 600  # characters, of text and of reasoning; in JSON each takes six bytes at most, and a message 7,900


def topic_of(answer_id: UUID) -> str:
    return f"answer.{answer_id.hex}"


@dataclass
class _Lease:
    until: float
    text: int
    reasoning: int
    phase: Phase | None = None
    place: Place | None = None


class Teller:
    """The writer's side: tells other processes what the answers they want have gained."""

    def __init__(self, bus: Bus, running: Mapping[UUID, Running]) -> None:
        self._bus = bus
        self._running = running
        self._leases: dict[UUID, _Lease] = {}
        bus.on("want", self._wanted)

    def close(self) -> None:
        self._bus.off("want", self._wanted)

    def ended(self, running: Running) -> None:
        """The last row is written, or the answer was left to another process."""
        if self._leases.pop(running.answer_id, None):
            self._bus.post(topic_of(running.answer_id), {"attempt": running.live.attempt, "over": True})

    def _wanted(self, payload: Payload) -> None:
        running = self._running.get(UUID(payload["answer"]))
        if running is None:
            return
        if not self._leases:
            asyncio.get_running_loop().call_later(_TELL_SECONDS, self._tell)
        lease = self._leases.setdefault(running.answer_id, _Lease(0, running.saved.text, running.saved.reasoning))
        lease.until = time.monotonic() + _LEASE_SECONDS
        lease.phase = None  # perhaps it is somebody new, who cannot know what the answer is doing

    def _tell(self) -> None:
        moment = time.monotonic()
        for answer_id, lease in list(self._leases.items()):
            running = self._running.get(answer_id)
            if running is None or lease.until < moment:
                del self._leases[answer_id]
        if self._leases:
            asyncio.get_running_loop().call_later(_TELL_SECONDS, self._tell)
        for answer_id, lease in list(self._leases.items()):
            self._tell_of(self._running[answer_id], lease)

    def _tell_of(self, running: Running, lease: _Lease) -> None:
        live = running.live
        text, reasoning = live.text[lease.text :], live.reasoning[lease.reasoning :]
        if not text and not reasoning and lease.phase is live.phase and lease.place == live.place:
            return
        lease.phase, lease.place = live.phase, live.place
        for at in range(0, max(len(text), len(reasoning), 1), _PIECE):
            self._bus.post(
                topic_of(running.answer_id),
                {
                    "attempt": live.attempt,
                    "phase": live.phase.value,
                    "place": live.place and list(live.place),
                    "text_at": lease.text + min(at, len(text)),
                    "text": text[at : at + _PIECE],
                    "reasoning_at": lease.reasoning + min(at, len(reasoning)),
                    "reasoning": reasoning[at : at + _PIECE],
                },
            )
        lease.text += len(text)
        lease.reasoning += len(reasoning)


class Copies:
    """The reader's side: one copy for all readers of an answer here."""

    def __init__(self, bus: Bus, direct: Direct, tick: Tick) -> None:
        self._bus = bus
        self._direct = direct
        self._tick = tick
        self._copies: dict[UUID, _Copy] = {}
        self._is_closed = False

    def close(self) -> None:
        """The process goes: its readers have to follow elsewhere."""
        self._is_closed = True
        for copy in self._copies.values():
            copy.live.finish()

    def end(self, answer_id: UUID) -> None:
        """The answer is written here from now on, and there is more to see of it."""
        if copy := self._copies.get(answer_id):
            copy.live.finish()

    @asynccontextmanager
    async def of(self, answer_id: UUID) -> AsyncIterator[LiveAnswer]:
        """Grows as the original does; finished when that has ended or nobody writes it any more."""
        if self._is_closed:
            ended = LiveAnswer(0)
            ended.finish()
            yield ended
            return
        copy = self._copies.get(answer_id)
        if copy is None:
            copy = self._copies[answer_id] = _Copy(answer_id, self._bus, self._direct, self._tick)
        copy.readers += 1
        try:
            await copy.is_loaded.wait()
            yield copy.live
        finally:
            copy.readers -= 1
            if not copy.readers:
                del self._copies[answer_id]
                await copy.aclose()


class _Copy:
    def __init__(self, answer_id: UUID, bus: Bus, direct: Direct, tick: Tick) -> None:
        self.readers = 0
        self.live = LiveAnswer(0, tick=tick)
        self.is_loaded = asyncio.Event()
        self._answer_id = answer_id
        self._bus = bus
        self._direct = direct
        self._look = asyncio.Event()  # something is missing: read the row
        self._heard_at = 0.0
        self._doing: tuple[int, Phase, Place | None] = (0, Phase.WAITING, None)  # in which attempt, as heard last
        self._task = asyncio.create_task(self._follow(), name=f"copy of {answer_id}")

    async def aclose(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        try:
            async with self._bus.listening(topic_of(self._answer_id), self._heard):
                await self._until_ended()
        finally:
            self.live.finish()
            self.is_loaded.set()

    async def _until_ended(self) -> None:
        asked_at = 0.0
        while not self.live.finished:
            if time.monotonic() - asked_at >= _RENEW_SECONDS:
                asked_at = time.monotonic()
                self._bus.post("want", {"answer": self._answer_id.hex})
            if self._look.is_set() or time.monotonic() - self._heard_at >= _SILENCE_SECONDS:
                self._look.clear()
                await self._read_row()
            try:
                async with asyncio.timeout(_SILENCE_SECONDS):
                    await self._look.wait()
            except TimeoutError:
                continue

    async def _read_row(self) -> None:
        try:
            rows = await self._direct.as_worker(statements.PROGRESS, {"answer": self._answer_id})
        except DatabaseGone:
            log.warning("the database is away: a copy of an answer waits")
            return
        if not rows or not Status(rows[0].status).running:
            self.live.finish()
            return
        row = rows[0]
        self.is_loaded.set()
        if row.attempt != self.live.attempt:
            self.live.attempt = row.attempt
        elif len(row.text) + len(row.reasoning) <= len(self.live.text) + len(self.live.reasoning):
            return
        attempt, phase, place = self._doing
        if attempt != row.attempt:
            phase, place = Phase.WRITING if row.text else self.live.phase, None
        self.live.set(phase, row.text, row.reasoning, place)

    def _heard(self, payload: Payload) -> None:
        live = self.live
        self._heard_at = time.monotonic()
        if payload["attempt"] < live.attempt or live.finished:
            return
        if payload.get("over"):
            self._look.set()  # ended, or on its way to another process: the row knows
            return
        phase, place = Phase(payload["phase"]), payload["place"] and Place(*payload["place"])
        self._doing = (payload["attempt"], phase, place)
        text = _grown(live.text, payload["text_at"], payload["text"])
        reasoning = _grown(live.reasoning, payload["reasoning_at"], payload["reasoning"])
        if payload["attempt"] > live.attempt or text is None or reasoning is None:
            self._look.set()
            return
        live.set(phase, text, reasoning, place)


def _grown(known: str, at: int, piece: str) -> str | None:
    """`known` with `piece` at its place; None when something between them is missing."""
    if at > len(known):
        return None
    return known + piece[len(known) - at :]

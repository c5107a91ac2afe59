"""A turn from start to finish: the crux of Parley.

    ask()        stores question and empty answer in one statement; its commit is the acknowledgement (`asking.py`)
    regenerate() another answer to the same question, beside the one that is there
    proceed()    takes an answer up where it broke off
    _write()     a task of the process, not of the request (`writing.py`)
    follow()     the answer as its readers see it grow, wherever it is written (`web/chat/following.py`, `copies.py`)
    stop()       ends it, and keeps what was shown
    _resume()    goes on with the answer of a process that died

Meanwhile `upkeep.py` saves, about once a second and for all running answers at once, what they gained; that is also
their heartbeat. A lost browser changes nothing. Only `stop` makes an answer `stopped`.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from backend.conversations import statements
from backend.conversations.asking import Asking, Question, Turn
from backend.conversations.copies import Copies, Teller
from backend.conversations.live import LiveAnswer, Tick
from backend.conversations.models import Message, Status
from backend.conversations.running import Ended, Running, segments
from backend.conversations.titles import Titles
from backend.conversations.upkeep import Upkeep
from backend.conversations.writing import Writer, reason_of
from backend.core.bus import Bus, Payload
from backend.core.db import Sessions
from backend.core.direct import Direct
from backend.core.errors import Unavailable
from backend.core.i18n import _
from backend.engines import trials
from backend.engines.aliases import Aliases
from backend.engines.parameters import Parameters
from backend.engines.pool import Pool
from backend.engines.registry import Registry

log = logging.getLogger(__name__)

_MOST_RESUMED = 2  # times an answer is taken up by itself: one that kills its process must not do so for ever
_STOPS_KEPT = 1_000  # enough for those that come while a statement runs
_HEAD_START = 3  # turns of the event loop that a new answer has before its page is drawn: the engine comes first


@dataclass(frozen=True)
class Timing:
    """Seconds; tests scale them down."""

    save_every: float = 1.0
    abandoned_after: float = 5.0
    reap_every: float = 1.0
    drain: float = 10.0
    patience: float = 30.0


class Turns:
    """Owns every answer this process writes; use as `async with Turns(…)`, leaving it drains them."""

    def __init__(
        self,
        sessions: Sessions,
        direct: Direct,
        bus: Bus,
        registry: Registry,
        pool: Pool,
        titles: Titles,
        *,
        aliases: Aliases,
        message_bytes: int,
        files_per_message: int,
        timing: Timing = Timing(),
    ) -> None:
        self._direct = direct
        self._bus = bus
        self._registry = registry
        self._titles = titles
        self._timing = timing
        self._tick = Tick()
        self._running: dict[UUID, Running] = {}
        self._asking = Asking(
            sessions,
            direct,
            registry,
            self._tick,
            message_bytes=message_bytes,
            files_per_message=files_per_message,
        )
        self._writer = Writer(
            sessions,
            direct,
            registry,
            pool,
            titles,
            aliases=aliases,
            retry_every=timing.save_every,
            patience=timing.patience,
        )
        self._copies = Copies(bus, direct, self._tick)
        self._teller = Teller(bus, self._running)
        self._upkeep = Upkeep(
            direct,
            self._running,
            give_up=lambda lost: self._cancel(lost, Status.INTERRUPTED),
            resume=self._resume,
            save_every=timing.save_every,
            reap_every=timing.reap_every,
            abandoned_after=timing.abandoned_after,
        )
        self._draining = False
        self._stops: deque[tuple[float, set[UUID]]] = deque(maxlen=_STOPS_KEPT)

    async def __aenter__(self) -> Self:
        self._bus.on("stop", self._told_to_stop)
        self._bus.on("handed-over", self._told_to_reap)
        self._upkeep.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.begin_drain()
        tasks = [running.task for running in self._running.values() if running.task]
        if tasks:
            await asyncio.wait(tasks, timeout=self._timing.drain)
            self._leave_to_others()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._upkeep.close()
        self._bus.off("stop", self._told_to_stop)
        self._bus.off("handed-over", self._told_to_reap)
        self._teller.close()

    @property
    def registry(self) -> Registry:
        """Where the models come from."""
        return self._registry

    @property
    def is_draining(self) -> bool:
        return self._draining

    @property
    def is_busy(self) -> bool:
        """Answers are being written here."""
        return bool(self._running)

    def begin_drain(self) -> None:
        """No new answers; running ones may finish for `drain` seconds, the rest are left to another process, or to
        this one after its restart."""
        if not self._draining:
            self._draining = self._writer.gives_up = True
            self._upkeep.takes_over = False
            asyncio.get_running_loop().call_later(self._timing.drain, self._leave_to_others)

    def _leave_to_others(self) -> None:
        self._copies.close()
        for running in self._running.values():
            self._cancel(running, None)

    # Asking

    async def ask(self, owner_id: UUID, conversation_id: UUID | None, question: Question) -> Turn:
        """Store a question and its empty answer, and start writing. Without a conversation one is begun.

        The same `send_key` again gives the same turn again, whatever its state. Raises BadInput, TooLarge,
        AnswerInProgress, NotFound (a foreign conversation, `after` or `edits`), Conflict (the key had another text),
        Forbidden (deactivated a moment ago).
        """
        self._refuse_while_draining()
        began = time.monotonic()
        turn, running = await self._asking.question(owner_id, conversation_id, question)
        if running:
            await self._begin(running, began)
        return turn

    async def regenerate(
        self,
        answer: Message,
        model_id: UUID | None = None,
        instruction: str = "",
        parameters: Parameters | None = None,
    ) -> Message:
        """Answer the same question again, beside `answer`: by another model, or with a wish such as "shorter".

        Without a model it is the same one, or what took its place. Raises AnswerInProgress, BadInput (the model is
        gone), NotFound (the conversation is gone).
        """
        self._refuse_while_draining()
        began = time.monotonic()
        again, running = await self._asking.again(answer, model_id, instruction, parameters)
        await self._begin(running, began)
        return again

    async def proceed(self, answer: Message) -> UUID:
        """Go on with an answer where it broke off; returns the answer that is written now.

        It is the same one, whose text only grows, where `can_proceed`; else that of a new turn, the same one however
        often it is asked for. Raises AnswerInProgress, Conflict (it is whole, or not the last one), BadInput (the
        model is gone).
        """
        self._refuse_while_draining()
        if self.can_proceed(answer):
            self._start(await self._asking.reopened(answer))
            return answer.id
        wish = await self._asking.wish_to_go_on(answer)
        return (await self.ask(answer.owner_id, answer.conversation_id, wish)).answer.id

    def can_proceed(self, answer: Message) -> bool:
        """Whether an engine of its model picks an answer up where it broke off; else only a new turn can go on."""
        offer = self._registry.offer_for(answer.owner_id, answer.model_id)
        if offer is None or offer.in_maintenance:
            return False
        return bool(answer.text) and any(
            each.continues and trials.may_go_on(offer, each, answer.provenance) for each in offer.endpoints
        )

    def _refuse_while_draining(self) -> None:
        if self._draining:
            sentence = _("Parley is restarting. Your text is kept; send it again in a moment.")
            raise Unavailable(sentence, retry_after=5)

    # Writing

    async def _begin(self, running: Running, began: float) -> None:
        """Start writing a new answer, which was asked for at the moment `began`: whoever was told to stop since then
        means this one, too."""
        self._start(running)
        if any(moment >= began and named & running.names for moment, named in self._stops):
            self._cancel(running, Status.STOPPED)  # it was told to stop while its first row was on its way
        for _step in range(_HEAD_START):
            await asyncio.sleep(0)

    def _start(self, running: Running) -> None:
        self._running[running.answer_id] = running
        self._copies.end(running.answer_id)
        running.task = asyncio.create_task(self._write(running), name=f"answer {running.answer_id}")

    async def _write(self, running: Running) -> None:
        ended: Ended | None = None
        try:
            ended = await self._writer.write(running)
            if ended is None:
                self._bus.post("handed-over", {})
            else:
                self._consider_title(running, ended)
        finally:
            self._running.pop(running.answer_id, None)
            running.live.finish(running.final(ended) if ended else None)
            self._teller.ended(running)
            if running.endpoint:
                self._titles.resume(running.endpoint.engine_id)

    def _consider_title(self, running: Running, ended: Ended) -> None:
        """By the model as it is now: it may have been taken from the person meanwhile."""
        offer = self._registry.offer_for(running.owner_id, running.offer.id)
        has_ended_well = ended.status in (Status.DONE, Status.STOPPED) and running.live.text
        if offer and running.endpoint and has_ended_well:
            self._titles.consider(running.conversation_id, running.owner_id, offer, running.endpoint.engine_id)

    # Reading

    def live(self, answer_id: UUID) -> LiveAnswer | None:
        """The answer as it is being written, if this process writes it."""
        running = self._running.get(answer_id)
        return running.live if running else None

    def writes_for(self, answer_id: UUID, conversation_id: UUID, owner_id: UUID) -> bool:
        """Whether this process writes the answer, and for this person: then a reader needs no look at the rows."""
        running = self._running.get(answer_id)
        return running is not None and (running.conversation_id, running.owner_id) == (conversation_id, owner_id)

    @asynccontextmanager
    async def follow(self, answer_id: UUID) -> AsyncIterator[LiveAnswer]:
        """The growing answer, for a reader who is here, wherever it is written. Finished at once if it is over."""
        running = self._running.get(answer_id)
        if running is None:
            async with self._copies.of(answer_id) as copy:  # finished as well once this process goes
                yield copy
            return
        running.readers += 1
        try:
            yield running.live
        finally:
            running.readers -= 1

    # Stopping

    async def stop(self, answer: Message) -> None:
        """End a running answer as stopped, keeping what was shown; the engine's connection closes at once.

        Hold no transaction meanwhile: storing the end needs a connection of its own.
        """
        if answer.id not in self._running:
            await self._bus.publish("stop", {"answer": answer.id.hex})
            await self._until_over(answer.id, self._timing.abandoned_after / 4)
        if running := self._running.get(answer.id):  # perhaps only now: it was taken over here meanwhile
            self._cancel(running, Status.STOPPED)
            if running.task is not None:
                await asyncio.wait([running.task], timeout=self._timing.drain)
        if answer.id not in self._running:
            await self._close(answer.id, Status.STOPPED)

    async def _until_over(self, answer_id: UUID, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            rows = await self._direct.as_worker(statements.PROGRESS, {"answer": answer_id})
            if not rows or not Status(rows[0].status).running:
                return
            await asyncio.sleep(0.02)

    def stop_all(self, *, conversation_id: UUID | None = None, owner_id: UUID | None = None) -> None:
        """Stop what belongs to a conversation or a person that is going away, in every process; does not wait."""
        about = {"conversation": conversation_id, "owner": owner_id}
        payload = {name: id_.hex for name, id_ in about.items() if id_ is not None}
        self._told_to_stop(payload)
        self._bus.post("stop", payload)

    def _told_to_stop(self, payload: Payload) -> None:
        named = {UUID(value) for value in payload.values()}
        self._stops.append((time.monotonic(), named))
        for running in self._running.values():
            if named & running.names:
                self._cancel(running, Status.STOPPED)

    def _cancel(self, running: Running, verdict: Status | None) -> None:
        if running.task is not None and not running.is_cancelled and not running.is_ending:
            running.is_cancelled = True
            running.verdict = verdict
            if running.has_begun:  # a task that is cancelled before its first step would never come to its last row
                running.task.cancel()

    async def _close(self, answer_id: UUID, status: Status, *, attempt: int | None = None) -> None:
        values = {"answer": answer_id, "attempt": attempt, "status": status.value, "reason": reason_of(status)}
        await self._direct.as_worker(statements.CLOSE, values)

    # Taking over

    async def _resume(self, row: Any) -> None:
        """Go on with an answer whose process is gone; one without text starts again from its question."""
        offer = self._registry.offer(row.model_id)
        marks = {"answer_id": row.id, "user_id": row.owner_id}
        if offer is None or row.resumed > _MOST_RESUMED:
            log.warning("an answer lost its writer and was closed", extra=marks)
            await self._close(row.id, Status.INTERRUPTED, attempt=row.attempt)
            return
        log.warning("an answer lost its writer and goes on here", extra=marks)
        live = LiveAnswer(row.attempt, row.text, row.reasoning, tick=self._tick)
        earlier = segments(row.provenance)
        running = Running(
            row.id,
            row.owner_id,
            row.conversation_id,
            offer,
            live,
            chosen=Parameters.read(row.parameters),
            earlier=earlier,
            resumed=row.resumed,
        )
        self._start(running)

    def _told_to_reap(self, _payload: Payload) -> None:
        self._upkeep.reap_soon()

"""Admission: who may start an answer now, fairly between all people of all processes.

    async with admission.enter(model_id, person_id, Urgency.CHAT, cost=900, on_place=show) as ticket:
        ...                       # at once if there is room, else once it is its turn
        ticket.accepted()         # the engine took it
        ticket.spent(1_234)       # what it really cost

One process decides for all, whatever the model: a person's limit counts over all models. The processes elect it by a
lock of the database (`Bus.lead`). There a request costs a function call; the others ask over the bus. What is decided
is kept in memory only: a new leader is told by everybody what waits and what runs.

While the bus is away, or the leader is silent, nobody is stuck: each process decides for itself, with its share of each
limit, which is the limit divided by the processes it knew of, and at least one. Then more may run than the limits say,
until they hear each other again.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from itertools import count
from types import TracebackType
from typing import Self
from uuid import UUID

from backend.admission.dispatcher import Dispatcher, Pace
from backend.admission.fair import Fair
from backend.admission.follower import Follower
from backend.admission.messages import SHARED, topic_of
from backend.admission.wishes import Place, Urgency, Wish
from backend.core.bus import Bus, Payload

__all__ = ["Admission", "Pace", "Place", "Ticket", "Urgency"]

log = logging.getLogger(__name__)

OnPlace = Callable[[Place], None]

_USUAL = Pace()


class Ticket:
    """`async with` it: entered once its turn has come, and left again whatever happens."""

    def __init__(self, admission: "Admission", number: int, wish: Wish, on_place: OnPlace) -> None:
        self.number = number
        self.wish = wish
        self.on_place = on_place
        self.began: float | None = None
        self._admission = admission
        self._turn: asyncio.Future[None] | None = None
        self._spent: int | None = None
        self._accepted = False

    async def __aenter__(self) -> Self:
        self._admission._enter(self)
        if self.began is None:
            self._turn = asyncio.get_running_loop().create_future()
            try:
                await self._turn
            except BaseException:
                self._admission._leave(self, None, False)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission._leave(self, self._spent, self._accepted)

    def spent(self, tokens: int, /) -> None:
        """What it really cost, in place of the estimate."""
        self._spent = tokens

    def accepted(self) -> None:
        """The engine took it."""
        self._accepted = True

    def refused(self, retry_after: float | None, /) -> None:
        """The engine has too much to do, and wants to be left alone for so many seconds."""
        self._admission._refuse(self, retry_after)

    def start(self) -> None:
        self.began = time.monotonic()
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)


class Admission:
    """`async with Admission(bus, …)`. `limit_of` a model is how many answers it gives at once, None: nobody knows;
    `weight_of` a person is their share beside others."""

    def __init__(
        self,
        bus: Bus,
        *,
        limit_of: Callable[[UUID], int | None],
        weight_of: Callable[[UUID], int],
        per_person: int,
        pace: Pace = _USUAL,
    ) -> None:
        self._bus = bus
        self._limit_of = limit_of
        self._weight_of = weight_of
        self._per_person = per_person
        self._pace = pace
        self._tickets: dict[int, Ticket] = {}
        self._numbers = count(1)
        self._lines = count(1)
        self._seen: dict[str, float] = {}  # other processes, and when one last knew of them
        self._desk: Dispatcher | Follower = Dispatcher(bus, self._fair(), self, pace)
        self._beating: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._bus.on(SHARED, self._announced)
        self._bus.on(topic_of(self._bus.process_id), self._told)
        await self._bus.listen(topic_of(self._bus.process_id))
        self._sit_at(self._follower())
        await self._bus.lead(SHARED, self._led)
        self._say_hello()
        self._beating = asyncio.create_task(self._beat_for_ever(), name="admission")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._beating is not None
        self._beating.cancel()
        await asyncio.gather(self._beating, return_exceptions=True)
        await self._bus.resign(SHARED)
        if isinstance(self._desk, Follower):
            self._desk.say_goodbye()
        else:
            self._desk.close()
        self._bus.off(SHARED, self._announced)
        self._bus.off(topic_of(self._bus.process_id), self._told)
        await self._bus.unlisten(topic_of(self._bus.process_id))

    def enter(self, model_id: UUID, person_id: UUID, urgency: Urgency, *, cost: int, on_place: OnPlace) -> Ticket:
        """`cost` is an estimate of the tokens of prompt and answer; `on_place` (plain, quick) hears where it stands in
        line, about once a second and only if that has changed. Whoever stops waiting just goes."""
        return Ticket(self, next(self._numbers), Wish(model_id, person_id, urgency, max(1, cost)), on_place)

    def waiting(self, model_id: UUID) -> int:
        """How many wait for the model, in all processes; about a second late where another one leads."""
        return self._desk.waiting(model_id)

    def running(self, model_id: UUID) -> int:
        return self._desk.running(model_id)

    # The tickets of this process

    def granted(self, number: int) -> None:
        ticket = self._tickets.get(number)
        if ticket is not None and ticket.began is None:
            ticket.start()

    def placed(self, number: int, place: Place) -> None:
        ticket = self._tickets.get(number)
        if ticket is not None and ticket.began is None:
            ticket.on_place(place)

    def held(self) -> Iterator[tuple[int, Wish, float | None]]:
        for number, ticket in self._tickets.items():
            yield number, ticket.wish, ticket.began

    def _enter(self, ticket: Ticket) -> None:
        self._tickets[ticket.number] = ticket
        if isinstance(self._desk, Follower) and not self._bus.connected:
            self._sit_at(self._alone())
        else:
            self._desk.enter(ticket.number, ticket.wish)

    def _leave(self, ticket: Ticket, spent: int | None, accepted: bool) -> None:
        del self._tickets[ticket.number]
        self._desk.leave(ticket.number, spent, accepted)

    def _refuse(self, ticket: Ticket, retry_after: float | None) -> None:
        self._desk.refused(ticket.number, retry_after)

    # Who decides

    def _led(self, moment: float | None) -> None:
        """This process leads, or does not any more because it hears nothing."""
        if moment is not None:
            expected = self._others() - {self._desk.leader if isinstance(self._desk, Follower) else None}
            leader = Dispatcher(self._bus, self._fair(), self, self._pace, moment=moment, expected=expected)
            self._sit_at(leader)
            leader.announce()
        elif isinstance(self._desk, Dispatcher) and self._desk.moment is not None:
            self._sit_at(self._alone())

    def _announced(self, said: Payload) -> None:
        desk = self._desk
        if "hello" in said:
            if isinstance(desk, Dispatcher) and desk.moment is not None:
                desk.greeted(said["hello"])
            return
        if isinstance(desk, Dispatcher):
            if desk.moment is not None and desk.moment > said["moment"]:
                return  # that one has not noticed yet that it lost the lead
            desk = self._follower()
            self._sit_at(desk)
        desk.announced(said)

    def _told(self, said: Payload) -> None:
        if said["leads"] is isinstance(self._desk, Follower):
            self._desk.told(said)

    def _alone(self) -> Dispatcher:
        share = 1 + len(self._others())

        def limit_of(model_id: UUID) -> int | None:
            limit = self._limit_of(model_id)
            return limit if limit is None else max(1, limit // share)

        return Dispatcher(self._bus, self._fair(limit_of), self, self._pace)

    def _others(self) -> set[str]:
        """The other processes that are there, or were a moment ago."""
        moment = time.monotonic()
        self._seen |= dict.fromkeys(self._desk.others, moment)
        self._seen = {name: seen for name, seen in self._seen.items() if moment - seen < 2 * self._pace.silence}
        return set(self._seen)

    def _follower(self) -> Follower:
        return Follower(self._bus, self, self._pace, self._lines)

    def _fair(self, limit_of: Callable[[UUID], int | None] | None = None) -> Fair:
        return Fair(per_person=self._per_person, limit_of=limit_of or self._limit_of, weight_of=self._weight_of)

    def _sit_at(self, desk: Dispatcher | Follower) -> None:
        if isinstance(self._desk, Dispatcher):
            self._desk.close()
        self._desk = desk

    def _say_hello(self) -> None:
        if isinstance(self._desk, Follower):
            self._bus.post(SHARED, {"hello": self._bus.process_id})

    # The beat

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._pace.beat)
            try:
                self._beat()
            except Exception:
                # The outermost frame of a task that everybody who waits depends on.
                log.exception("a beat of admission failed")

    def _beat(self) -> None:
        desk = self._desk
        if isinstance(desk, Follower) and desk.is_lost:
            log.warning("nobody decides who may start: this process decides for itself")
            desk = self._alone()
            self._sit_at(desk)
        self._others()
        if isinstance(desk, Dispatcher) and desk.moment is None and self._bus.connected:
            self._bus.post(SHARED, {"hello": self._bus.process_id})
        desk.beat()

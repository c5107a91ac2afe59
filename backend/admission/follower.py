"""A process that asks the one that leads."""

import time
from collections.abc import Iterator
from uuid import UUID

from backend.admission.dispatcher import Owner, Pace
from backend.admission.messages import Receiver, Sender, written
from backend.admission.wishes import Place, Wish
from backend.core.bus import Bus, Payload


class Follower:
    """Until it has heard who leads, what is asked waits, and is told then."""

    def __init__(self, bus: Bus, owner: Owner, pace: Pace, lines: Iterator[int]) -> None:
        self.leader: str | None = None
        self.others: set[str] = set()
        self._bus = bus
        self._owner = owner
        self._pace = pace
        self._lines = lines
        self._moment = 0.0  # when that one began
        self._heard_at = time.monotonic()
        self._sender: Sender | None = None
        self._receiver = Receiver(0)
        self._load: dict[UUID, tuple[int, int]] = {}

    def say_goodbye(self) -> None:
        """The process ends, and the leader need not wait for the silence."""
        if self._sender:
            self._sender.send(bye=True)

    @property
    def is_lost(self) -> bool:
        """Nobody leads who can be heard."""
        return not self._bus.connected or time.monotonic() - self._heard_at > self._pace.silence

    # What the own process says

    def enter(self, number: int, wish: Wish) -> None:
        if self._sender:
            self._sender.send(asks=[written(number, wish)])

    def leave(self, number: int, spent: int | None, accepted: bool) -> None:
        if self._sender:
            self._sender.send(left=[number, spent, accepted])

    def refused(self, number: int, retry_after: float | None) -> None:
        if self._sender:
            self._sender.send(refused=[number, retry_after])

    def waiting(self, model_id: UUID) -> int:
        return self._load.get(model_id, (0, 0))[0]

    def running(self, model_id: UUID) -> int:
        return self._load.get(model_id, (0, 0))[1]

    def beat(self) -> None:
        if self._sender:
            self._sender.send()

    # What the leader says

    def announced(self, said: Payload) -> None:
        """To everybody."""
        if said["moment"] < self._moment:
            return  # it does not know yet that another one leads now
        self._heard_at = time.monotonic()
        self._load = {UUID(model_id): (waiting, running) for model_id, waiting, running in said["load"]}
        self.others = {said["leader"], *said["lines"]} - {self._bus.process_id}
        if said["moment"] > self._moment:
            self.leader, self._moment = said["leader"], said["moment"]
            self._tell_all()
        elif said["lines"].get(self._bus.process_id) not in (None, [self._receiver.line, self._receiver.heard]):
            self._check(*said["lines"][self._bus.process_id])

    def told(self, said: Payload) -> None:
        """To this process."""
        if said["from"] != self.leader:
            return
        if "again" in said:
            if said["again"] == self._receiver.line:
                self._tell_all()
        elif self._receiver.takes(said):
            for number in said.get("grants", ()):
                self._owner.granted(number)
            for number, *place in said.get("places", ()):
                self._owner.placed(number, Place(*place))
        else:
            self._check(said["line"], said["n"])

    def _check(self, line: int, sent: int) -> None:
        """Words on an earlier line do not matter; one that is missing on this one does."""
        if line == self._receiver.line and sent != self._receiver.heard:
            self._tell_all()

    def _tell_all(self) -> None:
        """On a new line: what waits and what runs here."""
        assert self.leader is not None
        line = next(self._lines)
        self._receiver = Receiver(line)
        self._sender = Sender(self._bus, self.leader, line, leads=False)
        moment = time.monotonic()
        held = list(self._owner.held())
        runs = [written(number, wish, round(moment - began, 3)) for number, wish, began in held if began is not None]
        self._sender.send_all("runs", runs)
        self._sender.send_all("asks", [written(number, wish) for number, wish, began in held if began is None])
        self._sender.send(whole=True)

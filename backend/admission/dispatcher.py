"""The one that decides: for its own process, and while it leads for all others, by what they tell.

Nothing of it is stored. A new leader hears from everybody what waits and what runs there, and lets nobody start until
those it knows of have told it, or a moment has passed. What a process has is free once it was silent for a while.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from backend.admission.fair import Fair
from backend.admission.messages import SHARED, Receiver, Sender, read, topic_of
from backend.admission.telling import Places
from backend.admission.wishes import Place, Wish
from backend.core.bus import Bus, Payload

log = logging.getLogger(__name__)

_MOST_MODELS = 80  # whose load fits into one message


@dataclass(frozen=True)
class Pace:
    """Seconds; tests scale them down."""

    beat: float = 1.0  # a process that has nothing to say says so; and the places of those who wait are told
    silence: float = 5.0  # a process is taken for gone


class Owner(Protocol):
    """Has the requests of this process."""

    def granted(self, number: int) -> None: ...
    def placed(self, number: int, place: Place) -> None: ...
    def held(self) -> Iterable[tuple[int, Wish, float | None]]:
        """All of them, the oldest first, with the moment they started; None: they wait."""


@dataclass
class _Peer:
    """Another process that asks here."""

    sender: Sender
    receiver: Receiver
    numbers: set[int]  # of what it has, waiting and running
    heard_at: float
    unconfirmed: set[int] = field(default_factory=set)  # of these, what it has not named since its line began


class Dispatcher:
    """`moment` is when this process began to lead; None: it decides for itself alone."""

    def __init__(
        self,
        bus: Bus,
        fair: Fair,
        owner: Owner,
        pace: Pace,
        *,
        moment: float | None = None,
        expected: Iterable[str] = (),
    ) -> None:
        """Begins with what its own process has; `expected` are the others it waits for."""
        self.moment = moment
        self._bus = bus
        self._me = bus.process_id
        self._fair = fair
        self._owner = owner
        self._pace = pace
        self._peers: dict[str, _Peer] = {}
        self._expected = set(expected)
        self._holds_until = time.monotonic() + pace.silence / 2
        self._asked_again: dict[str, float] = {}
        self._greeted: dict[str, float] = {}  # who said hello, when, and nothing else so far
        self._places = Places(fair, self._tell_places, every=pace.beat)
        for number, wish, began in owner.held():
            if began is None:
                fair.enter((self._me, number), wish)
            else:
                fair.resume((self._me, number), wish, began)
        self._start()

    def close(self) -> None:
        self._places.close()

    @property
    def others(self) -> set[str]:
        """The other processes, as far as they are known."""
        return {*self._peers, *self._expected, *self._greeted}

    # What the own process says

    def enter(self, number: int, wish: Wish) -> None:
        self._fair.enter((self._me, number), wish)
        self._start()

    def leave(self, number: int, spent: int | None, accepted: bool) -> None:
        self._left(self._me, number, spent, accepted)
        self._start()

    def refused(self, number: int, retry_after: float | None) -> None:
        self._fair.refused((self._me, number), time.monotonic(), retry_after)

    def waiting(self, model_id: UUID) -> int:
        return self._fair.waiting(model_id)

    def running(self, model_id: UUID) -> int:
        return self._fair.running(model_id)

    # What happens by itself

    def beat(self) -> None:
        """Once in a while: say who leads, forget who is gone, and look again at those who wait."""
        silent_since = time.monotonic() - self._pace.silence
        for name in [name for name, peer in self._peers.items() if peer.heard_at < silent_since]:
            log.warning("process %s fell silent: what it had is free", name)
            self._forget(name)
        self._greeted = {name: moment for name, moment in self._greeted.items() if moment >= silent_since}
        if self._peers:
            self.announce()
        self._fair.touch()
        self._start(is_news=False)

    def greeted(self, name: str) -> None:
        """By a process that looks for who leads."""
        self._greeted[name] = time.monotonic()
        self.announce()

    def announce(self) -> None:
        """Who leads, who else is there, how far their lines have come, and how much there is to do."""
        lines = {name: [0, 0] for name in self._greeted}
        lines |= {name: [peer.sender.line, peer.sender.sent] for name, peer in self._peers.items()}
        load = [[model_id.hex, waiting, running] for model_id, waiting, running in self._fair.busy()]
        said = {"leader": self._me, "moment": self.moment, "lines": lines, "load": load[:_MOST_MODELS]}
        self._bus.post(SHARED, said)

    # What other processes say

    def told(self, said: Payload) -> None:
        name = said["from"]
        peer = self._speaking(name, said)
        if peer is None:
            return
        for item in said.get("asks", ()):
            self._asks(peer, (name, item[0]), read(item))
        for item in said.get("runs", ()):
            peer.numbers.add(item[0])
            peer.unconfirmed.discard(item[0])
            self._fair.resume((name, item[0]), read(item), time.monotonic() - item[5])
        if left := said.get("left"):
            peer.numbers.discard(left[0])
            self._left(name, *left)
        if refused := said.get("refused"):
            self._fair.refused((name, refused[0]), time.monotonic(), refused[1])
        if said.get("whole"):
            for number in peer.unconfirmed:
                self._left(name, number)
            peer.numbers -= peer.unconfirmed
            peer.unconfirmed = set()
            self._expected.discard(name)
        if said.get("bye"):
            self._forget(name)
        self._start()

    def _speaking(self, name: str, said: Payload) -> _Peer | None:
        """Whose word this is, where none before it was lost; else it is asked to tell everything."""
        moment, line = time.monotonic(), said["line"]
        peer = self._peers.get(name)
        if said["n"] == 1 and (peer is None or peer.receiver.line != line):
            numbers = peer.numbers if peer else set()
            sender = Sender(self._bus, name, line, leads=True)
            peer = self._peers[name] = _Peer(sender, Receiver(line), numbers, moment, set(numbers))
            self._greeted.pop(name, None)
        if peer is not None and peer.receiver.takes(said):
            peer.heard_at = moment
            return peer
        if moment - self._asked_again.get(name, 0) >= self._pace.beat / 2:
            self._asked_again[name] = moment
            self._bus.post(topic_of(name), {"from": self._me, "leads": True, "again": line})
        return None

    def _asks(self, peer: _Peer, key: tuple[str, int], wish: Wish) -> None:
        peer.numbers.add(key[1])
        peer.unconfirmed.discard(key[1])
        is_running = self._fair.is_running(key)
        if is_running:
            peer.sender.send(grants=[key[1]])  # it has not heard of it
        elif is_running is None:
            self._fair.enter(key, wish)
        else:
            self._places.forget(key)

    def _forget(self, name: str) -> None:
        self._expected.discard(name)
        self._asked_again.pop(name, None)
        if peer := self._peers.pop(name, None):
            for number in peer.numbers:
                self._left(name, number)

    def _left(self, name: str, number: int, spent: int | None = None, accepted: bool = False) -> None:
        self._places.forget((name, number))
        self._fair.leave((name, number), time.monotonic(), spent=spent, accepted=accepted)

    # What is decided

    def _start(self, *, is_news: bool = True) -> None:
        """Whoever may start is told."""
        moment = time.monotonic()
        if self._expected and moment < self._holds_until:
            return
        self._expected.clear()
        grants: defaultdict[str, list[int]] = defaultdict(list)
        started = self._fair.start(moment)
        for key in started:
            self._places.forget(key)
            grants[key[0]].append(key[1])
        for name, numbers in grants.items():
            if name == self._me:
                for number in numbers:
                    self._owner.granted(number)
            else:
                self._peers[name].sender.send_all("grants", numbers)
        if self._fair.is_anybody_waiting and (is_news or started):
            self._places.changed()

    def _tell_places(self, name: str, places: Sequence[tuple[int, Place]]) -> None:
        if name == self._me:
            for number, place in places:
                self._owner.placed(number, place)
        elif peer := self._peers.get(name):
            peer.sender.send_all("places", [[number, *place] for number, place in places])

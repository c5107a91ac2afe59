"""What processes say to the one that leads, and what it answers: numbered, so that no word is lost unnoticed.

    process   asks       [number, model, person, urgency, cost]…           would like to start
              runs       [number, model, person, urgency, cost, seconds]…  has started already
              left       number, tokens spent, whether it came to an answer
              refused    number, seconds                                   the engine did not want it
              whole                                                        that was all there is
              bye                                                          the process ends
    leader    grants     number…                                           may start
              places     [number, ahead, seconds, own]…
              again                                                        a word was lost: tell everything anew

A process that begins to follow opens a line: a number under which everything is said from then on, both ways, and
counted from 1. Its first words are all that it has. Where a count does not fit, it opens another line, and both agree
again. Everybody hears, about once a second, who leads and how far each line has come; a process that has heard of
nobody says hello.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from backend.admission.wishes import Urgency, Wish
from backend.core.bus import Bus, Payload

SHARED = "admission"  # what everybody hears

_AT_ONCE = 60  # items in one message: each takes 120 bytes at most, and a message 7,900


def topic_of(process_id: str) -> str:
    return f"{SHARED}.{process_id}"


class Sender:
    """One direction of a line."""

    def __init__(self, bus: Bus, to: str, line: int, *, leads: bool) -> None:
        self.line = line
        self.sent = 0
        self._bus = bus
        self._topic = topic_of(to)
        self._head = {"from": bus.process_id, "leads": leads, "line": line}

    def send(self, **what: object) -> None:
        self.sent += 1
        self._bus.post(self._topic, {**self._head, "n": self.sent, **what})

    def send_all(self, name: str, items: Sequence[object]) -> None:
        """In as many messages as it takes."""
        for at in range(0, len(items), _AT_ONCE):
            self.send(**{name: items[at : at + _AT_ONCE]})


class Receiver:
    """The other one."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.heard = 0

    def takes(self, said: Payload) -> bool:
        """Whether this is the next word of the line."""
        if said["line"] != self.line or said["n"] != self.heard + 1:
            return False
        self.heard += 1
        return True


def written(number: int, wish: Wish, *more: object) -> Sequence[object]:
    return [number, wish.model_id.hex, wish.person_id.hex, wish.urgency.value, wish.cost, *more]


def read(item: Sequence[Any]) -> Wish:
    return Wish(UUID(item[1]), UUID(item[2]), Urgency(item[3]), item[4])

"""What the scheduler counts: requests in the lines of people, and in whose turn the lines stand."""

import heapq
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import count
from uuid import UUID

from backend.admission.allowance import Allowance
from backend.admission.wishes import Urgency, Wish

Key = tuple[str, int]  # of a request: its process, and its number there

_WEIGHT_OF_NEWS = 0.1  # of the last answer's seconds in the average


@dataclass(slots=True, eq=False)
class Flow:
    """One person's line in one class of one model."""

    line: "Line"
    ring: "Ring"
    person_id: UUID
    due: float  # the round in which the deficit is paid
    waiting: "OrderedDict[Key, Request]" = field(default_factory=OrderedDict)
    running: int = 0
    entry: int | None = None  # of the ring's heap; None: not in it, because nothing waits or the person has enough


@dataclass(slots=True, eq=False)
class Request:
    key: Key
    wish: Wish
    flow: Flow
    began: float | None = None  # None: it waits
    is_refused: bool = False


class Ring:
    """One class of one model: whose turn it is next. Entries that count no more stay in the heap until they surface."""

    def __init__(self) -> None:
        self.round = 0.0
        self.flows: dict[UUID, Flow] = {}
        self.heap: list[tuple[float, int, Flow]] = []
        self.entries = 0  # that count
        self._idle: list[tuple[float, int, Flow]] = []  # who has nothing here, but a deficit
        self._numbers = count()

    def put(self, flow: Flow) -> None:
        if flow.entry is None:
            self.entries += 1
        flow.entry = next(self._numbers)
        heapq.heappush(self.heap, (flow.due, flow.entry, flow))
        if len(self.heap) > 2 * self.entries + 64:
            self.heap = [entry for entry in self.heap if entry[2].entry == entry[1]]
            heapq.heapify(self.heap)

    def take(self, flow: Flow) -> None:
        if flow.entry is not None:
            flow.entry = None
            self.entries -= 1

    def first(self) -> Flow | None:
        while self.heap:
            _due, number, flow = self.heap[0]
            if flow.entry == number:
                return flow
            heapq.heappop(self.heap)
        return None

    def move_to(self, turn: float) -> None:
        """A new round; who is out of deficit by then need not be remembered."""
        self.round = max(self.round, turn)
        while self._idle and self._idle[0][0] <= self.round:
            self.forget(heapq.heappop(self._idle)[2])

    def forget(self, flow: Flow) -> None:
        """As far as it has nothing here, now or once its deficit is paid."""
        if flow.waiting or flow.running or self.flows.get(flow.person_id) is not flow:
            return
        if flow.due <= self.round:
            del self.flows[flow.person_id]
        else:
            heapq.heappush(self._idle, (flow.due, next(self._numbers), flow))


class Line:
    """All that concerns one model."""

    def __init__(self, model_id: UUID) -> None:
        self.model_id = model_id
        self.rings = {urgency: Ring() for urgency in Urgency}
        self.allowance = Allowance()
        self.waiting = 0
        self.running = 0
        self.refused = 0  # of those that run: they do not really
        self.seconds: float | None = None  # that an answer takes, on average

    def took(self, seconds: float) -> None:
        self.seconds = seconds if self.seconds is None else self.seconds + _WEIGHT_OF_NEWS * (seconds - self.seconds)

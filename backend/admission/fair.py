"""Who may start now, and who waits where: the scheduler itself, without a clock and without I/O.

Each model lets so many answers run at once. The classes are strict: nobody's background work goes before anybody's
question. Inside a class people take turns by deficit round robin over tokens:

    A round gives everybody tokens, as many as their weight. Who starts something goes into deficit by what it costs,
    and sits out as many rounds as it takes to pay for it. So whoever has not asked for anything lately is next, however
    long the lines of others are. Rounds in which nobody could start are passed over in one step.

What an answer really cost is known at its end, and corrects the deficit. A person's running answers are limited
besides; those beyond the limit stand aside and hold nobody up.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from uuid import UUID

from backend.admission.lines import Flow, Key, Line, Request, Ring
from backend.admission.wishes import Place, Urgency, Wish

_STEPS = ((60.0, 5.0), (600.0, 30.0), (float("inf"), 60.0))  # up to so many seconds, say it in steps of so many


class Fair:
    """Steps are O(log n); only `places` looks at everybody. `start` names who may start since it was called last."""

    def __init__(
        self, *, per_person: int, limit_of: Callable[[UUID], int | None], weight_of: Callable[[UUID], int]
    ) -> None:
        """At most `per_person` chat answers of one person run at once, whatever their models."""
        self._per_person = per_person
        self._limit_of = limit_of
        self._weight_of = weight_of
        self._requests: dict[Key, Request] = {}
        self._waiting = 0
        self._lines: dict[UUID, Line] = {}
        self._chats: Counter[UUID] = Counter()  # running, by person
        self._aside: dict[UUID, dict[Flow, None]] = {}  # by person: what waits for their own answers only
        self._touched: dict[Line, None] = {}  # where somebody could perhaps start

    # What happens

    def enter(self, key: Key, wish: Wish) -> None:
        flow = self._flow(wish)
        request = self._requests[key] = Request(key, wish, flow)
        flow.waiting[key] = request
        flow.line.waiting += 1
        self._waiting += 1
        if len(flow.waiting) == 1:
            self._queue(flow)
        self._touched[flow.line] = None

    def resume(self, key: Key, wish: Wish, began: float) -> None:
        """It runs already: somebody else let it start."""
        request = self._requests.get(key)
        if request is None:
            request = self._requests[key] = Request(key, wish, self._flow(wish))
        elif request.began is None:
            self._withdraw(request)
        else:
            return
        self._begin(request, began)
        if request.flow.entry is not None:
            request.flow.ring.put(request.flow)

    def start(self, now: float) -> list[Key]:
        """Those who may start; from now on they run."""
        started: list[Key] = []
        while self._touched:
            line, _nothing = self._touched.popitem()
            limit = line.allowance.limit(self._limit_of(line.model_id), now) if line.waiting else 0
            while line.running < limit and (flow := self._next(line)):
                _key, request = flow.waiting.popitem(last=False)
                line.waiting -= 1
                self._waiting -= 1
                flow.ring.take(flow)
                self._begin(request, now)
                if flow.waiting:
                    flow.ring.put(flow)
                started.append(request.key)
        return started

    def leave(self, key: Key, now: float, *, spent: int | None = None, accepted: bool = False) -> None:
        """It has ended, or nobody wants it any more. `spent` is what it really cost; what was refused cost nothing."""
        request = self._requests.pop(key, None)
        if request is None:
            return
        flow, line, wish = request.flow, request.flow.line, request.wish
        if request.began is None:
            self._withdraw(request)
        else:
            flow.running -= 1
            line.running -= 1
            line.refused -= request.is_refused
            if accepted:
                line.allowance.accepted()
                line.took(now - request.began)
            elif request.is_refused and spent is None:
                spent = 0
            if spent is not None:
                self._charge(flow, spent - wish.cost)
            if wish.urgency is Urgency.CHAT:
                self._ended(wish.person_id)
            self._touched[line] = None
        flow.ring.forget(flow)

    def refused(self, key: Key, now: float, retry_after: float | None = None) -> None:
        """The engine did not want a running one: it has too much to do."""
        request = self._requests.get(key)
        if request is not None and request.began is not None and not request.is_refused:
            line = request.flow.line
            request.is_refused = True
            line.refused += 1
            line.allowance.refused(line.running - line.refused, now, retry_after)

    def touch(self) -> None:
        """Time has passed, or a limit may have changed: look at all who wait."""
        self._touched |= {line: None for line in self._lines.values() if line.waiting}

    # What can be asked

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def is_anybody_waiting(self) -> bool:
        return self._waiting > 0

    def is_running(self, key: Key) -> bool | None:
        """None: it is not known."""
        request = self._requests.get(key)
        return None if request is None else request.began is not None

    def waiting(self, model_id: UUID) -> int:
        line = self._lines.get(model_id)
        return line.waiting if line else 0

    def running(self, model_id: UUID) -> int:
        line = self._lines.get(model_id)
        return line.running if line else 0

    def busy(self) -> list[tuple[UUID, int, int]]:
        """The models that somebody waits for or uses, with how many do."""
        used = (line for line in self._lines.values() if line.waiting or line.running)
        return [(line.model_id, line.waiting, line.running) for line in used]

    def places(self, now: float) -> Iterator[tuple[Key, Place]]:
        """Of all who wait, if nobody came or went from now on. O(n log n), so take some at a time: what happens between
        them does not disturb it, and is not in it."""
        for line in tuple(self._lines.values()):
            if line.waiting:
                limit = max(1.0, line.allowance.limit(self._limit_of(line.model_id), now))
                pace = None if line.seconds is None else line.seconds / limit
                chats = self._chats.copy()
                ahead = 0
                for ring in line.rings.values():
                    for request, own in self._order(ring, chats):
                        if own:
                            yield request.key, Place(0, None, True)
                        else:
                            yield request.key, Place(ahead, None if pace is None else _about(pace * (ahead + 1)), False)
                            ahead += 1

    def _order(self, ring: Ring, chats: Counter[UUID]) -> Iterator[tuple[Request, bool]]:
        """How those who wait would start, and who would first have to wait for their own."""
        heap = [
            (flow.due, flow.entry or 0, index, flow, iter(tuple(flow.waiting.values())))
            for index, flow in enumerate(ring.flows.values())
            if flow.waiting
        ]
        heapq.heapify(heap)
        while heap:
            due, number, index, flow, requests = heap[0]
            request = next(requests, None)
            if request is None:
                heapq.heappop(heap)
                continue
            if request.wish.urgency is Urgency.CHAT:
                if chats[flow.person_id] >= self._per_person:
                    yield request, True
                    continue
                chats[flow.person_id] += 1
            yield request, False
            heapq.heapreplace(heap, (due + self._rounds(flow, request.wish.cost), number, index, flow, requests))

    # Inside

    def _flow(self, wish: Wish) -> Flow:
        line = self._lines.get(wish.model_id)
        if line is None:
            line = self._lines[wish.model_id] = Line(wish.model_id)
        ring = line.rings[wish.urgency]
        flow = ring.flows.get(wish.person_id)
        if flow is None:
            flow = ring.flows[wish.person_id] = Flow(line, ring, wish.person_id, ring.round)
        return flow

    def _queue(self, flow: Flow) -> None:
        """It begins to wait for its turn. Nobody saves up tokens by not asking."""
        flow.due = max(flow.due, flow.ring.round)
        flow.ring.put(flow)

    def _next(self, line: Line) -> Flow | None:
        for urgency, ring in line.rings.items():
            while flow := ring.first():
                if urgency is not Urgency.CHAT or self._chats[flow.person_id] < self._per_person:
                    return flow
                ring.take(flow)
                self._aside.setdefault(flow.person_id, {})[flow] = None
        return None

    def _begin(self, request: Request, now: float) -> None:
        flow, wish = request.flow, request.wish
        request.began = now
        flow.running += 1
        flow.line.running += 1
        if wish.urgency is Urgency.CHAT:
            self._chats[wish.person_id] += 1
        turn = flow.due
        flow.due += self._rounds(flow, wish.cost)
        flow.ring.move_to(turn)

    def _withdraw(self, request: Request) -> None:
        """It does not wait any more."""
        flow = request.flow
        del flow.waiting[request.key]
        flow.line.waiting -= 1
        self._waiting -= 1
        if not flow.waiting:
            flow.ring.take(flow)
            aside = self._aside.get(flow.person_id)
            if aside is not None and aside.pop(flow, True) is None and not aside:
                del self._aside[flow.person_id]

    def _charge(self, flow: Flow, tokens: int) -> None:
        flow.due += self._rounds(flow, tokens)
        if flow.entry is not None:
            flow.ring.put(flow)

    def _ended(self, person_id: UUID) -> None:
        """One chat answer less of this person: what stood aside for it goes back into line."""
        self._chats[person_id] -= 1
        if not self._chats[person_id]:
            del self._chats[person_id]
        if self._chats[person_id] < self._per_person:
            for flow in self._aside.pop(person_id, ()):
                self._queue(flow)
                self._touched[flow.line] = None

    def _rounds(self, flow: Flow, tokens: int) -> float:
        return tokens / max(1, self._weight_of(flow.person_id))


def _about(seconds: float) -> float:
    """Coarse enough that it need not be said anew every second."""
    step = next(step for until, step in _STEPS if seconds <= until)
    return max(step, int(seconds / step + 0.5) * step)

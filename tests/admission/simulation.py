"""An office with a virtual clock: people, requests that take as long as they say, and the scheduler between them."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from uuid import UUID, uuid4

from backend.admission.fair import Fair
from backend.admission.lines import Key
from backend.admission.wishes import Place, Urgency, Wish

MODEL = uuid4()
ALICE, BOB, CAROL = (uuid4() for _ in range(3))


@dataclass(frozen=True)
class Job:
    person: UUID
    seconds: float
    tokens: int
    real_tokens: int | None
    urgency: Urgency
    model: UUID


class Office:
    """`ask` puts something in line, `run` lets the time pass until nothing is left to happen."""

    def __init__(
        self, limit: int | None = 1, *, per_person: int = 1_000, weights: dict[UUID, int] | None = None
    ) -> None:
        self.limit = limit
        self.now = 0.0
        self.fair = Fair(
            per_person=per_person,
            limit_of=lambda model: self.limit,
            weight_of=lambda person: (weights or {}).get(person, 1),
        )
        self.jobs: dict[Key, Job] = {}
        self.asked: dict[Key, float] = {}
        self.started: dict[Key, float] = {}
        self.order: list[Key] = []
        self.tokens: Counter[UUID] = Counter()  # started, by person
        self.running: set[Key] = set()
        self.most: defaultdict[UUID, int] = defaultdict(int)  # at once, by person
        self.on_end: Callable[[Key], None] = lambda key: None
        self._ends: list[tuple[float, Key]] = []
        self._numbers = count()

    def ask(
        self,
        person: UUID,
        seconds: float = 1.0,
        tokens: int = 1_000,
        *,
        real_tokens: int | None = None,
        urgency: Urgency = Urgency.CHAT,
        model: UUID = MODEL,
    ) -> Key:
        key = ("here", next(self._numbers))
        self.jobs[key] = Job(person, seconds, tokens, real_tokens, urgency, model)
        self.asked[key] = self.now
        self.fair.enter(key, Wish(model, person, urgency, tokens))
        self._start()
        return key

    def run(self, until: float = float("inf")) -> None:
        while self._ends and self._ends[0][0] <= until:
            self.now, key = heapq.heappop(self._ends)
            if key in self.running:
                self.end(key)
        if until < float("inf"):
            self.now = until

    def end(self, key: Key) -> None:
        """It is over, or it is not wanted any more."""
        was_running = key in self.running
        self.running.discard(key)
        self.fair.leave(key, self.now, spent=self.jobs[key].real_tokens if was_running else None, accepted=was_running)
        self._start()
        self.on_end(key)

    def waited(self, key: Key) -> float:
        return self.started[key] - self.asked[key]

    def places(self) -> dict[Key, Place]:
        return dict(self.fair.places(self.now))

    def people(self, keys: Sequence[Key]) -> list[UUID]:
        return [self.jobs[key].person for key in keys]

    def _start(self) -> None:
        for key in self.fair.start(self.now):
            job = self.jobs[key]
            self.started[key] = self.now
            self.order.append(key)
            self.running.add(key)
            self.tokens[job.person] += job.tokens if job.real_tokens is None else job.real_tokens
            running = sum(self.jobs[each].person == job.person for each in self.running)
            self.most[job.person] = max(self.most[job.person], running)
            heapq.heappush(self._ends, (self.now + job.seconds, key))

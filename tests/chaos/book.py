"""What people did and saw while Parley was being killed, and what had to come of it."""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from tests.fakes.engine import Asked
from tests.web.chat.conftest import visible


@dataclass
class Sent:
    """One press of Send. Every word of its text is in no other."""

    owner: UUID
    key: UUID
    text: str
    answers: set[UUID] = field(default_factory=set)  # which answer the replies named

    @property
    def acknowledged(self) -> bool:
        return bool(self.answers)


@dataclass(frozen=True)
class Sight:
    """The words of an answer on somebody's page at a moment."""

    at: float  # time.monotonic()
    attempt: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class Cut:
    """A running answer as its rows had it when its process had just been killed."""

    answer: UUID
    at: float
    attempt: int
    text: str


@dataclass(frozen=True)
class Row:
    """A message as it is at the end."""

    id: UUID
    parent_id: UUID | None
    owner_id: UUID
    send_key: UUID | None
    text: str
    status: str
    attempt: int
    reason: str

    @property
    def is_unfinished(self) -> bool:
        return self.status in ("queued", "streaming", "failed")


class Book:
    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.sights: defaultdict[UUID, list[Sight]] = defaultdict(list)
        self.stopped: dict[UUID, float] = {}  # acknowledged presses of Stop
        self.continued: set[UUID] = set()
        self.regenerated: set[UUID] = set()
        self.cuts: list[Cut] = []
        self.recovered: list[float] = []  # seconds from a start until nothing was left behind
        self.odd: list[str] = []  # replies that no rule allows

    def saw(self, answer: UUID, attempt: int, html: str) -> None:
        self.sights[answer].append(Sight(time.monotonic(), attempt, tuple(visible(html).split())))

    def judge(self, rows: Sequence[Row], calls: Sequence[Asked], usage: dict[UUID, int], *, age: float) -> list[str]:
        """Every promise that was broken; `age` is how old what was shown must be to be safe from a kill."""
        answers = {row.id: row for row in rows if row.send_key is None}
        return [
            *self.odd,
            *self._lost_or_doubled(rows),
            *(
                f"{row.id} is {row.status}"
                for row in answers.values()
                if row.status in ("queued", "streaming", "failed")
            ),
            *_wrong_calls(rows, answers, calls),
            *self._wrong_texts(rows, answers, calls),
            *self._wrong_sights(answers, age),
            *(
                f"the usage of {row.id} is missing"
                for row in answers.values()
                if row.status == "done" and not usage.get(row.id)
            ),
        ]

    def _lost_or_doubled(self, rows: Sequence[Row]) -> list[str]:
        stored: defaultdict[tuple[UUID, UUID | None], list[Row]] = defaultdict(list)
        for row in rows:
            if row.send_key:
                stored[row.owner_id, row.send_key].append(row)
        broken = []
        for sent in self.sent:
            found = stored.pop((sent.owner, sent.key), [])
            if len(found) > 1 or (sent.acknowledged and not found):
                broken.append(f"{sent.text[:20]}… is there {len(found)} times")
            if any(row.text != sent.text for row in found):
                broken.append(f"{sent.text[:20]}… is there with another text")
            if len(sent.answers) > 1:
                broken.append(f"{sent.text[:20]}… was said to have the answers {sent.answers}")
        return broken + [f"nobody sent {row.text[:20]}…" for left in stored.values() for row in left]

    def _wrong_texts(self, rows: Sequence[Row], answers: dict[UUID, Row], calls: Sequence[Asked]) -> list[str]:
        questions = {row.id: row for row in rows if row.send_key}
        broken = []
        for row in answers.values():
            assert row.parent_id
            scripts = {script_of(call) for call in calls if asks(call, questions[row.parent_id])}
            whole = next(iter(scripts), "")
            if len(scripts) > 1:
                broken.append(f"the prompt of {row.id} changed between its calls")
            if row.status == "done" and row.text != whole:
                broken.append(f"{row.id} is done with {len(row.text)} of {len(whole)} characters, or others")
            if not whole.startswith(row.text):
                broken.append(f"{row.id} ({row.status}) has a text the engine never sent: …{row.text[-80:]!r}")
            for sight in self.sights[row.id]:
                if list(sight.words) != whole.split()[: len(sight.words)]:
                    broken.append(f"somebody saw of {row.id}: {' '.join(sight.words)}")
                    break
        return broken

    def _wrong_sights(self, answers: dict[UUID, Row], age: float) -> list[str]:
        broken = []
        for cut in self.cuts:
            end = answers[cut.answer]
            if not end.text.startswith(cut.text.rstrip()):
                broken.append(f"{cut.answer} had {len(cut.text)} characters when it was cut, and these are gone")
            shown = [
                len(sight.words)
                for sight in self.sights[cut.answer]
                if sight.attempt == cut.attempt and sight.at < cut.at - age
            ]
            if shown and len(cut.text.split()) < max(shown):
                broken.append(f"of {cut.answer} {max(shown)} words were shown, {len(cut.text.split())} kept")
        for answer, moment in self.stopped.items():
            shown = [len(sight.words) for sight in self.sights[answer] if sight.at < moment - age]
            if shown and len(answers[answer].text.split()) < max(shown):
                broken.append(f"Stop took words of {answer} away")
        return broken


def _wrong_calls(rows: Sequence[Row], answers: dict[UUID, Row], calls: Sequence[Asked]) -> list[str]:
    broken = []
    for question in rows:
        if question.send_key is None:
            continue
        siblings = [row for row in answers.values() if row.parent_id == question.id]
        mine = [call for call in calls if asks(call, question)]
        if len(mine) > sum(row.attempt for row in siblings):
            broken.append(
                f"{len(mine)} calls for {[row.attempt for row in siblings]} attempts at {question.text[:20]}…"
            )
        broken += [
            f"the engine was to go on from what it never said: …{call.last_text[-80:]!r}"
            for call in mine
            if call.continues and not script_of(call).startswith(call.last_text)
        ]
    return broken


def script_of(call: Asked) -> str:
    """All that the engine says to this call, had it not been cut."""
    questions = [message for message in call.messages if message["role"] == "user"]
    return f"You asked: {questions[-1]['content']}"


def asks(call: Asked, question: Row) -> bool:
    return bool(question.text) and script_of(call).endswith(question.text)

"""How large a measurement is: how many people, how many turns each, and where it ends whatever happens."""

from dataclasses import dataclass
from typing import Any

from backend.bench import chat
from backend.core.errors import BadInput
from backend.core.i18n import _
from backend.usage.service import estimate

MOST_PEOPLE = 256
MOST_TURNS = 8
ANSWER_TOKENS = (16, 2_048)
SECONDS = (5, 3_600)
MOST_TOKENS = 20_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """`levels` are numbers of people at once, measured one after the other; `tokens` and `seconds` bound the whole."""

    levels: tuple[int, ...] = (1, 2, 4, 8)
    turns: int = 3
    answer_tokens: int = 128
    seconds: int = 300
    tokens: int = 1_000_000

    @property
    def answers(self) -> int:
        return sum(self.levels) * self.turns

    @property
    def expected_tokens(self) -> int:
        """Read and written, if every answer is as long as it may be."""
        return sum(people * self.tokens_of_a_chat for people in self.levels)

    @property
    def tokens_of_a_chat(self) -> int:
        question = estimate(chat.LONGEST_QUESTION)
        reads = [estimate(chat.LONGEST_SYSTEM) + turn * self.answer_tokens for turn in range(self.turns)]
        return sum(reads) + question * self.turns * (self.turns + 1) // 2 + self.answer_tokens * self.turns

    def as_json(self) -> dict[str, Any]:
        return {
            "levels": list(self.levels),
            "turns": self.turns,
            "answer_tokens": self.answer_tokens,
            "seconds": self.seconds,
            "tokens": self.tokens,
        }


def from_json(stored: dict[str, Any]) -> Plan:
    return Plan(tuple(stored["levels"]), stored["turns"], stored["answer_tokens"], stored["seconds"], stored["tokens"])


def make(*, people: int, turns: int, answer_tokens: int, seconds: int, tokens: int = 1_000_000) -> Plan:
    """Raises BadInput with a sentence for each number that is out of bounds."""
    bounds = {
        "people": (people, 1, MOST_PEOPLE),
        "turns": (turns, 1, MOST_TURNS),
        "answer_tokens": (answer_tokens, *ANSWER_TOKENS),
        "seconds": (seconds, *SECONDS),
        "tokens": (tokens, 1_000, MOST_TOKENS),
    }
    wrong = {
        name: _("“{name}” is a number from {low} to {high}.").format(
            name=_NAMES[name], low=f"{low:,}", high=f"{high:,}"
        )
        for name, (value, low, high) in bounds.items()
        if not low <= value <= high
    }
    if wrong:
        raise BadInput(_("Please check the fields below."), fields=wrong)
    return Plan(levels_up_to(people), turns, answer_tokens, seconds, tokens)


def levels_up_to(people: int) -> tuple[int, ...]:
    """1, 2, 4 … and `people`: a curve, of which a benchmark with one request at a time sees the first point."""
    doubled = [2**power for power in range(people.bit_length()) if 2**power < people]
    return (*doubled, people)


_NAMES = {
    "people": _("People at once"),
    "turns": _("Turns"),
    "answer_tokens": _("Tokens per answer"),
    "seconds": _("Seconds in all"),
    "tokens": _("Tokens in all"),
}

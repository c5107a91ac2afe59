"""Conversations as long as those of people: vLLM finds only whole blocks again, and the rest should not weigh much."""

from dataclasses import dataclass

from tests.load import affinity

_SUBJECTS = ("the harbour", "a bakery", "our garden", "the old mill", "a violin", "the night train", "a glacier")


@dataclass
class Chat(affinity.Chat):
    def ask(self, turn: int) -> None:
        subject = _SUBJECTS[self.number % len(_SUBJECTS)]
        notes = range(12) if turn == 0 else range(4)
        told = " ".join(f"Note {n} of part {turn} on {subject}: {(n + turn) * 37 % 101} of it is kept." for n in notes)
        text = f"Number {self.number}. {told} What is {subject} about?"
        self.messages.append({"role": "user", "content": text})


def chats(numbers: range) -> list[Chat]:
    return [Chat(number) for number in numbers]


def found_in(found: affinity.Found) -> str:
    """What the share is of."""
    return f"{found.cached:,} of {found.known:,} tokens of earlier turns, {found.turns} turns after the first ones"

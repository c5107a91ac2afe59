"""How much of a conversation a model can be shown, and what is left out when it has outgrown that.

Engines count what they were sent, so the last answer knows how long the conversation was; only what came after it is
estimated. When it no longer fits it is cut once, to well below the window, and the cut is kept with the answer: a cut
that moved with every turn would make the engine read everything anew each time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backend.conversations.models import Speaker
from backend.conversations.prompt import Step
from backend.usage.service import estimate

_AROUND_A_MESSAGE = 5  # tokens of the chat template
_KEEP = 0.6  # of the window, after a cut
_NEAR = 0.8  # of the room; from here on an estimate is not trusted
_LEAST_ANSWER, _ANSWER_SHARE = 64, 4  # room for the answer: a quarter of the window unless the model's limit is lower


@dataclass(frozen=True)
class Window:
    """Tokens: what the model reads and writes in all, and what is kept free for its answer."""

    size: int
    for_answer: int

    @classmethod
    def of(cls, size: int, longest_answer: int | None) -> "Window":
        return cls(size, min(longest_answer or size, max(size // _ANSWER_SHARE, _LEAST_ANSWER)))

    @property
    def for_prompt(self) -> int:
        return self.size - self.for_answer

    def is_near(self, tokens: int) -> bool:
        return tokens > _NEAR * self.for_prompt


def kept(path: Sequence[Step]) -> Sequence[Step]:
    """What is left of the path after the last cut."""
    first = next(
        (step.context_from for step in reversed(path) if step.speaker == Speaker.MODEL and not step.is_empty), None
    )
    return path[next((number for number, step in enumerate(path) if step.id == first), 0) :]


def tokens_of(path: Sequence[Step], system_prompt: str = "") -> int:
    """Tokens of a prompt: as counted by the last answer, and by its characters what came later."""
    for number, step in reversed(list(enumerate(path))):
        if step.context_tokens is not None and _begins_alike(step, path):
            return step.context_tokens + sum(map(_of_message, path[number + 1 :]))
    return estimate(len(system_prompt)) + sum(map(_of_message, path))


def cut(path: Sequence[Step], tokens: int, window: Window) -> Sequence[Step]:
    """The newest part of a path of `tokens` that takes at most three fifths of the window; at least the last question.

    It begins with a question, because that is where a prompt begins.
    """
    share = tokens / max(1, sum(map(_of_message, path)))
    last_question = max(number for number, step in enumerate(path) if step.speaker == Speaker.PERSON)
    begin, taken = last_question, sum(map(_of_message, path[last_question:])) * share
    for number in range(last_question - 1, -1, -1):
        taken += _of_message(path[number]) * share
        if taken > _KEEP * window.size:
            break
        if path[number].speaker == Speaker.PERSON and not path[number].is_empty:
            begin = number
    return path[begin:]


def _of_message(step: Step) -> int:
    return estimate(step.characters) + _AROUND_A_MESSAGE


def _begins_alike(step: Step, path: Sequence[Step]) -> bool:
    """Whether what this answer counted began with the first message of `path`."""
    return step.context_from is None or step.context_from == path[0].id

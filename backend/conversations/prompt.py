"""What an engine is shown of a conversation: a pure function of the path, byte for byte the same from turn to turn."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import dropwhile
from typing import Literal
from uuid import UUID

from backend.conversations.models import Speaker
from backend.engines.client import ChatMessage, Part

_Role = Literal["system", "user", "assistant"]
_Content = str | list[Part]
_ROLES: dict[str, _Role] = {Speaker.PERSON: "user", Speaker.MODEL: "assistant"}
_GAP = "\n\n"
_PICTURE = 3_500  # characters that take about as many tokens as a picture does


@dataclass(frozen=True)
class Step:
    """A message of the path with what is attached to it; `context_…` as in `models.Message`."""

    id: UUID
    speaker: str
    content: _Content
    instruction: str = ""
    context_tokens: int | None = None
    context_from: UUID | None = None

    @property
    def characters(self) -> int:
        """Of everything the model is shown of it; a picture counts for about as many tokens as it has."""
        return len(self.instruction) + sum(
            len(part["text"]) if part["type"] == "text" else _PICTURE for part in _as_parts(self.content)
        )

    @property
    def is_empty(self) -> bool:
        return not self.content if isinstance(self.content, list) else not self.content.strip()


def build(path: Iterable[Step], system_prompt: str = "", *, system_role: bool = True) -> list[ChatMessage]:
    """Roles alternate, beginning with the person, because many chat templates refuse anything else.

    Answers without text (stopped early, failed, deleted) are left out, so are answers before the first question that
    has text, and neighbours of one role are joined by an empty line. What was asked of an answer beside its question
    follows the question. Reasoning is never sent back. For a model without a system role the system prompt opens the
    first question.
    """
    spoken: list[tuple[_Role, _Content]] = []
    for step in path:
        if step.instruction:
            spoken.append(("user", step.instruction))
        if not step.is_empty:
            spoken.append((_ROLES[step.speaker], step.content))
    said = list(dropwhile(lambda one: one[0] == "assistant", spoken))
    if system_prompt:
        said.insert(0, ("system" if system_role else "user", system_prompt))
    messages: list[ChatMessage] = []
    for role, content in said:
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] = _joined(messages[-1]["content"], content)
        else:
            messages.append({"role": role, "content": content})
    return messages


def single(question: str) -> list[ChatMessage]:
    return [{"role": "user", "content": question}]


def _joined(first: _Content, second: _Content) -> _Content:
    if isinstance(first, str) and isinstance(second, str):
        return first + _GAP + second
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: _Content) -> list[Part]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content

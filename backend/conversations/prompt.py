"""What an engine is shown of a conversation: a pure function of the path, byte for byte the same from turn to turn."""

from collections.abc import Iterable
from itertools import dropwhile
from typing import Literal

from backend.conversations.models import Message, Speaker
from backend.engines.client import ChatMessage

_Role = Literal["system", "user", "assistant"]
_ROLES: dict[Speaker, _Role] = {Speaker.PERSON: "user", Speaker.MODEL: "assistant"}


def build(path: Iterable[Message], system_prompt: str = "", *, system_role: bool = True) -> list[ChatMessage]:
    """Roles alternate, beginning with the person, because many chat templates refuse anything else.

    Answers without text (stopped early, failed) are left out, so are answers before the first question that has text,
    and neighbours of one role are joined by an empty line. Reasoning is never sent back. For a model without a system
    role the system prompt opens the first question.
    """
    spoken = [(_ROLES[message.speaker], message.text) for message in path if message.text.strip()]
    said = list(dropwhile(lambda one: one[0] == "assistant", spoken))
    if system_prompt:
        said.insert(0, ("system" if system_role else "user", system_prompt))
    messages: list[ChatMessage] = []
    for role, text in said:
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += "\n\n" + text
        else:
            messages.append({"role": role, "content": text})
    return messages


def single(question: str) -> list[ChatMessage]:
    return [{"role": "user", "content": question}]

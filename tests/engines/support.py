"""What the tests of this folder share: asking a client, and keeping everything it heard."""

from contextlib import aclosing
from dataclasses import dataclass, field

from backend.engines.client import ChatMessage, ChatRequest, EngineClient
from backend.engines.events import Delta, EngineFailed, Event, Failure, Finish, Reasoning, Usage
from backend.engines.reading import AnswerReader


@dataclass
class Heard:
    events: list[Event] = field(default_factory=list)
    failure: EngineFailed | None = None

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Delta))

    @property
    def reasoning(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Reasoning))

    @property
    def usage(self) -> list[Usage]:
        return [event for event in self.events if isinstance(event, Usage)]

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, Finish)]

    @property
    def kind(self) -> Failure | None:
        return self.failure.kind if self.failure else None


def question(text: str = "Hi there", **fields: object) -> ChatRequest:
    messages: list[ChatMessage] = [{"role": "user", "content": text}]
    return ChatRequest(**{"model": "fake-8b", "messages": messages, **fields})  # type: ignore[arg-type]


async def ask(client: EngineClient, request: ChatRequest | None = None) -> Heard:
    """The whole answer, or what came of it and why it ended."""
    heard = Heard()
    try:
        async with aclosing(client.answer(request or question())) as batches:
            async for events in batches:
                heard.events += events
    except EngineFailed as failure:
        heard.failure = failure
    return heard


def read(*pieces: bytes, begins: bool = True) -> Heard:
    """The same without a network: each piece is a read, and after the last one the response ends."""
    reader = AnswerReader(begins=begins)
    heard = Heard()
    for piece in pieces:
        if reader.is_over:
            break
        heard.events += reader.feed(piece)
    heard.events += reader.close()
    heard.failure = reader.failure
    return heard

"""From what a program asked to what an engine is sent.

The model's own system prompt comes first, as in the chat, and what the program says as system follows it: who publishes
a model for the company decides how it speaks, whatever it is asked with. Neighbours of one role are joined, because
many chat templates refuse them. Fields that a program leaves open are as an administrator set them for the model.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Literal
from uuid import UUID

from backend.core.i18n import _
from backend.engines.aliases import Aliases
from backend.engines.client import ChatMessage, ChatRequest, Part
from backend.engines.events import EngineFailed, Failure, Overflow
from backend.engines.failures import failed
from backend.engines.pool import Urgency
from backend.engines.registry import Endpoint, Offer
from backend.usage.service import at_least, estimate, estimate_cost
from web.api.errors import Refused
from web.api.requests import Completion, Message, PicturePart, TextPart

_Role = Literal["system", "user", "assistant"]
_Content = str | list[Part]

_GAP = "\n\n"
_PICTURE = 3_500  # characters that take about as many tokens as a picture does
_NEAR = 0.8  # of the window; from here on an estimate is not trusted


@dataclass(frozen=True)
class Wish:
    """An answer that a program wants of a model. `pictures` are those of the messages, drawn anew."""

    person_id: UUID
    offer: Offer
    completion: Completion
    pictures: Mapping[str, str]
    aliases: Aliases

    @cached_property
    def messages(self) -> list[ChatMessage]:
        said: list[tuple[_Role, _Content]] = []
        if self.offer.system_prompt:
            said.append(("system", self.offer.system_prompt))
        said += [(message.role, self._content(message)) for message in self.completion.messages]
        joined: list[ChatMessage] = []
        for role, content in said:
            role = "user" if role == "system" and not self.offer.system_role else role
            if joined and joined[-1]["role"] == role:
                joined[-1]["content"] = _joined(joined[-1]["content"], content)
            else:
                joined.append({"role": role, "content": content})
        return joined

    @cached_property
    def characters(self) -> int:
        """Of everything the model is shown; a picture counts for about as many tokens as it has."""
        return sum(
            len(part["text"]) if part["type"] == "text" else _PICTURE
            for message in self.messages
            for part in _as_parts(message["content"])
        )

    @property
    def cost(self) -> int:
        return estimate_cost(estimate(self.characters), self._limit)

    @cached_property
    def affinity(self) -> UUID:
        """The same for all requests that begin alike: an engine may still have that beginning in its cache."""
        first = next(message for message in self.completion.messages if message.role == "user")
        begin = [message.text for message in self.completion.messages if message.role == "system"][:1]
        mark = hashlib.blake2b(self.person_id.bytes + self.offer.id.bytes, digest_size=16)
        for text in (*begin, first.text, *first.pictures):
            mark.update(hashlib.blake2b(text.encode(), digest_size=16).digest())
        return UUID(bytes=mark.digest())

    async def request(self, endpoint: Endpoint) -> ChatRequest:
        """What this endpoint is sent. Raises EngineFailed for what does not fit, Refused for what it cannot see."""
        if self.pictures and not endpoint.sees:
            raise Refused(_("This model does not take pictures."), param="messages")
        asked, offer = self.completion, self.offer
        return ChatRequest(
            model=endpoint.upstream_name,
            messages=self.messages,
            max_tokens=await self._room(endpoint),
            temperature=offer.temperature if asked.temperature is None else asked.temperature,
            top_p=asked.top_p,
            stop=asked.stop or None,
            seed=asked.engine_seed,
            response_format=asked.format,
            thinking=offer.thinking if asked.thinking is None else asked.thinking,
            priority=Urgency.API,
            **self.aliases.of(self.person_id, self.affinity),
        )

    @property
    def _limit(self) -> int | None:
        """Of tokens: what the program wants, but not more than an administrator allows."""
        return min((limit for limit in (self.completion.limit, self.offer.max_tokens) if limit), default=None)

    async def _room(self, endpoint: Endpoint) -> int | None:
        """For the answer, where the window is known; the engine counts the prompt when it comes near to its end."""
        window, limit = endpoint.context_length, self._limit
        guessed = estimate(self.characters)
        if window is None or guessed + (limit or 0) < _NEAR * window:
            return limit
        counted = None
        with suppress(EngineFailed):  # it will say so itself when it is asked for the answer
            counted = await endpoint.client.count_tokens(endpoint.upstream_name, self.messages)
        tokens = counted or sum(at_least(message.text) for message in self.completion.messages)
        if tokens >= window:
            raise failed(Failure.OVERFLOW, overflow=Overflow(window, tokens, at_least=counted is None))
        return min(limit, window - tokens) if limit and counted else limit

    def _content(self, message: Message) -> _Content:
        if not message.pictures:
            return message.text
        return [self._part(part) for part in message.content]

    def _part(self, part: TextPart | PicturePart) -> Part:
        if isinstance(part, TextPart):
            return {"type": "text", "text": part.text}
        return {"type": "image_url", "image_url": {"url": self.pictures[part.image_url.url]}}


def _joined(first: _Content, second: _Content) -> _Content:
    if isinstance(first, str) and isinstance(second, str):
        return first + _GAP + second
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: _Content) -> Sequence[Part]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content

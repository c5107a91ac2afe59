"""An answer this process is writing, from the moment it was stored until its last row."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from backend.conversations.live import LiveAnswer
from backend.conversations.models import Message, Status
from backend.conversations.tree import PathRow
from backend.engines.client import ChatMessage
from backend.engines.events import Failure
from backend.engines.parameters import AS_THE_MODEL_DOES, Parameters
from backend.engines.registry import Endpoint, Offer
from backend.engines.trials import Begun

#: What does not change from the first row of an answer to its last.
_KEPT = (
    "id",
    "created_at",
    "conversation_id",
    "owner_id",
    "parent_id",
    "speaker",
    "model_id",
    "model_name",
    "instruction",
    "parameters",
    "attempt",
    "resumed",
)


@dataclass
class Saved:
    """How much of a live answer its row and parts hold, in characters, how many parts there are, and from where."""

    text: int = 0
    reasoning: int = 0
    parts: int = 0
    endpoint: Endpoint | None = None  # the row tells that it comes from there


@dataclass(frozen=True)
class Ended:
    """How an answer ended, with a sentence for the reader where it did not end well."""

    status: Status
    reason: str = ""


@dataclass
class Running:
    answer_id: UUID
    owner_id: UUID
    conversation_id: UUID
    offer: Offer
    live: LiveAnswer
    message: Message | None = None  # as it was stored, if it is the only answer to its question
    rows: Sequence[PathRow] | None = None  # of `statements.MESSAGES`, if they are at hand
    chosen: Parameters = AS_THE_MODEL_DOES  # by its person
    begun: Sequence[Begun] = ()  # what its model answered in the conversation before
    earlier: Sequence[dict[str, Any]] = ()  # the provenance of what it begins with, if it was taken up again
    resumed: int = 0  # by itself
    started: float = field(default_factory=time.monotonic)
    saved: Saved = field(init=False)
    prompt: Sequence[ChatMessage] = ()
    context_from: UUID | None = None
    endpoint: Endpoint | None = None
    failure: Failure | None = None
    tries: list[dict[str, str]] = field(default_factory=list)  # engines that did not begin it, and why
    readers: int = 0
    task: "asyncio.Task[None] | None" = None
    has_begun: bool = False  # its task has
    is_cancelled: bool = False
    verdict: Status | None = None  # as what; None: its process goes, and another takes it over
    is_ending: bool = False  # the last write has begun; too late to cancel
    ended_at: float | None = None

    def __post_init__(self) -> None:
        self.saved = Saved(len(self.live.text), len(self.live.reasoning))

    @property
    def names(self) -> set[UUID]:
        """What it is stopped with."""
        return {self.answer_id, self.conversation_id, self.owner_id}

    @property
    def parameters(self) -> Parameters:
        """What holds for it, as far as its person may choose."""
        return self.chosen.within(self.offer)

    @property
    def goes_on(self) -> bool:
        """It begins with text that was written before."""
        return bool(self.earlier) and self.live.begins_with > 0

    @property
    def prompt_characters(self) -> int:
        return sum(len(message["content"]) for message in self.prompt if isinstance(message["content"], str))

    @property
    def marks(self) -> dict[str, object]:
        """What a log line says of it: ids, never text."""
        engine = self.endpoint.engine_name if self.endpoint else None
        return {"answer_id": self.answer_id, "user_id": self.owner_id, "engine": engine}

    @property
    def provenance(self) -> dict[str, Any]:
        """What made this answer, kept with it: engine, revision, parameters, tokens and seconds; `earlier` holds the
        same of what it began with."""
        live, endpoint = self.live, self.endpoint
        facts: dict[str, Any] = {
            "deployment": str(endpoint.deployment_id) if endpoint else None,
            "engine": endpoint.engine_name if endpoint else None,
            "engine_kind": endpoint.engine_kind if endpoint else None,
            "engine_version": endpoint.engine_version if endpoint else None,
            "upstream_name": endpoint.upstream_name if endpoint else None,
            "revision": endpoint.revision if endpoint else None,
            "parameters": self.parameters.stored(),
            "seconds": round((self.ended_at or time.monotonic()) - self.started, 3),
        }
        if live.first_text_at is not None:
            facts["first_token_seconds"] = round(live.first_text_at - self.started, 3)
        if live.usage is not None:
            facts |= {
                "prompt_tokens": live.usage.prompt_tokens,
                "cached_tokens": live.usage.cached_tokens,
                "completion_tokens": live.usage.completion_tokens,
            }
        if self.tries:
            facts["tries"] = self.tries
        if self.failure is not None:
            facts["failure"] = self.failure.value
        if self.earlier:
            facts |= {"earlier": list(self.earlier), "resumed": self.resumed}
        return facts

    def final(self, ended: Ended) -> Message | None:
        """The message as its last row has it: another object, because pages may be about to draw the first one."""
        if self.message is None:
            return None
        live = self.live
        return Message(
            **{name: getattr(self.message, name) for name in _KEPT},
            text=live.text,
            reasoning=live.reasoning,
            ended_by=live.ended_by,
            status=ended.status,
            reason=ended.reason,
            provenance=self.provenance,
            context_from=self.context_from,
            context_tokens=self.context_tokens,
        )

    @property
    def context_tokens(self) -> int | None:
        """Of prompt and answer, as the engine counted them; what its window cannot hold is no count."""
        usage = self.live.usage
        if usage is None:
            return None
        tokens = usage.prompt_tokens + usage.completion_tokens
        window = self.endpoint.context_length if self.endpoint else None
        return tokens if window is None or tokens <= window else None


def segments(provenance: dict[str, Any]) -> list[dict[str, Any]]:
    """The provenance of an answer as a flat list, the last one last: what `earlier` is made of."""
    last = {name: value for name, value in provenance.items() if name not in ("earlier", "resumed")}
    return [*provenance.get("earlier", ()), last]

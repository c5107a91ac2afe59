"""A short title for a conversation: the first words at once, something better once the model has a moment.

A title is worth less than any answer. It takes a place only when nobody else wants it, it is asked for only while the
same engine answers nobody, it makes way for the next question, and when it fails nobody hears of it.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from sqlalchemy import update

from backend.conversations import prompt, queries
from backend.conversations.models import Conversation, TitleSource
from backend.core.db import DatabaseGone, Sessions
from backend.core.errors import AppError
from backend.core.i18n import _
from backend.core.text import clean, one_line
from backend.engines.aliases import Aliases
from backend.engines.client import ChatMessage, ChatRequest
from backend.engines.events import Delta, EngineFailed, Usage
from backend.engines.pool import Ask, Place, Pool, Urgency
from backend.engines.registry import Endpoint, Offer
from backend.usage import service as usage
from backend.usage.models import Cause

log = logging.getLogger(__name__)

MAX_LENGTH = 60
_MAX_TOKENS = 32
_SECONDS = 30  # at the engine
_LONGEST_WAIT = 600  # seconds for a place
_BEFORE = " \t#*_`\"'“„«‘<>"
_AFTER = " \t*_`\"'”»’.<>"
_PATIENCE = 60  # seconds; on an engine that is never idle a title would otherwise never come
_EXCERPT = 1500  # characters of question and answer that the title is made from

_INSTRUCTION = (
    "Write a title of at most six words for the conversation below, in its language. "
    "Answer with the title only: no quotes, no full stop.\n\n"
)


@dataclass(frozen=True)
class _Job:
    conversation_id: UUID
    owner_id: UUID
    offer: Offer
    engine_id: UUID  # that gave the answer; for the silence on it the title waits
    since: float = field(default_factory=time.monotonic)

    @property
    def overdue(self) -> bool:
        return time.monotonic() - self.since > _PATIENCE


class Titles:
    """Owns the calls that make titles; `close` ends them."""

    def __init__(self, sessions: Sessions, pool: Pool, aliases: Aliases, *, enabled: bool) -> None:
        self._sessions = sessions
        self._pool = pool
        self._aliases = aliases
        self._enabled = enabled
        self._answers: Counter[UUID] = Counter()  # by engine: answers being written
        self._waiting: dict[UUID, _Job] = {}
        self._tasks: dict[UUID, tuple[_Job, asyncio.Task[None]]] = {}

    def make_way(self, engine_id: UUID) -> None:
        """An answer of this engine begins: titles by it wait until it ends, unless they waited too long already."""
        self._answers[engine_id] += 1
        self._put_off(lambda job: job.engine_id == engine_id and not job.overdue)

    def make_room(self, model_id: UUID) -> None:
        """An answer waits for a place at this model, which a title may have."""
        self._put_off(lambda job: job.offer.id == model_id)

    def _put_off(self, applies: Callable[[_Job], bool]) -> None:
        for job, task in list(self._tasks.values()):
            if applies(job):
                self._waiting[job.conversation_id] = job
                task.cancel()

    def resume(self, engine_id: UUID) -> None:
        """An answer of this engine ended."""
        self._answers[engine_id] -= 1
        if not self._answers[engine_id]:
            del self._answers[engine_id]
        idle = engine_id not in self._answers
        for job in [job for job in self._waiting.values() if (idle and job.engine_id == engine_id) or job.overdue]:
            del self._waiting[job.conversation_id]
            self._begin(job)

    def consider(self, conversation_id: UUID, owner_id: UUID, offer: Offer, engine_id: UUID) -> None:
        """Make a title for a conversation that got an answer, if it still has only its first words."""
        if self._enabled:
            self._waiting.setdefault(conversation_id, _Job(conversation_id, owner_id, offer, engine_id))

    def is_pending(self, conversation_id: UUID) -> bool:
        return conversation_id in self._waiting or conversation_id in self._tasks

    async def close(self) -> None:
        self._waiting.clear()
        tasks = [task for _job, task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, job: _Job) -> None:
        task = asyncio.create_task(self._make(job), name=f"title {job.conversation_id}")
        self._tasks[job.conversation_id] = job, task
        task.add_done_callback(lambda done: self._forget(job, done))

    def _forget(self, job: _Job, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(job.conversation_id) == (job, task):
            del self._tasks[job.conversation_id]

    async def _make(self, job: _Job) -> None:
        try:
            async with asyncio.timeout(_LONGEST_WAIT) as limit:
                question = await self._first_exchange(job)
                if question is not None:
                    await self._ask_and_store(job, question, limit)
        except (EngineFailed, AppError, TimeoutError) as error:
            log.info("no title: %s", error.kind if isinstance(error, EngineFailed) else type(error).__name__)
        except DatabaseGone:
            log.info("no title: the database is away")

    async def _first_exchange(self, job: _Job) -> str | None:
        """What the title is made from; None when it has one already."""
        async with self._sessions.as_worker() as session:
            conversation = await session.get(Conversation, job.conversation_id)
            if conversation is None or conversation.title_source is not TitleSource.FIRST_WORDS:
                return None
            path = (await session.scalars(queries.opening(job.conversation_id))).all()
        said = [f"{message.speaker}: {message.text[:_EXCERPT]}" for message in path if message.text]
        return _INSTRUCTION + "\n\n".join(said)

    async def _ask_and_store(self, job: _Job, question: str, limit: asyncio.Timeout) -> None:
        text, count = "", None
        asked: list[Endpoint] = []

        def goes_to(endpoint: Endpoint) -> None:
            asked.append(endpoint)
            limit.reschedule(asyncio.get_running_loop().time() + _SECONDS)

        ask = Ask(
            offer=job.offer,
            person_id=job.owner_id,
            affinity=job.conversation_id,
            urgency=Urgency.BACKGROUND,
            cost=usage.estimate(len(question)) + _MAX_TOKENS,
            request=partial(self._request, job, question),
            on_place=_waits,
            on_endpoint=goes_to,
        )
        async with aclosing(self._pool.answer(ask)) as batches:
            async for events in batches:
                text += "".join(event.text for event in events if isinstance(event, Delta))
                count = next((event for event in events if isinstance(event, Usage)), count)
        title = tidy(text)
        async with self._sessions.as_worker() as session:
            if title:
                await session.execute(
                    update(Conversation)
                    .where(Conversation.id == job.conversation_id, Conversation.title_source == TitleSource.FIRST_WORDS)
                    .values(title=title, title_source=TitleSource.MODEL)
                )
            call = usage.Call(job.owner_id, job.offer.id, asked[-1].engine_id, None, Cause.TITLE)
            usage.record(session, call, count, prompt_characters=len(question), written=len(text))

    async def _request(self, job: _Job, question: str, endpoint: Endpoint) -> ChatRequest:
        messages: list[ChatMessage] = prompt.single(question)
        return ChatRequest(
            model=endpoint.upstream_name,
            messages=messages,
            max_tokens=_MAX_TOKENS,
            temperature=0,
            **self._aliases.of(job.owner_id, job.conversation_id),
            thinking=endpoint.without_thinking,
            priority=Urgency.BACKGROUND,
        )


def _waits(_place: Place) -> None:
    """Nobody watches a title wait."""


def first_words(text: str) -> str:
    return one_line(text[:_EXCERPT], MAX_LENGTH) or _("New conversation")


def tidy(text: str) -> str:
    """The one plain line that a model wrote; '' when it wrote something else, such as whole sentences."""
    lines = [line for line in clean(text).splitlines() if line.strip()]
    line = one_line(lines[0], 10 * MAX_LENGTH) if lines else ""
    line = line.removeprefix("Title:").lstrip(_BEFORE).rstrip(_AFTER)
    return line if len(line) <= MAX_LENGTH else ""

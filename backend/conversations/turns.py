"""A turn from start to finish: the crux of Parley.

    ask()     stores question and empty answer in the caller's transaction; its commit is the acknowledgement
    _write()  a task of the process, not of the request: builds the prompt, picks an endpoint, reads the engine
    live()    the answer as its readers follow it (`web/chat/following.py`)
    _save()   about once a second, for all running answers at once: what they gained, which is also their heartbeat
    _end()    text, status, usage and provenance in one transaction; the parts are folded into it
    _reap()   ends the answers of a process that died

A lost browser changes nothing. Only `stop` makes an answer `stopped`. The statements are in `storage.py`; every one of
them compares `attempt`, so a writer that was given up finds its row gone from under it and hangs up on the engine.
"""

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.models import User
from backend.conversations import prompt, queries, storage
from backend.conversations.live import LiveAnswer, Phase
from backend.conversations.models import Conversation, Message, Speaker, Status, TitleSource
from backend.conversations.titles import Titles, first_words
from backend.core.clock import now
from backend.core.db import DatabaseGone, Sessions, after_commit, broken
from backend.core.errors import AppError, BadInput, Conflict, Forbidden, NotFound, TooLarge, Unavailable
from backend.core.i18n import _
from backend.core.ids import new_id
from backend.core.telemetry import new_support_id, support_id
from backend.core.text import clean
from backend.engines.client import JSON, ChatMessage, ChatRequest
from backend.engines.events import EngineFailed, Failure
from backend.engines.registry import Endpoint, NoEngineAvailable, Offer, Registry
from backend.usage import service as usage
from backend.usage.models import Cause

log = logging.getLogger(__name__)

#: Failures that cut an answer off, as opposed to those that refuse it.
_CUT_OFF = frozenset({Failure.CUT, Failure.TIMEOUT, Failure.UNREACHABLE})

#: Failures after which the engine is looked at without waiting for its turn.
_SUSPICIOUS = _CUT_OFF | {Failure.DEAD, Failure.AUTH, Failure.LOADING}

#: Failures that will not be over in a moment.
_LASTING = frozenset({Failure.UNREACHABLE, Failure.AUTH, Failure.UNKNOWN_MODEL})


class AnswerInProgress(Conflict):
    """Raised by the constraint, so that two sends at the same moment cannot both win."""

    def __init__(self) -> None:
        super().__init__(
            _("An answer is still being written here. Your text is kept; send it when the answer is done.")
        )


@dataclass(frozen=True)
class Question:
    """One press of Send. `after` is the answer it follows; None means wherever the conversation ends."""

    text: str
    model_id: UUID
    send_key: UUID
    after: UUID | None = None


@dataclass(frozen=True)
class Turn:
    conversation: Conversation
    question: Message
    answer: Message


@dataclass(frozen=True)
class Timing:
    """Seconds; tests scale them down."""

    save_every: float = 1.0
    abandoned_after: float = 8.0
    reap_every: float = 2.0
    drain: float = 10.0


@dataclass
class _Running:
    """An answer this process is writing."""

    answer_id: UUID
    owner_id: UUID
    conversation_id: UUID
    offer: Offer
    live: LiveAnswer
    started: float = field(default_factory=time.monotonic)
    saved: storage.Saved = field(default_factory=storage.Saved)
    messages: list[ChatMessage] = field(default_factory=list)  # the prompt
    endpoint: Endpoint | None = None
    task: "asyncio.Task[None] | None" = None
    verdict: Status | None = None  # why its task was cancelled
    ending: bool = False  # the last write has begun; too late to cancel


class Turns:
    """Owns every answer this process writes; use as `async with Turns(…)`, leaving it drains them."""

    def __init__(
        self,
        sessions: Sessions,
        registry: Registry,
        titles: Titles,
        *,
        salt_key: bytes,
        message_bytes: int,
        timing: Timing = Timing(),
    ) -> None:
        self._sessions = sessions
        self._registry = registry
        self._titles = titles
        self._salt_key = salt_key
        self._message_bytes = message_bytes
        self._timing = timing
        self._running: dict[UUID, _Running] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._draining = False

    async def __aenter__(self) -> Self:
        self._loops = [
            asyncio.create_task(self._repeat(self._save, self._timing.save_every)),
            asyncio.create_task(self._repeat(self._reap, self._timing.reap_every)),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.begin_drain()
        tasks = [running.task for running in self._running.values() if running.task]
        if tasks:
            await asyncio.wait(tasks, timeout=self._timing.drain)
            self._interrupt_all()
            await asyncio.gather(*tasks, return_exceptions=True)
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)

    def begin_drain(self) -> None:
        """No new answers; running ones may finish for `drain` seconds, the rest keep their text as interrupted."""
        if not self._draining:
            self._draining = True
            asyncio.get_running_loop().call_later(self._timing.drain, self._interrupt_all)

    def _interrupt_all(self) -> None:
        for running in self._running.values():
            self._cancel(running, Status.INTERRUPTED)

    # Asking

    async def ask(
        self, session: AsyncSession, owner_id: UUID, conversation: Conversation | None, question: Question
    ) -> Turn:
        """Store a question and its empty answer, and start writing once the transaction is committed.

        Without a conversation one is begun. The same `send_key` again gives the same turn again, whatever its state.
        Raises BadInput, TooLarge, AnswerInProgress, NotFound (a foreign `after`), Conflict (the key had another text).
        """
        if self._draining:
            raise _restarting()
        text = self._checked(question.text)
        earlier = await self._sent_before(session, owner_id, question.send_key, text)
        if earlier is not None:
            return earlier
        offer = self._offer(question.model_id)
        moment = now()
        if conversation is None:
            conversation = Conversation(
                id=new_id(),
                owner_id=owner_id,
                title=first_words(text),
                title_source=TitleSource.FIRST_WORDS,
                seen_at=moment,
                created_at=moment,
            )
            after = None
        else:
            after = question.after or await session.scalar(queries.newest_leaf(conversation.id))
        conversation.model_id = offer.id
        conversation.updated_at = conversation.seen_at = moment
        asked = Message(
            id=new_id(),
            conversation_id=conversation.id,
            owner_id=owner_id,
            parent_id=after,
            speaker=Speaker.PERSON,
            text=text,
            status=Status.DONE,
            finished_at=moment,
            send_key=question.send_key,
        )
        answer = _empty_answer(conversation, asked.id, offer)
        try:
            with broken(
                uq_messages_running=AnswerInProgress(),
                fk_messages_parent=NotFound(_("The message this follows is not here any more. Reload the page.")),
                uq_messages_send_key=_SentTwice(),
            ):
                async with session.begin_nested():
                    session.add_all([conversation, asked, answer])
        except _SentTwice:
            earlier = await self._sent_before(session, owner_id, question.send_key, text)
            assert earlier is not None, "the other send was committed, or its key would not be taken"
            return earlier
        after_commit(session, partial(self._start, answer, offer))
        return Turn(conversation, asked, answer)

    async def retry(self, session: AsyncSession, answer: Message, model_id: UUID | None = None) -> Message:
        """Answer the same question again, beside an answer that did not end well.

        Raises AnswerInProgress, BadInput (the model is gone), Conflict when the answer is whole or not the last one: a
        new answer in the middle would hide what was said since.
        """
        if self._draining:
            raise _restarting()
        if answer.status is Status.DONE and answer.text:
            raise Conflict(_("This answer is complete."))
        if answer.id != await session.scalar(queries.newest_leaf(answer.conversation_id)):
            raise Conflict(_("The conversation has gone on from here. Ask again at its end."))
        offer = self._offer(model_id or answer.model_id)
        conversation = await session.get_one(Conversation, answer.conversation_id)
        conversation.model_id = offer.id
        assert answer.parent_id is not None, "an answer has a question"
        again = _empty_answer(conversation, answer.parent_id, offer)
        session.add(again)
        with broken(uq_messages_running=AnswerInProgress()):
            await session.flush()
        after_commit(session, partial(self._start, again, offer))
        return again

    def _checked(self, text: str) -> str:
        text = clean(text).strip("\n")
        if not text.strip():
            raise BadInput(_("There is nothing to send yet."))
        size = len(text.encode())
        if size > self._message_bytes:
            raise TooLarge(
                _(
                    "This message has {size:,} bytes; the limit is {limit:,}. Your text is kept; please shorten it."
                ).format(size=size, limit=self._message_bytes)
            )
        return text

    def _offer(self, model_id: UUID | None) -> Offer:
        offer = self._registry.offer(model_id) if model_id else None
        if offer is None:
            raise BadInput(_("This model is not here any more. Choose another one; your text is kept."))
        return offer

    async def _sent_before(self, session: AsyncSession, owner_id: UUID, send_key: UUID, text: str) -> Turn | None:
        question = await session.scalar(queries.sent_with(owner_id, send_key))
        if question is None:
            return None
        if question.text != text:
            raise Conflict(_("This was sent already, with another text. Reload the page and send it again."))
        conversation = await session.get_one(Conversation, question.conversation_id)
        answer = await session.scalar(queries.newest_answer_to(question.id))
        assert answer is not None, "question and answer are stored together"
        return Turn(conversation, question, answer)

    # Writing

    def _start(self, answer: Message, offer: Offer) -> None:
        running = _Running(answer.id, answer.owner_id, answer.conversation_id, offer, LiveAnswer(answer.attempt))
        self._running[answer.id] = running
        running.task = asyncio.create_task(self._write(running), name=f"answer {answer.id}")
        # A task that is cancelled before its first step never comes to its own clean-up; the reaper closes its row.
        running.task.add_done_callback(lambda _task: self._running.pop(answer.id, None))

    async def _write(self, running: _Running) -> None:
        """One answer, from its prompt to its last row."""
        support_id.set(new_support_id())
        try:
            status, reason = await self._read_engine(running)
            running.ending = True
            await self._end(running, status, reason)
            if running.endpoint and running.live.text and status in (Status.DONE, Status.STOPPED):
                self._titles.consider(
                    running.conversation_id, running.owner_id, running.offer, running.endpoint.engine_id
                )
        finally:
            running.live.finish()
            self._running.pop(running.answer_id, None)
            if running.endpoint:
                self._titles.resume(running.endpoint.engine_id)

    async def _read_engine(self, running: _Running) -> tuple[Status, str]:
        """How the answer ended, and a sentence for the reader where it did not end well. Raises nothing."""
        try:
            running.messages = await self._prompt(running)
            running.endpoint = endpoint = self._registry.choose(running.offer, running.conversation_id)
            self._titles.make_way(endpoint.engine_id)
            running.live.enter(Phase.READING)
            async with aclosing(endpoint.client.answer(self._request(running, endpoint))) as batches:
                async for events in batches:
                    running.live.take(events)
            if running.live.ended_by == "abort":  # it went to sleep, or was shut down in an orderly way
                return Status.INTERRUPTED, _("The engine broke this answer off.")
            return Status.DONE, ""
        except asyncio.CancelledError:
            status = running.verdict or Status.INTERRUPTED
            return status, storage.reason_of(status)
        except EngineFailed as failure:
            # Of what the engine said only that which is about the engine: a refusal may repeat the question.
            said = failure.detail if failure.kind in _SUSPICIOUS else ""
            log.warning("an answer broke off: %s", failure.kind, extra=_marks(running) | {"engine_says": said})
            if running.endpoint and failure.kind in _SUSPICIOUS:
                self._registry.look_now(running.endpoint.engine_id)
            cut_off = failure.kind in _CUT_OFF and bool(running.live.text or running.live.reasoning)
            return (Status.INTERRUPTED if cut_off else Status.FAILED), _with_way_on(failure)
        except NoEngineAvailable as error:
            return Status.FAILED, f"{error} {_elsewhere()}"
        except AppError as error:
            return Status.FAILED, str(error)
        except DatabaseGone:
            return Status.FAILED, _("The database did not answer. Your question is kept.")
        except Exception:
            # The outermost place of a turn: a fault of ours ends as a failed answer, never as silence.
            log.exception("an answer broke off", extra=_marks(running))
            sentence = _("Something went wrong on our side (support id {id}). Your question is kept.")
            return Status.FAILED, sentence.format(id=support_id.get())

    async def _prompt(self, running: _Running) -> list[ChatMessage]:
        async with self._sessions.as_worker() as session:
            path = (await session.scalars(queries.path_to(running.answer_id))).all()
            owner = await session.get(User, running.owner_id)
        if not path or owner is None:
            raise NotFound(_("This conversation is not here any more."))
        if owner.disabled_at is not None:  # deactivated while the question was on its way
            raise Forbidden(_("This account is deactivated."))
        return prompt.build(path, running.offer.system_prompt, system_role=running.offer.system_role)

    def _request(self, running: _Running, endpoint: Endpoint) -> ChatRequest:
        extra: dict[str, JSON] = {}
        if endpoint.engine_kind in ("vllm", "sglang"):
            # A salt per person, so that nobody can tell from timing what others asked (CVE-2025-46570).
            extra["cache_salt"] = hmac.new(self._salt_key, running.owner_id.bytes, hashlib.sha256).hexdigest()
        return ChatRequest(
            model=endpoint.upstream_name,
            messages=running.messages,
            max_tokens=running.offer.max_tokens,
            temperature=running.offer.temperature,
            extra=extra,
        )

    async def _end(self, running: _Running, status: Status, reason: str) -> None:
        """Store the end, however long the database is away: an answer that was shown must not be lost."""
        while True:
            try:
                await self._store_end(running, status, reason)
                return
            except DatabaseGone:
                if self._draining:
                    log.error("the database is away: an answer keeps only what was saved", extra=_marks(running))
                    return
                log.warning("the database is away: the end of an answer waits", extra=_marks(running))
                await asyncio.sleep(self._timing.save_every)

    async def _store_end(self, running: _Running, status: Status, reason: str) -> None:
        live = running.live
        async with self._sessions.as_worker() as session:
            facts = _provenance(running)
            if not await storage.store_end(session, running.answer_id, live, status, reason, facts):
                # Deleted meanwhile, or given up by the reaper; what the engine did for it is counted all the same.
                log.warning("an answer was ended by somebody else", extra=_marks(running))
            if running.endpoint is not None:
                usage.record(
                    session,
                    usage.Call(
                        running.owner_id, running.offer.id, running.endpoint.engine_id, running.answer_id, Cause.CHAT
                    ),
                    live.usage,
                    prompt_characters=sum(len(message["content"]) for message in running.messages),
                    written=len(live.text) + len(live.reasoning),
                )

    # Stopping

    async def stop(self, answer: Message) -> None:
        """End a running answer as stopped, keeping what was shown; the engine's connection closes at once.

        Hold no transaction meanwhile: storing the end needs a connection of its own.
        """
        running = self._running.get(answer.id)
        if running is not None and running.task is not None:
            self._cancel(running, Status.STOPPED)
            await asyncio.wait([running.task], timeout=self._timing.drain)
        async with self._sessions.as_worker() as session:
            row = await session.get(Message, answer.id, with_for_update=True)
            if row is not None and row.status.running and row.id not in self._running:
                await storage.close(session, row, Status.STOPPED)

    def stop_all(self, *, conversation_id: UUID | None = None, owner_id: UUID | None = None) -> None:
        """Stop what belongs to a conversation or a person that is going away; does not wait."""
        for running in self._running.values():
            if running.conversation_id == conversation_id or running.owner_id == owner_id:
                self._cancel(running, Status.STOPPED)

    def _cancel(self, running: _Running, verdict: Status) -> None:
        if running.task is not None and running.verdict is None and not running.ending:
            running.verdict = verdict
            running.task.cancel()

    def live(self, answer_id: UUID) -> LiveAnswer | None:
        """The answer as it is being written, if this process writes it."""
        running = self._running.get(answer_id)
        return running.live if running else None

    # Saving and reaping

    async def _repeat(self, work: Callable[[], Awaitable[None]], every: float) -> None:
        while True:
            await asyncio.sleep(every)
            try:
                await work()
            except DatabaseGone as error:
                log.warning("the database is away: %s", type(error).__name__)
            except Exception:
                # The outermost place of a loop that must outlive its faults: without it nothing is saved any more.
                log.exception("a loop of the turns stumbled")

    async def _save(self) -> None:
        running = [one for one in self._running.values() if not one.ending]
        if not running:
            return
        saves = [storage.Save(one.answer_id, one.live, one.saved) for one in running]
        async with self._sessions.as_worker() as session:
            ours = await storage.save(session, saves)
        for one, save in zip(running, saves, strict=True):
            if one.answer_id in ours:
                save.done()
            else:
                self._cancel(one, Status.INTERRUPTED)

    async def _reap(self) -> None:
        overdue = now() - timedelta(seconds=self._timing.abandoned_after)
        async with self._sessions.as_worker() as session:
            found = await session.scalars(queries.abandoned(overdue).with_for_update(skip_locked=True))
            for answer in found.all():
                if answer.id not in self._running:
                    log.warning("an answer lost its writer and was closed", extra={"answer_id": answer.id})
                    await storage.close(session, answer, Status.INTERRUPTED)


class _SentTwice(Conflict):
    """Two requests with one `send_key` met; the first to commit is the turn."""

    def __init__(self) -> None:
        super().__init__(_("This was sent already."))


def _empty_answer(conversation: Conversation, question_id: UUID, offer: Offer) -> Message:
    return Message(
        id=new_id(),
        conversation_id=conversation.id,
        owner_id=conversation.owner_id,
        parent_id=question_id,
        speaker=Speaker.MODEL,
        text="",
        reasoning="",
        reason="",
        status=Status.QUEUED,
        model_id=offer.id,
        model_name=offer.name,
        attempt=1,
        heartbeat_at=now(),
        provenance={},
        created_at=now(),
    )


def _with_way_on(failure: EngineFailed) -> str:
    """What happened, and what a person can do who has never heard of engines."""
    return f"{failure} {_elsewhere()}" if failure.kind in _LASTING else str(failure)


def _elsewhere() -> str:
    return _("Choose another model, or tell your administrator.")


def _restarting() -> Unavailable:
    return Unavailable(_("Parley is restarting. Your text is kept; send it again in a moment."), retry_after=5)


def _marks(running: _Running) -> dict[str, object]:
    """What a log line says of a turn: ids, never text."""
    engine = running.endpoint.engine_name if running.endpoint else None
    return {"answer_id": running.answer_id, "user_id": running.owner_id, "engine": engine}


def _provenance(running: _Running) -> dict[str, Any]:
    """What made this answer, kept with it: engine, revision, parameters, tokens and seconds."""
    live, endpoint, offer = running.live, running.endpoint, running.offer
    ended = time.monotonic()
    facts: dict[str, Any] = {
        "engine": endpoint.engine_name if endpoint else None,
        "engine_kind": endpoint.engine_kind if endpoint else None,
        "engine_version": endpoint.engine_version if endpoint else None,
        "upstream_name": endpoint.upstream_name if endpoint else None,
        "temperature": offer.temperature,
        "max_tokens": offer.max_tokens,
        "seconds": round(ended - running.started, 3),
    }
    if live.first_text_at is not None:
        facts["first_token_seconds"] = round(live.first_text_at - running.started, 3)
    if live.usage is not None:
        facts |= {
            "prompt_tokens": live.usage.prompt_tokens,
            "cached_tokens": live.usage.cached_tokens,
            "completion_tokens": live.usage.completion_tokens,
        }
    return facts

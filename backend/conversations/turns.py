"""A turn from start to finish: the crux of Parley.

    ask()        stores question and empty answer in one statement; its commit is the acknowledgement
    regenerate() another answer to the same question, beside the one that is there
    proceed()    takes an answer up where it broke off
    _write()     a task of the process, not of the request (`writing.py`)
    follow()     the answer as its readers see it grow, wherever it is written (`web/chat/following.py`)
    _save()      about once a second, for all running answers at once: what they gained, which is also their heartbeat
    _reap()      goes on with the answers of a process that died

A lost browser changes nothing. Only `stop` makes an answer `stopped`.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace, TracebackType
from typing import Any, LiteralString, Self
from uuid import UUID

from backend.conversations import context, queries, statements
from backend.conversations.elsewhere import Copies, Teller
from backend.conversations.live import LiveAnswer, Tick
from backend.conversations.models import Conversation, Message, Speaker, Status, TitleSource
from backend.conversations.running import Ended, Running, segments
from backend.conversations.titles import Titles, first_words
from backend.conversations.writing import Writer, reason_of, save
from backend.core.bus import Bus, Payload
from backend.core.clock import now
from backend.core.db import DatabaseGone, Sessions, broken
from backend.core.direct import Direct
from backend.core.errors import BadInput, Conflict, NotFound, TooLarge, Unavailable
from backend.core.i18n import _
from backend.core.ids import new_id
from backend.core.text import clean
from backend.engines.registry import Offer, Registry
from backend.files import queries as attachments, service as files, sight
from backend.files.models import File

log = logging.getLogger(__name__)

_MOST_RESUMED = 2  # times an answer is taken up by itself: one that kills its process must not do so for ever
_MAX_INSTRUCTION = 500  # characters
_STOPS_KEPT = 1_000  # enough for those that come while a statement runs
_HEAD_START = 3  # turns of the event loop that a new answer has before its page is drawn: the engine comes first


class AnswerInProgress(Conflict):
    """Raised by the constraint, so that two sends at the same moment cannot both win."""

    def __init__(self) -> None:
        super().__init__(
            _("An answer is still being written here. Your text is kept; send it when the answer is done.")
        )


@dataclass(frozen=True)
class Question:
    """One press of Send. `after` is the answer it follows, `edits` the question it stands in for; neither: the end."""

    text: str
    model_id: UUID
    send_key: UUID
    after: UUID | None = None
    edits: UUID | None = None
    is_continuation: bool = False
    files: tuple[UUID, ...] = ()


@dataclass(frozen=True)
class Turn:
    conversation: Conversation
    question: Message
    answer: Message
    files: Sequence[File] = ()  # of the question


@dataclass(frozen=True)
class _Stored:
    row: Any | None  # None: there is no such conversation
    messages: Sequence[Any] | None = None
    files: Sequence[File] = ()


@dataclass(frozen=True)
class Timing:
    """Seconds; tests scale them down."""

    save_every: float = 1.0
    abandoned_after: float = 5.0
    reap_every: float = 1.0
    drain: float = 10.0
    patience: float = 30.0


class Turns:
    """Owns every answer this process writes; use as `async with Turns(…)`, leaving it drains them."""

    def __init__(
        self,
        sessions: Sessions,
        direct: Direct,
        bus: Bus,
        registry: Registry,
        titles: Titles,
        *,
        salt_key: bytes,
        message_bytes: int,
        files_per_message: int,
        timing: Timing = Timing(),
    ) -> None:
        self._sessions = sessions
        self._direct = direct
        self._bus = bus
        self._registry = registry
        self._titles = titles
        self._message_bytes = message_bytes
        self._files_per_message = files_per_message
        self._timing = timing
        self._writer = Writer(
            sessions,
            direct,
            registry,
            titles,
            salt_key=salt_key,
            save_every=timing.save_every,
            patience=timing.patience,
        )
        self._running: dict[UUID, Running] = {}
        self._tick = Tick()
        self._copies = Copies(bus, direct, self._tick)
        self._teller = Teller(bus, self._running)
        self._loops: list[asyncio.Task[None]] = []
        self._reap_now = asyncio.Event()
        self._database_back_at = float("-inf")  # time.monotonic()
        self._draining = False
        self._stops: deque[tuple[float, set[UUID]]] = deque(maxlen=_STOPS_KEPT)

    async def __aenter__(self) -> Self:
        self._bus.on("stop", self._told_to_stop)
        self._bus.on("handed-over", self._told_to_reap)
        self._loops = [
            asyncio.create_task(self._repeat(self._save, self._timing.save_every, asyncio.Event())),
            asyncio.create_task(self._repeat(self._reap, self._timing.reap_every, self._reap_now)),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.begin_drain()
        tasks = [running.task for running in self._running.values() if running.task]
        if tasks:
            await asyncio.wait(tasks, timeout=self._timing.drain)
            self._leave_to_others()
            await asyncio.gather(*tasks, return_exceptions=True)
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._bus.off("stop", self._told_to_stop)
        self._bus.off("handed-over", self._told_to_reap)
        self._teller.close()

    @property
    def is_draining(self) -> bool:
        return self._draining

    @property
    def is_busy(self) -> bool:
        """Answers are being written here."""
        return bool(self._running)

    def begin_drain(self) -> None:
        """No new answers; running ones may finish for `drain` seconds, the rest are left to another process, or to
        this one after its restart."""
        if not self._draining:
            self._draining = self._writer.gives_up = True
            asyncio.get_running_loop().call_later(self._timing.drain, self._leave_to_others)

    def _leave_to_others(self) -> None:
        self._copies.close()
        for running in self._running.values():
            self._cancel(running, None)

    # Asking

    async def ask(self, owner_id: UUID, conversation_id: UUID | None, question: Question) -> Turn:
        """Store a question and its empty answer, and start writing. Without a conversation one is begun.

        The same `send_key` again gives the same turn again, whatever its state. Raises BadInput, TooLarge,
        AnswerInProgress, NotFound (a foreign conversation, `after` or `edits`), Conflict (the key had another text).
        """
        if self._draining:
            raise _restarting()
        began = time.monotonic()
        text = self._checked(question)
        offer = self._registry.offer(question.model_id)
        if offer is None:
            if earlier := await self._sent_before(owner_id, question.send_key, text):
                return earlier
            raise _no_such_model()
        _fits(text, offer)
        values = {
            "owner": owner_id,
            "chat": conversation_id or new_id(),
            "question": new_id(),
            "answer": new_id(),
            "now": now(),
            "text": text,
            "key": question.send_key,
            "model": offer.id,
            "model_name": offer.name,
            "title": first_words(text),
            "after": question.after,
            "at_root": False,
            "is_continuation": question.is_continuation,
        }
        if question.edits is not None:
            values["after"] = await self._place_of(owner_id, conversation_id, question.edits)
            values["at_root"] = values["after"] is None
        statement = statements.ASK if conversation_id else statements.BEGIN
        try:
            with broken(
                uq_messages_running=AnswerInProgress(),
                fk_messages_parent=NotFound(_("The message this follows is not here any more. Reload the page.")),
                uq_messages_send_key=_SentTwice(),
            ):
                stored = await self._store(owner_id, statement, values, question, offer)
        except _SentTwice:
            earlier = await self._sent_before(owner_id, question.send_key, text)
            assert earlier is not None, "the other send was committed, or its key would not be taken"
            return earlier
        if stored.row is None:
            raise _no_such_conversation()
        turn = _turn(values, stored.row if conversation_id else None, stored.files)
        await self._begin(turn.answer, offer, began, message=turn.answer, messages=stored.messages)
        return turn

    async def regenerate(self, answer: Message, model_id: UUID | None = None, instruction: str = "") -> Message:
        """Answer the same question again, beside `answer`: by another model, or with a wish such as "shorter".

        Raises AnswerInProgress, BadInput (the model is gone), NotFound (the conversation is gone).
        """
        if self._draining:
            raise _restarting()
        began = time.monotonic()
        offer = self._registry.offer(model_id or answer.model_id)
        if offer is None:
            raise _no_such_model()
        values = {
            "owner": answer.owner_id,
            "chat": answer.conversation_id,
            "question": answer.parent_id,
            "answer": new_id(),
            "now": now(),
            "model": offer.id,
            "model_name": offer.name,
            "instruction": clean(instruction).strip()[:_MAX_INSTRUCTION],
        }
        with broken(uq_messages_running=AnswerInProgress()):
            (rows,) = await self._direct.as_person(answer.owner_id, (statements.ANSWER_AGAIN, values))
        if not rows:
            raise _no_such_conversation()
        again = _empty_answer(values)
        await self._begin(again, offer, began)
        return again

    async def proceed(self, answer: Message) -> None:
        """Take an answer up where it broke off; only its text grows. See `can_proceed`.

        Raises AnswerInProgress, Conflict (it is whole, or not the last one), BadInput (the model is gone).
        """
        if self._draining:
            raise _restarting()
        offer = self._registry.offer(answer.model_id)
        if offer is None:
            raise _no_such_model()
        with broken(uq_messages_running=AnswerInProgress()):
            (rows,) = await self._direct.as_person(
                answer.owner_id, (statements.REOPEN, {"answer": answer.id, "owner": answer.owner_id})
            )
        if not rows:
            raise Conflict(_("This answer is whole, or the conversation has gone on from it. Reload the page."))
        row = rows[0]
        live = LiveAnswer(row.attempt, row.text, row.reasoning, tick=self._tick)
        earlier = segments(row.provenance)
        self._start(Running(answer.id, answer.owner_id, answer.conversation_id, offer, live, earlier=earlier))

    def can_proceed(self, answer: Message) -> bool:
        """Whether an engine of its model picks an answer up where it broke off; else only a new turn can go on."""
        offer = self._registry.offer(answer.model_id)
        return bool(answer.text) and offer is not None and any(each.continues for each in offer.endpoints)

    def _checked(self, question: Question) -> str:
        text = clean(question.text).strip("\n")
        if not text.strip() and not question.files:
            raise BadInput(_("There is nothing to send yet."))
        size = len(text.encode())
        if size > self._message_bytes:
            raise TooLarge(
                _(
                    "This message has {size:,} bytes; the limit is {limit:,}. Your text is kept; please shorten it."
                ).format(size=size, limit=self._message_bytes)
            )
        return text

    async def _store(
        self, owner_id: UUID, statement: LiteralString, values: dict[str, Any], question: Question, offer: Offer
    ) -> "_Stored":
        """The short way, unless there is more to store than the two messages: what is attached to the question."""
        begins = statement is statements.BEGIN
        if not question.files and question.edits is None:
            asked = [(statement, values)] if begins else [(statement, values), (statements.MESSAGES, values)]
            rows, *messages = await self._direct.as_person(owner_id, *asked)
            return _Stored(rows[0] if rows else None, _first_messages(values) if begins else messages[0])
        async with self._sessions.as_person(owner_id) as session:
            row = (await (await session.connection()).exec_driver_sql(statement, values)).first()
            if row is None:
                return _Stored(None)
            if question.edits is not None:
                await files.copy(session, question.edits, values["question"])
            carried = await files.attach(
                session,
                owner_id,
                question.files,
                values["question"],
                most=self._files_per_message,
                refuse_pictures=sight.refusal(offer, self._registry.offers),
            )
        return _Stored(row, None, carried)

    async def _place_of(self, owner_id: UUID, conversation_id: UUID | None, question_id: UUID) -> UUID | None:
        """What the question that is edited follows; None at the beginning of the conversation."""
        async with self._sessions.as_person(owner_id) as session:
            edited = (
                await session.scalar(queries.message_visible_to(owner_id, conversation_id, question_id))
                if conversation_id
                else None
            )
        if edited is None or edited.speaker is not Speaker.PERSON:
            raise NotFound(_("The message you edited is not here any more. Your text is kept."))
        return edited.parent_id

    async def _sent_before(self, owner_id: UUID, send_key: UUID, text: str) -> Turn | None:
        async with self._sessions.as_person(owner_id) as session:
            question = await session.scalar(queries.sent_with(owner_id, send_key))
            if question is None:
                return None
            if question.text != text:
                raise Conflict(_("This was sent already, with another text. Reload the page and send it again."))
            conversation = await session.get_one(Conversation, question.conversation_id)
            answer = await session.scalar(queries.newest_answer_to(question.id))
            carried = (await session.scalars(attachments.of_messages([question.id]))).all()
        assert answer is not None, "question and answer are stored together"
        return Turn(conversation, question, answer, carried)

    # Writing

    async def _begin(
        self,
        answer: Message,
        offer: Offer,
        began: float,
        *,
        message: Message | None = None,
        messages: Sequence[Any] | None = None,
    ) -> None:
        """Start writing a new answer. `messages` are those of its conversation, if they are at hand."""
        live = LiveAnswer(answer.attempt, tick=self._tick)
        running = Running(answer.id, answer.owner_id, answer.conversation_id, offer, live, message, messages)
        self._start(running)
        if any(moment >= began and named & running.names for moment, named in self._stops):
            self._cancel(running, Status.STOPPED)  # it was told to stop while its first row was on its way
        for _step in range(_HEAD_START):
            await asyncio.sleep(0)

    def _start(self, running: Running) -> None:
        self._running[running.answer_id] = running
        running.task = asyncio.create_task(self._write(running), name=f"answer {running.answer_id}")

    async def _write(self, running: Running) -> None:
        ended: Ended | None = None
        try:
            ended = await self._writer.write(running)
            if ended is None:
                self._bus.post("handed-over", {})
            elif running.endpoint and running.live.text and ended.status in (Status.DONE, Status.STOPPED):
                self._titles.consider(
                    running.conversation_id, running.owner_id, running.offer, running.endpoint.engine_id
                )
        finally:
            self._running.pop(running.answer_id, None)
            running.live.finish(running.final(ended) if ended else None)
            self._teller.ended(running)
            if running.endpoint:
                self._titles.resume(running.endpoint.engine_id)

    # Reading

    def live(self, answer_id: UUID) -> LiveAnswer | None:
        """The answer as it is being written, if this process writes it."""
        running = self._running.get(answer_id)
        return running.live if running else None

    def writes_for(self, answer_id: UUID, conversation_id: UUID, owner_id: UUID) -> bool:
        """Whether this process writes the answer, and for this person: then a reader needs no look at the rows."""
        running = self._running.get(answer_id)
        return running is not None and (running.conversation_id, running.owner_id) == (conversation_id, owner_id)

    @asynccontextmanager
    async def follow(self, answer_id: UUID) -> AsyncIterator[LiveAnswer]:
        """The growing answer, for a reader who is here, wherever it is written. Finished at once if it is over."""
        running = self._running.get(answer_id)
        if running is None:
            async with self._copies.of(answer_id) as copy:  # finished as well once this process goes
                yield copy
            return
        running.readers += 1
        try:
            yield running.live
        finally:
            running.readers -= 1

    # Stopping

    async def stop(self, answer: Message) -> None:
        """End a running answer as stopped, keeping what was shown; the engine's connection closes at once.

        Hold no transaction meanwhile: storing the end needs a connection of its own.
        """
        if answer.id not in self._running:
            await self._bus.publish("stop", {"answer": answer.id.hex})
            await self._until_over(answer.id, self._timing.abandoned_after / 4)
        if running := self._running.get(answer.id):  # perhaps only now: it was taken over here meanwhile
            self._cancel(running, Status.STOPPED)
            if running.task is not None:
                await asyncio.wait([running.task], timeout=self._timing.drain)
        if answer.id not in self._running:
            await self._close(answer.id, Status.STOPPED)

    async def _until_over(self, answer_id: UUID, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            rows = await self._direct.as_worker(statements.PROGRESS, {"answer": answer_id})
            if not rows or not Status(rows[0].status).running:
                return
            await asyncio.sleep(0.02)

    def stop_all(self, *, conversation_id: UUID | None = None, owner_id: UUID | None = None) -> None:
        """Stop what belongs to a conversation or a person that is going away, in every process; does not wait."""
        about = {"conversation": conversation_id, "owner": owner_id}
        payload = {name: id_.hex for name, id_ in about.items() if id_ is not None}
        self._told_to_stop(payload)
        self._bus.post("stop", payload)

    def _told_to_stop(self, payload: Payload) -> None:
        named = {UUID(value) for value in payload.values()}
        self._stops.append((time.monotonic(), named))
        for running in self._running.values():
            if named & running.names:
                self._cancel(running, Status.STOPPED)

    def _cancel(self, running: Running, verdict: Status | None) -> None:
        if running.task is not None and not running.is_cancelled and not running.is_ending:
            running.is_cancelled = True
            running.verdict = verdict
            if running.has_begun:  # a task that is cancelled before its first step would never come to its last row
                running.task.cancel()

    async def _close(self, answer_id: UUID, status: Status, *, attempt: int | None = None, reason: str = "") -> None:
        await self._direct.as_worker(
            statements.CLOSE,
            {
                "answer": answer_id,
                "attempt": attempt,
                "status": status.value,
                "reason": reason or reason_of(status),
            },
        )

    # Saving and reaping

    async def _repeat(self, work: Callable[[], Awaitable[None]], every: float, at_once: asyncio.Event) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await at_once.wait()
            at_once.clear()
            try:
                await work()
            except DatabaseGone as error:
                self._database_back_at = float("inf")
                log.warning("the database is away: %s", type(error).__name__)
            except Exception:
                # The outermost place of a loop that must outlive its faults: without it nothing is saved any more.
                log.exception("a loop of the turns stumbled")

    async def _save(self) -> None:
        for lost in await save(self._direct, [one for one in self._running.values() if not one.is_ending]):
            self._cancel(lost, Status.INTERRUPTED)

    async def _reap(self) -> None:
        """Take over what nobody writes any more. Silence counts only while the database could be reached from here."""
        if self._draining or not await self._database_was_there():
            return
        silent = timedelta(seconds=self._timing.abandoned_after)
        values = {"silent": silent, "ours": list(self._running)}
        for row in await self._direct.as_worker(statements.TAKE_OVER, values):
            await self._resume(row)

    async def _database_was_there(self) -> bool:
        if self._database_back_at == float("inf"):
            await self._direct.as_worker("SELECT 1", {})
            self._database_back_at = time.monotonic()
        return time.monotonic() - self._database_back_at >= self._timing.abandoned_after

    async def _resume(self, row: Any) -> None:
        """Go on with an answer whose process is gone; one without text starts again from its question."""
        offer = self._registry.offer(row.model_id)
        marks = {"answer_id": row.id, "user_id": row.owner_id}
        if offer is None or row.resumed > _MOST_RESUMED:
            log.warning("an answer lost its writer and was closed", extra=marks)
            await self._close(row.id, Status.INTERRUPTED, attempt=row.attempt)
            return
        log.warning("an answer lost its writer and goes on here", extra=marks)
        live = LiveAnswer(row.attempt, row.text, row.reasoning, tick=self._tick)
        earlier = segments(row.provenance)
        running = Running(row.id, row.owner_id, row.conversation_id, offer, live, earlier=earlier, resumed=row.resumed)
        self._start(running)

    def _told_to_reap(self, _payload: Payload) -> None:
        self._reap_now.set()


class _SentTwice(Conflict):
    """Two requests with one `send_key` met; the first to commit is the turn."""

    def __init__(self) -> None:
        super().__init__(_("This was sent already."))


def _turn(values: dict[str, Any], stored: Any | None, carried: Sequence[File]) -> Turn:
    """What was stored, as the pages know it; `stored` is what the conversation already had."""
    moment = values["now"]
    conversation = Conversation(
        id=values["chat"],
        created_at=moment,
        owner_id=values["owner"],
        title=stored.title if stored else values["title"],
        title_source=TitleSource(stored.title_source) if stored else TitleSource.FIRST_WORDS,
        model_id=values["model"],
        updated_at=moment,
        seen_at=moment,
        leaf_id=values["answer"],
    )
    question = Message(
        id=values["question"],
        created_at=moment,
        conversation_id=conversation.id,
        owner_id=values["owner"],
        parent_id=stored.parent_id if stored else None,
        speaker=Speaker.PERSON,
        text=values["text"],
        status=Status.DONE,
        finished_at=moment,
        send_key=values["key"],
        is_continuation=values["is_continuation"],
        instruction="",
    )
    return Turn(conversation, question, _empty_answer(values), carried)


def _first_messages(values: dict[str, Any]) -> Sequence[Any]:
    """What `statements.MESSAGES` would find in a conversation that has just begun."""
    question = {"id": values["question"], "parent_id": None, "speaker": Speaker.PERSON, "text": values["text"]}
    answer = {"id": values["answer"], "parent_id": values["question"], "speaker": Speaker.MODEL, "text": ""}
    others = {
        "instruction": "",
        "context_tokens": None,
        "context_from": None,
        "has_files": False,
        "is_welcome": True,
    }
    return [SimpleNamespace(**question, **others), SimpleNamespace(**answer, **others)]


def _empty_answer(values: dict[str, Any]) -> Message:
    return Message(
        id=values["answer"],
        created_at=values["now"],
        conversation_id=values["chat"],
        owner_id=values["owner"],
        parent_id=values["question"],
        speaker=Speaker.MODEL,
        text="",
        reasoning="",
        reason="",
        status=Status.QUEUED,
        model_id=values["model"],
        model_name=values["model_name"],
        attempt=1,
        provenance={},
        resumed=0,
        instruction=values.get("instruction", ""),
    )


def _fits(text: str, offer: Offer) -> None:
    """Refuse what no model of this size can read, however it counts; the exact count is made before it is sent."""
    windows = [endpoint.context_length for endpoint in offer.endpoints]
    if None in windows or not windows:
        return
    over = context.at_least(text) - max(window for window in windows if window)
    if over > 0:
        sentence = _("This message is too long for this model: over by {tokens:,} tokens. Your text is kept.")
        raise TooLarge(sentence.format(tokens=over))


def _no_such_model() -> BadInput:
    return BadInput(_("This model is not here any more. Choose another one; your text is kept."))


def _no_such_conversation() -> NotFound:
    return NotFound(_("There is no conversation here. It may have been deleted, or it belongs to somebody else."))


def _restarting() -> Unavailable:
    return Unavailable(_("Parley is restarting. Your text is kept; send it again in a moment."), retry_after=5)

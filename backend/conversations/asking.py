"""What a turn begins with: everything that can refuse it, and the rows that acknowledge it. Nothing here runs on.

Question and empty answer are stored with one statement, whose commit is the acknowledgement. What is attached or
edited needs more than one; then they are one transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID, uuid5

from psycopg.types.json import Jsonb

from backend.conversations import queries, statements
from backend.conversations.context import Window
from backend.conversations.live import LiveAnswer, Tick
from backend.conversations.models import Conversation, Message, Speaker, Status, TitleSource
from backend.conversations.refusals import AccountDeactivated, NoSuchConversation
from backend.conversations.running import Running, segments
from backend.conversations.titles import first_words
from backend.conversations.tree import PathRow
from backend.core.clock import now
from backend.core.db import Sessions, broken
from backend.core.direct import Direct
from backend.core.errors import BadInput, Conflict, NotFound, TooLarge
from backend.core.i18n import _
from backend.core.ids import new_id
from backend.core.text import clean
from backend.engines.parameters import Parameters
from backend.engines.registry import Offer, Registry
from backend.files import queries as attachments, service as files, sight
from backend.files.models import File
from backend.usage.service import at_least, estimate

_MAX_INSTRUCTION = 500  # characters


class AnswerInProgress(Conflict):
    """Raised by the constraint, so that two sends at the same moment cannot both win."""

    def __init__(self) -> None:
        super().__init__(
            _("An answer is still being written here. Your text is kept; send it when the answer is done.")
        )


class _SentTwice(Conflict):
    """Two requests with one `send_key` met; the first to commit is the turn."""

    def __init__(self) -> None:
        super().__init__(_("This was sent already."))


class _NoSuchModel(BadInput):
    def __init__(self) -> None:
        super().__init__(_("This model is not here any more. Choose another one; your text is kept."))


class _InMaintenance(BadInput):
    def __init__(self, name: str) -> None:
        super().__init__(
            _("“{model}” is under maintenance at the moment. Choose another one; your text is kept.").format(model=name)
        )


class _NothingToSend(BadInput):
    def __init__(self) -> None:
        super().__init__(_("There is nothing to send yet."))


class _WholeOrPassed(Conflict):
    def __init__(self) -> None:
        super().__init__(_("This answer is whole, or the conversation has gone on from it. Reload the page."))


@dataclass(frozen=True)
class Question:
    """One press of Send. `after` is the answer it follows, `edits` the question it stands in for; neither: the end.

    Without `parameters` those that were chosen last in this conversation hold.
    """

    text: str
    model_id: UUID
    send_key: UUID
    after: UUID | None = None
    edits: UUID | None = None
    is_continuation: bool = False
    files: tuple[UUID, ...] = ()
    parameters: Parameters | None = None


@dataclass(frozen=True)
class Turn:
    conversation: Conversation
    question: Message
    answer: Message
    files: Sequence[File] = ()  # of the question


class Asking:
    """Stores what is asked, and says what is to be written for it."""

    def __init__(
        self,
        sessions: Sessions,
        direct: Direct,
        registry: Registry,
        tick: Tick,
        *,
        message_bytes: int,
        files_per_message: int,
    ) -> None:
        self._sessions = sessions
        self._direct = direct
        self._registry = registry
        self._tick = tick
        self._message_bytes = message_bytes
        self._files_per_message = files_per_message

    async def question(
        self, owner_id: UUID, conversation_id: UUID | None, question: Question
    ) -> tuple[Turn, Running | None]:
        """The turn, and its answer to be written: None where it was sent before, whatever became of it.

        Without a conversation one is begun. Raises as `Turns.ask` does.
        """
        text = self._checked(question)
        try:
            offer = self._offer(owner_id, question.model_id)
            _fits(text, offer)
            after = question.after
            if question.edits is not None:
                after = await self._place_of(owner_id, conversation_id, question.edits)
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
                "after": after,
                "at_root": question.edits is not None and after is None,
                "is_continuation": question.is_continuation,
                "parameters": _stored(question.parameters),
            }
            turn, rows = await self._store(values, question, offer, is_first=conversation_id is None)
        except (_NoSuchModel, _SentTwice):
            if earlier := await self._sent_before(owner_id, conversation_id, question.send_key, text):
                return earlier, None
            raise
        return turn, self._new(turn.answer, offer, is_only=True, rows=rows)

    async def again(
        self, answer: Message, model_id: UUID | None, instruction: str, parameters: Parameters | None
    ) -> tuple[Message, Running]:
        """Another answer to the same question. Raises as `Turns.regenerate` does."""
        owner_id = answer.owner_id
        offer = self._offer(owner_id, model_id) if model_id else self._same_or_fallback(owner_id, answer.model_id)
        values = {
            "owner": answer.owner_id,
            "chat": answer.conversation_id,
            "question": answer.parent_id,
            "answer": new_id(),
            "now": now(),
            "model": offer.id,
            "model_name": offer.name,
            "instruction": clean(instruction).strip()[:_MAX_INSTRUCTION],
            "parameters": _stored(parameters),
        }
        with broken(uq_messages_running=AnswerInProgress()):
            (found,) = await self._direct.as_person(answer.owner_id, (statements.ANSWER_AGAIN, values))
        if not found:
            raise NoSuchConversation
        again = _empty_answer(values, found[0].parameters)
        return again, self._new(again, offer)

    async def reopened(self, answer: Message) -> Running:
        """An answer that goes on from the text it has. Raises as `Turns.proceed` does."""
        offer = self._offer(answer.owner_id, answer.model_id)
        values = {"answer": answer.id, "owner": answer.owner_id}
        with broken(uq_messages_running=AnswerInProgress()):
            (found,) = await self._direct.as_person(answer.owner_id, (statements.REOPEN, values))
        if not found:
            raise _WholeOrPassed
        (row,) = found
        live = LiveAnswer(row.attempt, row.text, row.reasoning, tick=self._tick)
        earlier = segments(row.provenance)
        chosen = Parameters.read(row.parameters)
        return Running(answer.id, answer.owner_id, answer.conversation_id, offer, live, chosen=chosen, earlier=earlier)

    async def wish_to_go_on(self, answer: Message) -> Question:
        """The question that stands for going on, under the same conditions; two presses are one question."""
        offer = self._same_or_fallback(answer.owner_id, answer.model_id)
        key = uuid5(answer.id, f"go on after attempt {answer.attempt}")
        async with self._sessions.as_person(answer.owner_id) as session:
            conversation = await session.get_one(Conversation, answer.conversation_id)
            asked_before = await session.scalar(queries.sent_with(answer.owner_id, key)) is not None
        if not answer.broke_off or not (conversation.leaf_id == answer.id or asked_before):
            raise _WholeOrPassed
        text = _("Please go on exactly where you stopped.")
        return Question(text, offer.id, key, after=answer.id, is_continuation=True)

    def _new(
        self, answer: Message, offer: Offer, *, is_only: bool = False, rows: Sequence[PathRow] | None = None
    ) -> Running:
        live = LiveAnswer(answer.attempt, tick=self._tick)
        message = answer if is_only else None
        chosen = Parameters.read(answer.parameters)
        return Running(answer.id, answer.owner_id, answer.conversation_id, offer, live, message, rows, chosen)

    # What may be asked

    def _checked(self, question: Question) -> str:
        text = clean(question.text).strip("\n")
        if not text.strip() and not question.files and question.edits is None:
            raise _NothingToSend
        size = len(text.encode())
        if size > self._message_bytes:
            raise TooLarge(
                _(
                    "This message has {size:,} bytes; the limit is {limit:,}. Your text is kept; please shorten it."
                ).format(size=size, limit=self._message_bytes)
            )
        return text

    def _offer(self, owner_id: UUID, model_id: UUID | None) -> Offer:
        """A model that is not for this person is refused as one that does not exist."""
        offer = self._registry.offer_for(owner_id, model_id)
        if offer is None:
            raise _NoSuchModel
        if offer.in_maintenance:
            raise _InMaintenance(offer.name)
        return offer

    def _same_or_fallback(self, owner_id: UUID, model_id: UUID | None) -> Offer:
        """The model of an answer, or what an admin said should take its place."""
        same = self._registry.offer_for(owner_id, model_id)
        if same is not None and not same.in_maintenance:
            return same
        return self._registry.instead_of(owner_id, model_id) or self._offer(owner_id, model_id)

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

    async def _sent_before(
        self, owner_id: UUID, conversation_id: UUID | None, send_key: UUID, text: str
    ) -> Turn | None:
        async with self._sessions.as_person(owner_id) as session:
            question = await session.scalar(queries.sent_with(owner_id, send_key))
            if question is None:
                return None
            if question.text != text or conversation_id not in (None, question.conversation_id):
                raise Conflict(_("This was sent already, with another text. Reload the page and send it again."))
            conversation = await session.get_one(Conversation, question.conversation_id)
            answer = await session.scalar(queries.newest_answer_to(question.id))
            carried = (await session.scalars(attachments.of_messages([question.id]))).all()
        assert answer is not None, "question and answer are stored together"
        return Turn(conversation, question, answer, carried)

    # Storing it

    async def _store(
        self, values: dict[str, Any], question: Question, offer: Offer, *, is_first: bool
    ) -> tuple[Turn, Sequence[PathRow] | None]:
        """The turn, and the messages of its conversation where they are at hand without another round trip."""
        statement = statements.ASK_FIRST if is_first else statements.ASK
        rows: Sequence[PathRow] | None = None
        carried: Sequence[File] = ()
        with broken(
            uq_messages_running=AnswerInProgress(),
            fk_messages_parent=NotFound(_("The message this follows is not here any more. Reload the page.")),
            uq_messages_send_key=_SentTwice(),
        ):
            if question.files or question.edits is not None:
                found, carried = await self._store_with_files(statement, values, question, offer)
            elif is_first:
                (found,) = await self._direct.as_person(values["owner"], (statement, values))
                rows = _first_rows(values)
            else:
                found, messages = await self._direct.as_person(
                    values["owner"], (statement, values), (statements.MESSAGES, values)
                )
                rows = [PathRow(*row) for row in messages]
        if not found:
            raise AccountDeactivated() if is_first else NoSuchConversation()
        return _turn(values, found[0], carried), rows

    async def _store_with_files(
        self, statement: LiteralString, values: dict[str, Any], question: Question, offer: Offer
    ) -> tuple[Sequence[Any], Sequence[File]]:
        """The long way, with what is attached to the question, or to the one that it stands in for."""
        async with self._sessions.as_person(values["owner"]) as session:
            found = (await (await session.connection()).exec_driver_sql(statement, values)).all()
            if not found:
                return (), ()
            kept = 0
            if question.edits is not None:
                kept = await files.copy(session, {question.edits: values["question"]})
            if not kept and not question.files and not values["text"].strip():
                raise _NothingToSend
            carried = await files.attach(
                session,
                values["owner"],
                question.files,
                values["question"],
                most=max(0, self._files_per_message - kept),
                refuse_pictures=sight.refusal(offer, self._registry.offers_for(values["owner"])),
            )
        return found, carried


def _turn(values: dict[str, Any], chat: Any, carried: Sequence[File]) -> Turn:
    """What was stored, as the pages know it; `chat` is what the statement says of its conversation."""
    moment = values["now"]
    conversation = Conversation(
        id=values["chat"],
        created_at=moment,
        owner_id=values["owner"],
        title=chat.title,
        title_source=TitleSource(chat.title_source),
        model_id=values["model"],
        updated_at=moment,
        seen_at=moment,
        leaf_id=values["answer"],
        parameters=chat.parameters,
    )
    question = Message(
        id=values["question"],
        created_at=moment,
        conversation_id=conversation.id,
        owner_id=values["owner"],
        parent_id=chat.parent_id,
        speaker=Speaker.PERSON,
        text=values["text"],
        status=Status.DONE,
        finished_at=moment,
        send_key=values["key"],
        is_continuation=values["is_continuation"],
        instruction="",
    )
    return Turn(conversation, question, _empty_answer(values, chat.parameters), carried)


def _first_rows(values: dict[str, Any]) -> Sequence[PathRow]:
    """What `statements.MESSAGES` would find in a conversation that has just begun."""
    return [
        PathRow(values["question"], None, Speaker.PERSON, values["text"]),
        PathRow(values["answer"], values["question"], Speaker.MODEL, ""),
    ]


def _stored(parameters: Parameters | None) -> Jsonb | None:
    return None if parameters is None else Jsonb(parameters.stored())


def _empty_answer(values: dict[str, Any], parameters: dict[str, Any]) -> Message:
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
        parameters=parameters,
    )


def _fits(text: str, offer: Offer) -> None:
    """Refuse what no model of this size can read, however it counts; the exact count is made before it is sent."""
    window = offer.widest_window
    if window is None or at_least(text) <= window:
        return
    over = estimate(len(text)) - Window.of(window, offer.max_tokens).for_prompt
    sentence = _("This message is too long for this model: over by about {tokens:,} tokens. Your text is kept.")
    raise TooLarge(sentence.format(tokens=over))

"""What the chat's templates are given: rows turned into what a reader sees."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from uuid import UUID

from fastapi import Request
from markupsafe import Markup
from sqlalchemy.ext.asyncio import AsyncSession

from backend.conversations import context, queries, tree
from backend.conversations.models import Conversation, Message, Speaker, Status
from backend.conversations.prompt import Step
from backend.conversations.turns import Turns
from backend.core.i18n import _
from backend.engines.events import Failure
from backend.engines.registry import Offer, Registry, State
from backend.files import queries as attachments
from web.chat import markdown, provenance
from web.chat.view import Snapshot, snapshot
from web.files.view import FileView, by_message
from web.rendering import date_and_time, zone_of


@dataclass(frozen=True)
class Choice:
    """A line of the model picker."""

    id: UUID
    name: str
    description: str
    problem: str | None
    selected: bool
    color: str = ""
    adjusts: str = ""  # the parameters that may be chosen with it
    window: int | None = None  # tokens it can be shown; None where nobody knows
    room: int | None = None  # of these, what a question may take


@dataclass(frozen=True)
class Siblings:
    """Where a message stands among those that follow the same one: its number, how many, and its neighbours."""

    number: int
    count: int
    before: UUID | None
    after: UUID | None


@dataclass(frozen=True)
class Gauge:
    """Tokens: what a conversation has, and what its model can read."""

    used: int
    window: int


@dataclass(frozen=True)
class MessageView:
    """A message as shown: its row, its HTML, and while it is being written the snapshot it starts from."""

    row: Message
    html: Markup = field(default_factory=Markup)
    color: str = ""  # of its model
    live: Snapshot | None = None
    facts: Sequence[tuple[str, str]] = ()
    summary: str = ""
    siblings: Siblings | None = None
    files: Sequence[FileView] = ()
    can_proceed: bool = False  # its engine picks it up where it broke off
    is_last: bool = True  # of the branch that is shown
    is_edited: bool = False  # with the form for that in its place
    spells_out: bool = False  # shows what is in its menus, for browsers without script
    begins_context: bool = False  # what is above is no longer sent to the model

    @property
    def is_question(self) -> bool:
        return self.row.speaker is Speaker.PERSON

    @property
    def speaker(self) -> str:
        return _("You") if self.is_question else self.row.model_name

    @property
    def running(self) -> bool:
        return self.row.status.running

    @property
    def way_on(self) -> Literal["continue", "regenerate", ""]:
        """What its last line offers, where it did not end well."""
        row = self.row
        if row.provenance.get("failure") == Failure.OVERFLOW:
            return ""  # the question has to be shortened
        if row.status is Status.FAILED or (not row.text and row.ended_by != "length"):
            return "regenerate"
        broke_off = row.status in (Status.STOPPED, Status.INTERRUPTED) or row.ended_by == "length"
        return "continue" if broke_off and row.text and row.model_id and self.is_last else ""


def picker(request: Request, registry: Registry, conversation: Conversation | None) -> list[Choice]:
    """Every model this person may use; selected is the one this conversation goes on with, or a new one begins with."""
    selected = _selected(request.state.viewer.id, registry, conversation)
    return [
        Choice(
            offer.id,
            offer.name,
            _in_short(offer, registry.state_of(offer)),
            _problem(request, offer),
            offer is selected,
            offer.color,
            " ".join(sorted(offer.adjustable)),
            *_window(offer),
        )
        for offer in registry.offers_for(request.state.viewer.id)
    ]


def _selected(person_id: UUID, registry: Registry, conversation: Conversation | None) -> Offer | None:
    if conversation is None:
        return registry.default_for(person_id)
    same = registry.offer_for(person_id, conversation.model_id)
    if same is not None and same.state is State.AVAILABLE:
        return same
    if fallback := registry.instead_of(person_id, conversation.model_id):
        return fallback
    default = registry.default_for(person_id)
    is_better = default is not None and default.state is State.AVAILABLE
    return default if same is None or same.in_maintenance or is_better else same


def instead(
    request: Request, registry: Registry, conversation: Conversation, messages: Sequence[MessageView]
) -> str | None:
    """Why a conversation does not go on with its model, and with which one it does; None where nothing has changed."""
    person_id = request.state.viewer.id
    selected = _selected(person_id, registry, conversation)
    if not messages or (selected is not None and selected.id == conversation.model_id):
        return None
    return f"{_what_became_of(request, registry, conversation, messages)} {_onward(selected)}"


def _what_became_of(
    request: Request, registry: Registry, conversation: Conversation, messages: Sequence[MessageView]
) -> str:
    """Only what its answers have told already: of a model that is not for this person any more nothing is new."""
    names = [message.row.model_name for message in messages if message.row.model_id == conversation.model_id]
    name = next((name for name in reversed(names) if name), None)
    if name is None:
        return _("The model of this conversation is not here any more.")
    offer = registry.offer_for(request.state.viewer.id, conversation.model_id)
    if offer is not None and offer.maintenance_until is not None and offer.in_maintenance:
        until = date_and_time(offer.maintenance_until, zone_of(request))
        return _("“{model}” is under maintenance until {time}.").format(model=name, time=until)
    if offer is not None:
        return _("“{model}” cannot be used at the moment.").format(model=name)
    if registry.has_retired(conversation.model_id):
        return _("“{model}” has retired.").format(model=name)
    return _("“{model}” is not here any more.").format(model=name)


def _onward(selected: Offer | None) -> str:
    if selected is None:
        return _("There is no other model for you.")
    return _("This conversation goes on with “{model}”.").format(model=selected.name)


def _in_short(offer: Offer, state: State) -> str:
    """What it is good for, what it can do beyond text, and whether one has to wait for it."""
    words = {
        offer.description: True,
        _("sees pictures"): offer.sees,
        _("leaves the building"): offer.external,
        _("thinks first"): any(endpoint.thinks for endpoint in offer.endpoints),
        _("busy at the moment"): state is State.BUSY,
    }
    return " · ".join(word for word, holds in words.items() if word and holds)


def _problem(request: Request, offer: Offer) -> str | None:
    if offer.maintenance_until is not None and offer.in_maintenance:
        until = date_and_time(offer.maintenance_until, zone_of(request))
        return _("Under maintenance until {time}").format(time=until)
    return offer.problem


async def load_thread(
    session: AsyncSession,
    turns: Turns,
    conversation: Conversation,
    *,
    edited: UUID | None = None,
    spells_out: bool = False,
) -> list[MessageView]:
    """The branch that is shown, from its first question on.

    Of what was deleted of it only those messages that have other versions: there is no other way to these.
    """
    messages = (await session.scalars(queries.messages_of(conversation.id))).all()
    path = tree.path(messages, conversation.leaf_id)
    versions = tree.versions(messages)
    asked = [message.id for message in path if message.speaker is Speaker.PERSON]
    files = by_message(await session.scalars(attachments.of_messages(asked)))
    shown = [message for message in path if not message.deleted_at or len(versions(message)) > 1]
    kept = {step.id for step in context.kept([_step(message) for message in path])}
    first_kept = next((message.id for message in shown if message.id in kept), None)
    return [
        replace(
            show(turns, message, versions(message)),
            files=files.get(message.id, ()),
            is_last=message is shown[-1],
            is_edited=message.id == edited,
            spells_out=spells_out,
            begins_context=message.id == first_kept and message is not shown[0],
        )
        for message in shown
    ]


async def load_message(session: AsyncSession, turns: Turns, message: Message) -> MessageView:
    """One message with what lies beside it."""
    versions = (await session.scalars(queries.versions(message))).all()
    files = by_message(await session.scalars(attachments.of_messages([message.id])))
    return replace(show(turns, message, versions), files=files.get(message.id, ()))


def show(turns: Turns, message: Message, siblings: Sequence[UUID] = (), *, drawn: Markup | None = None) -> MessageView:
    """A message as it is. `drawn` is its text if that was made HTML already."""
    view = MessageView(message, color=turns.registry.color_of(message.model_id), siblings=_beside(message.id, siblings))
    if message.speaker is Speaker.PERSON:
        return replace(view, html=markdown.plain(message.text))
    live = turns.live(message.id)
    if live is not None and message.status.running:
        return replace(view, live=snapshot(str(message.id), live))
    if message.status.running:
        return view  # its stream brings the text at once
    return replace(
        view,
        html=markdown.render(message.text, anchor=str(message.id)) if drawn is None else drawn,
        facts=provenance.facts(message),
        summary=provenance.summary(message.provenance),
        can_proceed=turns.can_proceed(message),
    )


def _beside(message_id: UUID, ids: Sequence[UUID]) -> Siblings | None:
    if message_id not in ids or len(ids) < 2:
        return None
    place = ids.index(message_id)
    return Siblings(
        place + 1, len(ids), ids[place - 1] if place else None, ids[place + 1] if place + 1 < len(ids) else None
    )


async def load_used(session: AsyncSession, leaf: Message) -> int:
    """Tokens of the branch that ends here."""
    messages = await session.scalars(queries.messages_of(leaf.conversation_id))
    return context.tokens_of(context.kept([_step(message) for message in tree.path(messages, leaf.id)]))


def gauge(registry: Registry, choices: Sequence[Choice], messages: Sequence[MessageView]) -> Gauge | None:
    """How full the chosen model's window is after these messages; None where nobody knows how large it is."""
    offer = registry.offer(next((choice.id for choice in choices if choice.selected), None))
    window = _window(offer)[0] if offer else None
    if window is None:
        return None
    steps = [_step(message.row) for message in messages]
    return Gauge(context.tokens_of(context.kept(steps)), window)


def _window(offer: Offer) -> tuple[int, int] | tuple[None, None]:
    """What a model can be shown, and how much of it is not kept free for the answer."""
    if offer.window is None:
        return None, None
    window = context.Window.of(offer.window, offer.max_tokens)
    return window.size, window.for_prompt


def _step(row: Message) -> Step:
    return Step(row.id, row.speaker, row.text, row.instruction, row.context_tokens, row.context_from)

"""What the chat's templates are given: rows turned into what a reader sees."""

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fastapi import Request
from markupsafe import Markup
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts.models import User
from backend.conversations import queries
from backend.conversations.models import Conversation, Message, Speaker, Status
from backend.conversations.turns import Turns
from backend.core.clock import now
from backend.core.i18n import _, ngettext
from backend.engines.registry import Registry
from web.chat import markdown
from web.chat.days import Group, by_day
from web.chat.view import Snapshot, snapshot
from web.rendering import zone_of

SIDEBAR_ROWS = 50


@dataclass(frozen=True)
class Choice:
    """A line of the model picker."""

    id: UUID
    name: str
    description: str
    problem: str | None
    selected: bool


@dataclass(frozen=True)
class SidebarItem:
    id: UUID
    title: str
    updated_at: datetime
    running: bool
    unread: bool
    current: bool


@dataclass(frozen=True)
class MessageView:
    """A message as shown: its row, its HTML, and while it is being written the snapshot it starts from."""

    row: Message
    html: Markup
    live: Snapshot | None
    facts: list[tuple[str, str]]
    summary: str

    @property
    def is_question(self) -> bool:
        return self.row.speaker is Speaker.PERSON

    @property
    def speaker(self) -> str:
        return _("You") if self.is_question else self.row.model_name

    @property
    def running(self) -> bool:
        return self.row.status.running


def picker(registry: Registry, chosen: UUID | None) -> list[Choice]:
    """Every model this person may use; the chosen one, or the first that works, is selected."""
    offers = registry.offers
    selected = chosen if any(offer.id == chosen for offer in offers) else None
    if selected is None:
        selected = next((offer.id for offer in offers if offer.available), offers[0].id if offers else None)
    return [Choice(offer.id, offer.name, offer.description, offer.problem, offer.id == selected) for offer in offers]


async def load_sidebar(
    request: Request, session: AsyncSession, user: User, *, current: UUID | None, before: str = ""
) -> dict[str, Any]:
    """One page of the sidebar, newest first, as `groups` and `next_page` for the templates."""
    place = _read_place(before)
    rows = (await session.execute(queries.sidebar(user.id, place, SIDEBAR_ROWS + 1))).all()
    shown = rows[:SIDEBAR_ROWS]
    items = [
        SidebarItem(row.id, row.title, row.updated_at, running, unread and row.id != current, row.id == current)
        for row, running, unread in shown
    ]
    groups: list[Group] = by_day(items, now(), zone_of(request), after=place[0] if place else None)
    more = f"/conversations?before={_place(shown[-1][0])}" if len(rows) > SIDEBAR_ROWS else None
    return {"groups": groups, "next_page": more}


async def load_thread(session: AsyncSession, turns: Turns, conversation: Conversation) -> list[MessageView]:
    """The branch that was written last, from its first question on."""
    leaf = await session.scalar(queries.newest_leaf(conversation.id))
    path = (await session.scalars(queries.path_to(leaf))).all() if leaf else []
    return [await show(session, turns, message) for message in path]


async def show(session: AsyncSession, turns: Turns, message: Message) -> MessageView:
    if message.speaker is Speaker.PERSON:
        return MessageView(message, markdown.plain(message.text), None, [], "")
    live = turns.live(message.id)
    if live is not None and message.status.running:
        return MessageView(message, Markup(), snapshot(str(message.id), live), [], "")
    text = message.text
    if message.status.running:  # another process writes it, or nobody any more
        text += "".join([part.text for part in await session.scalars(queries.parts_of(message.id, message.attempt))])
    html = markdown.render(text, anchor=str(message.id))
    return MessageView(message, html, None, _facts(message), _summary(message.provenance))


def _summary(facts: dict[str, Any]) -> str:
    tokens = facts.get("completion_tokens")
    if not tokens:
        return ""
    seconds = facts["seconds"] - facts.get("first_token_seconds", 0)
    count = ngettext("{tokens:,} token", "{tokens:,} tokens", tokens).format(tokens=tokens)
    return _("{count}, {rate:.0f} per second").format(count=count, rate=tokens / seconds) if seconds > 0 else count


def _facts(message: Message) -> list[tuple[str, str]]:
    """Where an answer came from, as pairs of a term and what holds for it."""
    known = message.provenance
    engine = " ".join(str(part) for part in (known.get("engine_kind"), known.get("engine_version")) if part)
    read = _("{tokens:,} tokens").format(tokens=known.get("prompt_tokens") or 0)
    if known.get("cached_tokens"):
        read += _(", {tokens:,} from cache").format(tokens=known["cached_tokens"])
    rows = [
        (_("Model"), message.model_name),
        (_("Engine"), ", ".join(part for part in (known.get("engine"), engine) if part)),
        (_("Known there as"), known.get("upstream_name")),
        (_("First token"), _seconds(known.get("first_token_seconds"))),
        (_("Whole answer"), _seconds(known.get("seconds"))),
        (_("Read"), read if known.get("prompt_tokens") else None),
        (_("Ended"), _ended(message)),
    ]
    return [(term, value) for term, value in rows if value]


def _ended(message: Message) -> str:
    if message.status is Status.DONE and message.ended_by == "length":
        return _("At its limit of length")
    return {
        Status.DONE: _("Finished by itself"),
        Status.STOPPED: _("Stopped by you"),
        Status.INTERRUPTED: _("Interrupted"),
        Status.FAILED: _("Failed"),
    }.get(message.status, "")


def _seconds(value: float | None) -> str | None:
    return None if value is None else _("{seconds:.2f} s").format(seconds=value)


def _place(last: Conversation) -> str:
    """Where the next page of the sidebar begins, opaque to the browser."""
    microseconds = (last.updated_at - _EPOCH) // timedelta(microseconds=1)
    return base64.urlsafe_b64encode(microseconds.to_bytes(8, "big") + last.id.bytes).decode().rstrip("=")


def _read_place(value: str) -> tuple[datetime, UUID] | None:
    """Garbage is the first page."""
    try:
        raw = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
        moment = _EPOCH + timedelta(microseconds=int.from_bytes(raw[:8], "big"))
        return (moment, UUID(bytes=raw[8:])) if moment <= now() + timedelta(days=1) else None
    except (binascii.Error, ValueError, OverflowError):
        return None


_EPOCH = datetime.fromisoformat("2000-01-01T00:00:00+00:00")

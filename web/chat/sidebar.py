"""The list of a person's conversations, page by page."""

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncSession

from backend.conversations import queries
from backend.conversations.models import Conversation
from backend.core.clock import now
from web.chat.days import TODAY, Group, by_day
from web.rendering import zone_of
from web.viewer import Viewer

SIDEBAR_ROWS = 50
_EPOCH = datetime.fromisoformat("2000-01-01T00:00:00+00:00")


@dataclass(frozen=True)
class SidebarItem:
    id: UUID
    title: str
    updated_at: datetime
    running: bool
    unread: bool
    current: bool


async def load_sidebar(
    request: Request, session: AsyncSession, user: Viewer, *, current: UUID | None, before: str = ""
) -> dict[str, Any]:
    """One page of the sidebar, newest first, as `groups` and `next_page` for the templates."""
    place = _read_place(before)
    rows = (await session.execute(queries.sidebar(user.id, place, SIDEBAR_ROWS + 1))).all()
    shown = rows[:SIDEBAR_ROWS]
    items = [
        SidebarItem(row.id, row.title, row.updated_at, row.running, row.unread and row.id != current, row.id == current)
        for row in shown
    ]
    groups: list[Group] = by_day(items, now(), zone_of(request), after=place[0] if place else None)
    begins = place is None
    today = groups.pop(0).items if begins and groups and groups[0].label == TODAY else ()
    more = f"/conversations?before={_place(shown[-1])}" if len(rows) > SIDEBAR_ROWS else None
    return {"begins": begins, "today": today, "groups": groups, "next_page": more}


def new_item(conversation: Conversation) -> SidebarItem:
    """A conversation whose first question was sent this moment, on its own page."""
    return SidebarItem(
        conversation.id, conversation.title, conversation.updated_at, running=True, unread=False, current=True
    )


def _place(last: Any) -> str:
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

"""A reader at a running answer: the growing text first, then the finished message, then the end.

The stream lives as long as the reader, the answer as long as its task; neither holds the other up.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from uuid import UUID

from fastapi import Request
from markupsafe import Markup

from backend.conversations import queries, service
from backend.conversations.live import TICK_SECONDS, LiveAnswer, Phase
from backend.conversations.models import Conversation
from backend.conversations.titles import Titles
from backend.conversations.turns import Turns
from backend.core.db import DatabaseGone, Sessions
from backend.engines.pool import Place
from backend.usage.service import estimate
from web.chat import pages
from web.chat.pages import MessageView
from web.chat.view import AnswerView, Cursor
from web.rendering import render, templates
from web.streaming import Event

_SHARE = 20  # a reader may take one twentieth of the process
_LONGEST_PAUSE = 2.0  # but nobody waits longer than this to hear that the answer has ended
_STATUS_SECONDS = 1.0
_LOOK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class Watched:
    """An answer whose reader may read it."""

    id: UUID
    conversation_id: UUID
    owner_id: UUID


async def events(
    request: Request, answer: Watched, sessions: Sessions, turns: Turns, titles: Titles, cursor: Cursor
) -> AsyncGenerator[Event]:
    """From the cursor to the end: what the answer gains, the finished message, and the event that closes the stream.

    Where this process goes away in between, the stream just ends, and the reader comes back to another one.
    """
    view = AnswerView(str(answer.id), cursor)
    while True:
        async with turns.follow(answer.id) as live:
            async for event in _follow(answer, live, view):
                yield event
        if live.row:
            last: MessageView | None = pages.show(turns, live.row, drawn=view.whole(live.row.text))
        else:
            last = await _row(answer, sessions, turns)
        if last is None:  # deleted meanwhile, and the page with it
            yield Event("")
            break
        if not last.running:
            yield _last_event(request, last, titles)
            break
        if turns.is_draining:
            return
        if turns.live(answer.id) is None:  # else it was taken over here meanwhile
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    yield Event("", name="finished")


async def _follow(answer: Watched, live: LiveAnswer, view: AnswerView) -> AsyncGenerator[Event]:
    status = _StatusLine(answer, live)
    seen, drawing = -1, 0.0
    while True:
        await live.news(seen)
        # Look for the end before drawing: a reader held up in the send below must not miss what came meanwhile.
        seen, finished = live.version, live.finished
        if finished:
            return
        before, began = drawing, time.thread_time()
        html = view.advance(live, status.now()) + status.said_once()
        # What takes long to draw is drawn less often: a huge table slows itself down, and nobody else. It is our own
        # work that counts, twice in a row: who only lost the core for a moment, or met the collector, draws on.
        drawing = time.thread_time() - began
        pause = min(_SHARE * min(before, drawing), _LONGEST_PAUSE)
        yield Event(html, id=str(view.cursor))
        if pause > TICK_SECONDS:
            await asyncio.sleep(pause)


async def _row(answer: Watched, sessions: Sessions, turns: Turns) -> MessageView | None:
    """The stored message, once the database answers; it has been seen by its reader now."""
    while True:
        with suppress(*DatabaseGone):
            async with sessions.as_person(answer.owner_id) as session:
                message = await session.scalar(
                    queries.message_visible_to(answer.owner_id, answer.conversation_id, answer.id)
                )
                if message is None:
                    return None
                if not message.status.running:
                    service.see(await session.get_one(Conversation, message.conversation_id))
                return await pages.load_message(session, turns, message)
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


def _last_event(request: Request, last: MessageView, titles: Titles) -> Event:
    """The finished message, and whether a title is on its way."""
    row = last.row
    html = render(
        request, "chat/_finished.html", message=last, look=0 if titles.is_pending(row.conversation_id) else None
    )
    return Event(html, id=str(Cursor(row.attempt, len(row.reasoning), len(row.text))))


class _StatusLine:
    """What the answer is doing: its phase, and once a second an estimate of its speed."""

    def __init__(self, answer: Watched, live: LiveAnswer) -> None:
        self._answer = answer
        self._live = live
        self._shown_at = 0.0
        self._speed: int | None = None
        self._drawn_for: tuple[Phase, Place | None, int | None] | None = None
        self._html = Markup()
        self._has_said = False

    def now(self) -> Markup:
        shown = (self._live.phase, self._live.place, self._tokens_per_second())
        if shown != self._drawn_for:
            self._drawn_for = shown
            ids = {"conversation": self._answer.conversation_id, "answer": self._answer.id}
            self._html = _status_line(*shown).format(**ids)
        return self._html

    def said_once(self) -> str:
        """For who listens rather than looks: that the answer waits in line, but not each step forward."""
        if self._has_said or self._live.place is None:
            return ""
        self._has_said = True
        sentence = _rendered("chat/_place.html", place=self._live.place)
        return f'<hx-partial hx-target="#announcer" hx-swap="textContent">{sentence}</hx-partial>'

    def _tokens_per_second(self) -> int | None:
        moment = time.monotonic()
        began = self._live.first_text_at
        if self._live.phase is Phase.WRITING and began and moment - self._shown_at >= _STATUS_SECONDS <= moment - began:
            self._speed, self._shown_at = round(estimate(self._live.written) / (moment - began)), moment
        return self._speed


@lru_cache(maxsize=1_000)
def _status_line(phase: Phase, place: Place | None, speed: int | None) -> Markup:
    """The template with the ids still to be filled in: every answer shows it several times, and most show the same."""
    blank = SimpleNamespace(conversation_id="{conversation}", id="{answer}")
    return _rendered("chat/_status.html", answer=blank, phase=phase, place=place, speed=speed)


def _rendered(template: str, **values: object) -> Markup:
    return Markup(templates().get_template(template).render(**values))  # noqa: S704 - one of our own templates

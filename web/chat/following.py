"""A reader at a running answer: the growing text first, then the finished message, then the end.

The stream lives as long as the reader, the answer as long as its task; neither holds the other up.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress

from fastapi import Request

from backend.conversations import queries, service
from backend.conversations.live import LiveAnswer, Phase
from backend.conversations.models import Conversation, Message, TitleSource
from backend.conversations.titles import Titles
from backend.conversations.turns import Turns
from backend.core.db import DatabaseGone, Sessions
from backend.usage.service import estimate
from web.chat import pages
from web.chat.view import AnswerView, Cursor
from web.rendering import render
from web.streaming import Event

_UPDATE_SECONDS = 0.05  # twenty updates a second are as many as a reader can tell apart
_SHARE = 20  # a reader may take one twentieth of the process
_LONGEST_PAUSE = 2.0  # but nobody waits longer than this to hear that the answer has ended
_STATUS_SECONDS = 1.0
_ELSEWHERE_SECONDS = 1.0  # how often the row of an answer is read that this process does not write


async def events(
    request: Request, answer: Message, sessions: Sessions, turns: Turns, titles: Titles, cursor: Cursor
) -> AsyncGenerator[Event]:
    """From the cursor to the end: what the answer gains, the finished message, and the event that closes the stream."""
    live = turns.live(answer.id)
    if live is not None:
        async for event in _follow(request, answer, live, cursor):
            yield event
    yield await _last_event(request, answer, sessions, turns, titles)
    yield Event("", name="finished")


async def _follow(request: Request, answer: Message, live: LiveAnswer, cursor: Cursor) -> AsyncGenerator[Event]:
    view = AnswerView(str(answer.id), cursor)
    speed = _Speed(live)
    seen = -1
    while True:
        await live.news(seen)
        # Look for the end before drawing: a reader held up in the send below must not miss what came meanwhile.
        seen, finished = live.version, live.finished
        if finished:
            return
        status = render(request, "chat/_status.html", answer=answer, phase=live.phase, speed=speed.now())
        began = time.perf_counter()
        html = view.advance(live, status)
        # What takes long to draw is drawn less often: a huge table slows itself down, and nobody else.
        pause = min(max(_UPDATE_SECONDS, _SHARE * (time.perf_counter() - began)), _LONGEST_PAUSE)
        yield Event(html, id=str(view.cursor))
        await asyncio.sleep(pause)


async def _last_event(request: Request, answer: Message, sessions: Sessions, turns: Turns, titles: Titles) -> Event:
    """The finished message. An answer written elsewhere, or by nobody any more, is waited for; so is the database."""
    while True:
        with suppress(*DatabaseGone):
            async with sessions.as_person(answer.owner_id) as session:
                row = await session.scalar(
                    queries.message_visible_to(answer.owner_id, answer.conversation_id, answer.id)
                )
                if row is None:  # deleted meanwhile, and the page with it
                    return Event("")
                if not row.status.running:
                    shown = await pages.show(session, turns, row)
                    chat = await session.get_one(Conversation, row.conversation_id)
                    service.see(chat)
                    wants_title = chat.title_source is TitleSource.FIRST_WORDS and titles.is_pending(chat.id)
                    html = render(request, "chat/_finished.html", message=shown, look=0 if wants_title else None)
                    return Event(html, id=str(Cursor(row.attempt, len(row.reasoning), len(row.text))))
        await asyncio.sleep(_ELSEWHERE_SECONDS)


class _Speed:
    """Tokens per second, as an estimate from characters, renewed once a second so that it can be read."""

    def __init__(self, live: LiveAnswer) -> None:
        self._live = live
        self._shown_at = 0.0
        self._shown: int | None = None

    def now(self) -> int | None:
        moment = time.monotonic()
        began = self._live.first_text_at
        if self._live.phase is Phase.WRITING and began and moment - self._shown_at >= _STATUS_SECONDS <= moment - began:
            written = len(self._live.text) + len(self._live.reasoning)
            self._shown, self._shown_at = round(estimate(written) / (moment - began)), moment
        return self._shown

"""The chat: pages, sends, streams. What happens in a turn is told in `backend/conversations/turns.py`."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial as bind
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Header, Request
from markupsafe import Markup
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.conversations import queries, service
from backend.conversations.live import LiveAnswer, Phase
from backend.conversations.models import Conversation, Message, Speaker, TitleSource
from backend.conversations.titles import Titles
from backend.conversations.turns import Question, Turn, Turns
from backend.core.clock import now
from backend.core.db import DatabaseGone, Session, Sessions, after_commit
from backend.core.errors import Forbidden, NotFound
from backend.core.i18n import _
from backend.core.ids import new_id
from backend.engines.registry import Registry
from backend.usage.service import estimate
from web.chat import pages
from web.chat.dependencies import OwnConversation, OwnMessage
from web.chat.view import AnswerView, Cursor
from web.dependencies import AllSessions, CurrentUser, Models, RunningTurns, TitleMaker
from web.forms import plain_form
from web.rendering import local, page, partial, render, zone_of
from web.streaming import Event, EventStream

router = APIRouter(dependencies=[Depends(plain_form)])

_UPDATE_SECONDS = 0.05  # twenty updates a second are as many as a reader can tell apart
_STATUS_SECONDS = 1.0
_ELSEWHERE_SECONDS = 1.0  # how often the row of an answer is read that this process does not write
_TITLE_LOOKS = 8  # how often a page asks for a title that is being made


@router.get("/")
async def start(request: Request, user: CurrentUser, session: Session, registry: Models) -> HTMLResponse:
    return page(
        request,
        "chat/conversation.html",
        **_nothing_asked(request, registry),
        **await pages.load_sidebar(request, session, user, current=None),
    )


@router.get("/chat/{conversation_id}")
async def conversation(
    request: Request,
    conversation: OwnConversation,
    user: CurrentUser,
    session: Session,
    registry: Models,
    turns: RunningTurns,
) -> HTMLResponse:
    service.see(conversation)
    return page(
        request,
        "chat/conversation.html",
        **await _thread(session, turns, registry, conversation),
        **await pages.load_sidebar(request, session, user, current=conversation.id),
    )


@router.get("/conversations")
async def conversations(
    request: Request, user: CurrentUser, session: Session, registry: Models, before: str = ""
) -> HTMLResponse:
    """The next page of the sidebar, appended when its end comes into view; without script a page of its own."""
    rows = await pages.load_sidebar(request, session, user, current=None, before=before)
    if not request.headers.get("hx-request"):
        return page(request, "chat/conversation.html", **_nothing_asked(request, registry), **rows)
    return partial(request, "chat/_sidebar.html", **rows)


@router.post("/chat")
async def begin(
    request: Request,
    user: CurrentUser,
    session: Session,
    registry: Models,
    turns: RunningTurns,
    model: Annotated[UUID, Form()],
    key: Annotated[UUID, Form()],
    text: Annotated[str, Form()] = "",
) -> Response:
    """A first question: the conversation begins with it, so empty ones are never stored."""
    turn = await turns.ask(session, user.id, None, Question(text, model, key))
    address = f"/chat/{turn.conversation.id}"
    if not request.headers.get("hx-request"):
        return RedirectResponse(address, status_code=303)
    await session.flush()
    response = partial(
        request,
        "chat/_begun.html",
        **await _thread(session, turns, registry, turn.conversation),
        **await pages.load_sidebar(request, session, user, current=turn.conversation.id),
    )
    response.headers["HX-Push-Url"] = address
    return response


@router.post("/chat/{conversation_id}/messages")
async def ask(
    request: Request,
    conversation: OwnConversation,
    user: CurrentUser,
    session: Session,
    registry: Models,
    turns: RunningTurns,
    model: Annotated[UUID, Form()],
    key: Annotated[UUID, Form()],
    text: Annotated[str, Form()] = "",
    after: Annotated[UUID | None, Form()] = None,
) -> Response:
    turn = await turns.ask(session, user.id, conversation, Question(text, model, key, after))
    if not request.headers.get("hx-request"):
        return RedirectResponse(f"/chat/{conversation.id}", status_code=303)
    return await _turn(request, session, turns, registry, turn)


@router.post("/chat/{conversation_id}/messages/{message_id}/retry")
async def retry(
    request: Request,
    message: OwnMessage,
    session: Session,
    turns: RunningTurns,
    model: Annotated[UUID | None, Form()] = None,
) -> Response:
    """Answer the same question again, below it and in place of the answer that did not end well."""
    if message.speaker is not Speaker.MODEL:
        raise NotFound(_("There is no answer here."))
    answer = await turns.retry(session, message, model)
    if not request.headers.get("hx-request"):
        return RedirectResponse(f"/chat/{message.conversation_id}", status_code=303)
    return partial(request, "chat/_message.html", message=await pages.show(session, turns, answer))


@router.post("/chat/{conversation_id}/messages/{message_id}/stop")
async def stop(request: Request, message: OwnMessage, session: Session, turns: RunningTurns) -> Response:
    await turns.stop(session, message)
    if not request.headers.get("hx-request"):
        return RedirectResponse(f"/chat/{message.conversation_id}", status_code=303)
    return partial(request, "chat/_message.html", message=await pages.show(session, turns, message))


@router.post("/chat/{conversation_id}/title")
async def rename(request: Request, conversation: OwnConversation, title: Annotated[str, Form()] = "") -> Response:
    service.rename(conversation, title)
    if not request.headers.get("hx-request"):
        return RedirectResponse(f"/chat/{conversation.id}", status_code=303)
    return partial(request, "chat/_titled.html", conversation=conversation, look=None)


@router.get("/chat/{conversation_id}/title")
async def title(
    request: Request, conversation: OwnConversation, titles: TitleMaker, look: int = _TITLE_LOOKS
) -> Response:
    """The title as it is now; while one is being made, with an element that asks again in a moment."""
    pending = titles.is_pending(conversation.id) and 0 <= look < _TITLE_LOOKS
    return partial(request, "chat/_titled.html", conversation=conversation, look=look + 1 if pending else None)


@router.post("/chat/{conversation_id}/delete")
async def delete(request: Request, conversation: OwnConversation, session: Session, turns: RunningTurns) -> Response:
    await service.delete(session, conversation)
    after_commit(session, bind(turns.stop_all, conversation_id=conversation.id))
    if not request.headers.get("hx-request"):
        return RedirectResponse("/", status_code=303)
    return Response(status_code=204, headers={"HX-Redirect": "/"})


@router.get("/chat/{conversation_id}/messages/{message_id}")
async def message(request: Request, message: OwnMessage, session: Session, turns: RunningTurns) -> HTMLResponse:
    """One message as it is now: what a tab asks for that slept while the answer ended."""
    return partial(request, "chat/_message.html", message=await pages.show(session, turns, message))


@router.get("/chat/{conversation_id}/messages/{message_id}/events")
async def watch(
    request: Request,
    message: OwnMessage,
    sessions: AllSessions,
    turns: RunningTurns,
    titles: TitleMaker,
    since: str = "",
    last_event_id: Annotated[str, Header()] = "",
    sec_fetch_site: Annotated[str, Header()] = "",
) -> Response:
    """The answer as it grows. Reading never changes anything, and no database session is held meanwhile."""
    if sec_fetch_site == "cross-site":
        raise Forbidden(_("This stream can be read from Parley's own pages only."))
    return EventStream(_events(request, message, sessions, turns, titles, Cursor.parse(last_event_id or since)))


async def _events(
    request: Request, answer: Message, sessions: Sessions, turns: Turns, titles: Titles, cursor: Cursor
) -> AsyncGenerator[Event]:
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
        status = Markup(  # noqa: S704 - a template of ours
            render(request, "chat/_status.html", answer=answer, phase=live.phase, speed=speed.now())
        )
        yield Event(view.advance(live, status), id=str(view.cursor))
        await asyncio.sleep(_UPDATE_SECONDS)


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


def _nothing_asked(request: Request, registry: Registry) -> dict[str, Any]:
    return {
        "conversation": None,
        "messages": [],
        "picker": pages.picker(registry, None),
        "send_key": new_id(),
        "hour": local(now(), zone_of(request)).hour,
    }


async def _thread(
    session: AsyncSession, turns: Turns, registry: Registry, conversation: Conversation
) -> dict[str, Any]:
    messages = await pages.load_thread(session, turns, conversation)
    return {
        "conversation": conversation,
        "messages": messages,
        "picker": pages.picker(registry, conversation.model_id),
        "send_key": new_id(),
        "hour": None,
    }


async def _turn(request: Request, session: AsyncSession, turns: Turns, registry: Registry, turn: Turn) -> HTMLResponse:
    await session.flush()
    return partial(
        request,
        "chat/_turn.html",
        conversation=turn.conversation,
        messages=[await pages.show(session, turns, message) for message in (turn.question, turn.answer)],
        picker=pages.picker(registry, turn.conversation.model_id),
        send_key=new_id(),
    )

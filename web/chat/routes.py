"""The chat: pages, sends, streams. What happens in a turn is told in `backend/conversations/turns.py`."""

from functools import partial as bind
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Header, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.conversations import service
from backend.conversations.models import Conversation, Message, Speaker
from backend.conversations.turns import Question, Turn, Turns
from backend.core.clock import now
from backend.core.db import Session, after_commit
from backend.core.errors import Forbidden, NotFound
from backend.core.i18n import _
from backend.core.ids import new_id
from backend.engines.registry import Registry
from web.chat import following, pages
from web.chat.dependencies import OwnConversation, OwnMessage
from web.chat.view import Cursor
from web.dependencies import AllSessions, CurrentUser, Models, RunningTurns, Streams, TitleMaker
from web.forms import plain_form
from web.rendering import local, page, partial, zone_of
from web.streaming import EventStream

router = APIRouter(dependencies=[Depends(plain_form)])

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
    return partial(request, "chat/_retried.html", message=await pages.show(session, turns, answer))


@router.post("/chat/{conversation_id}/messages/{message_id}/stop")
async def stop(
    request: Request, message: OwnMessage, session: Session, sessions: AllSessions, turns: RunningTurns
) -> Response:
    await session.commit()  # the end of the answer needs a connection, and nobody holds one while waiting for it
    await turns.stop(message)
    if not request.headers.get("hx-request"):
        return RedirectResponse(f"/chat/{message.conversation_id}", status_code=303)
    async with sessions.as_person(message.owner_id) as fresh:
        stopped = await fresh.get(Message, message.id)
        if stopped is None:
            raise NotFound(_("There is no message here any more."))
        return partial(request, "chat/_message.html", message=await pages.show(fresh, turns, stopped))


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
    streams: Streams,
    since: str = "",
    last_event_id: Annotated[str, Header()] = "",
    sec_fetch_site: Annotated[str, Header()] = "",
) -> Response:
    """The answer as it grows. Reading changes no answer, and no database session is held meanwhile."""
    if sec_fetch_site == "cross-site":
        raise Forbidden(_("This stream can be read from Parley's own pages only."))
    cursor = Cursor.parse(last_event_id or since)
    events = following.events(request, message, sessions, turns, titles, cursor)
    return EventStream(events, until=streams.joined(message.owner_id))


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

"""The chat: pages, sends, streams. What happens in a turn is told in `backend/conversations/turns.py`."""

from dataclasses import replace
from functools import partial as bind
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Header, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.conversations import service
from backend.conversations.asking import Question, Turn
from backend.conversations.models import Conversation, Message, Speaker
from backend.conversations.turns import Turns
from backend.core.clock import now
from backend.core.db import Session, after_commit
from backend.core.errors import Forbidden, NotFound
from backend.core.i18n import _
from backend.core.ids import new_id
from backend.engines.registry import Registry
from backend.groups.rights import Right
from web.chat import following, pages
from web.chat.adjusting import Adjusted
from web.chat.dependencies import OwnConversation, OwnMessage, find_conversation, find_message
from web.chat.following import Watched
from web.chat.sidebar import load_sidebar, new_item
from web.chat.view import Cursor
from web.dependencies import AllSessions, CurrentUser, Models, RunningTurns, Streams, TitleMaker
from web.files.view import by_message
from web.forms import plain_form
from web.rendering import local, page, partial, zone_of
from web.rights import require
from web.streaming import EventStream

router = APIRouter(dependencies=[Depends(plain_form)])

_RATINGS = {"good": 1, "bad": -1, "none": None}
_TITLE_LOOKS = 8  # how often a page asks for a title that is being made


@router.get("/")
async def start(request: Request, user: CurrentUser, session: Session, registry: Models) -> HTMLResponse:
    return page(
        request,
        "chat/conversation.html",
        **_nothing_asked(request, registry),
        **await load_sidebar(request, session, user, current=None),
    )


@router.get("/chat/{conversation_id}")
async def conversation(
    request: Request,
    conversation: OwnConversation,
    user: CurrentUser,
    session: Session,
    registry: Models,
    turns: RunningTurns,
    edit: UUID | None = None,
    menus: bool = False,
) -> HTMLResponse:
    """The whole page; without script also with the form to `edit` a question, or with all `menus` spelled out."""
    service.see(conversation)
    return page(
        request,
        "chat/conversation.html",
        **await _thread(request, session, turns, registry, conversation, edited=edit, spells_out=menus),
        **await load_sidebar(request, session, user, current=conversation.id),
    )


@router.get("/conversations")
async def conversations(
    request: Request, user: CurrentUser, session: Session, registry: Models, before: str = ""
) -> HTMLResponse:
    """The next page of the sidebar, appended when its end comes into view; without script a page of its own."""
    rows = await load_sidebar(request, session, user, current=None, before=before)
    if not request.headers.get("hx-request"):
        return page(request, "chat/conversation.html", **_nothing_asked(request, registry), **rows)
    return partial(request, "chat/_sidebar.html", **rows)


@router.post("/chat")
async def begin(
    request: Request,
    user: CurrentUser,
    registry: Models,
    turns: RunningTurns,
    model: Annotated[UUID, Form()],
    key: Annotated[UUID, Form()],
    text: Annotated[str, Form()] = "",
    file: Annotated[tuple[UUID, ...], Form()] = (),
    *,
    parameters: Adjusted,
) -> Response:
    """A first question: the conversation begins with it, so empty ones are never stored."""
    turn = await turns.ask(user.id, None, Question(text, model, key, files=file, parameters=parameters))
    address = f"/chat/{turn.conversation.id}"
    if not request.headers.get("hx-request"):
        return RedirectResponse(address, status_code=303)
    response = partial(
        request, "chat/_begun.html", item=new_item(turn.conversation), **_turn(request, turns, registry, turn)
    )
    response.headers["HX-Push-Url"] = address
    return response


@router.post("/chat/{conversation_id}/messages")
async def ask(
    request: Request,
    conversation_id: UUID,
    user: CurrentUser,
    registry: Models,
    turns: RunningTurns,
    model: Annotated[UUID, Form()],
    key: Annotated[UUID, Form()],
    text: Annotated[str, Form()] = "",
    after: Annotated[UUID | None, Form()] = None,
    edits: Annotated[UUID | None, Form()] = None,
    file: Annotated[tuple[UUID, ...], Form()] = (),
    *,
    parameters: Adjusted,
) -> Response:
    """The next question; with `edits` one that stands in for another, and begins a branch beside it."""
    if edits:
        require(request, Right.EDIT)
    question = Question(text, model, key, after, edits, files=file, parameters=parameters)
    turn = await turns.ask(user.id, conversation_id, question)
    if edits or not request.headers.get("hx-request"):
        return await _whole_thread(request, turns, conversation_id, turn.answer.id, announce="sent")
    return partial(request, "chat/_turn.html", **_turn(request, turns, registry, turn))


@router.post("/chat/{conversation_id}/messages/{message_id}/regenerate")
async def regenerate(
    request: Request,
    message: OwnMessage,
    turns: RunningTurns,
    model: Annotated[UUID | None, Form()] = None,
    instruction: Annotated[str, Form()] = "",
    *,
    parameters: Adjusted,
) -> Response:
    """Another answer to the same question, beside this one."""
    _require_answer(message)
    if instruction:
        require(request, Right.INSTRUCT)
    if model and model != message.model_id:
        require(request, Right.OTHER_MODEL)
    again = await turns.regenerate(message, model, instruction, parameters)
    return await _whole_thread(request, turns, message.conversation_id, again.id, announce="sent")


@router.post("/chat/{conversation_id}/messages/{message_id}/continue")
async def proceed(request: Request, message: OwnMessage, turns: RunningTurns) -> Response:
    """Go on with an answer where it broke off; in a turn of its own where its engine cannot pick it up."""
    _require_answer(message)
    goes_on = await turns.proceed(message)
    return await _whole_thread(request, turns, message.conversation_id, goes_on, announce="continued")


@router.post("/chat/{conversation_id}/messages/{message_id}/show")
async def show(request: Request, message: OwnMessage, session: Session, turns: RunningTurns) -> Response:
    """Step to this message instead of the one beside it; below it the branch that was written last."""
    await service.show(session, message)
    await session.commit()
    return await _whole_thread(request, turns, message.conversation_id, message.id)


@router.post("/chat/{conversation_id}/messages/{message_id}/delete")
async def delete_message(
    request: Request, message: OwnMessage, session: Session, sessions: AllSessions, turns: RunningTurns
) -> Response:
    await session.commit()  # a running answer is ended by somebody else, and nobody holds two connections
    if message.status.running:
        await turns.stop(message)
    async with sessions.as_person(message.owner_id) as fresh:
        stopped = await find_message(fresh, message.owner_id, message.conversation_id, message.id)
        await service.empty(fresh, stopped)
    return await _whole_thread(request, turns, message.conversation_id, announce="deleted")


@router.post("/chat/{conversation_id}/messages/{message_id}/fork")
async def fork(request: Request, message: OwnMessage, session: Session) -> Response:
    """A new conversation that begins as this one does, up to this message."""
    address = f"/chat/{(await service.fork(session, message)).id}"
    if not request.headers.get("hx-request"):
        return RedirectResponse(address, status_code=303)
    return Response(status_code=204, headers={"HX-Redirect": address})


@router.post("/chat/{conversation_id}/messages/{message_id}/rate")
async def rate(
    request: Request, message: OwnMessage, rating: Annotated[Literal["good", "bad", "none"], Form()]
) -> Response:
    """What its person thinks of an answer; admins see how many think so, not of what."""
    _require_answer(message)
    service.rate(message, _RATINGS[rating])
    if not request.headers.get("hx-request"):
        return RedirectResponse(f"/chat/{message.conversation_id}#message-{message.id}", status_code=303)
    return partial(request, "chat/_rating.html", row=message)


@router.post("/chat/{conversation_id}/messages/{message_id}/stop")
async def stop(
    request: Request, message: OwnMessage, session: Session, sessions: AllSessions, turns: RunningTurns
) -> Response:
    await session.commit()  # the end of the answer needs a connection, and nobody holds one while waiting for it
    await turns.stop(message)
    if not request.headers.get("hx-request"):
        return RedirectResponse(f"/chat/{message.conversation_id}", status_code=303)
    async with sessions.as_person(message.owner_id) as fresh:
        stopped = await find_message(fresh, message.owner_id, message.conversation_id, message.id)
        shown, used = await pages.load_message(fresh, turns, stopped), await pages.load_used(fresh, stopped)
        return partial(request, "chat/_stopped.html", message=shown, used=used)


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
async def message(
    request: Request,
    message: OwnMessage,
    session: Session,
    turns: RunningTurns,
    registry: Models,
    edit: UUID | None = None,
) -> HTMLResponse:
    """One message as it is now: what a tab asks for that slept while the answer ended. Or the form to `edit` it."""
    shown = await pages.load_message(session, turns, message)
    if edit is None:
        return partial(request, "chat/_message.html", message=shown)
    if not shown.is_question:
        raise NotFound(_("There is no question here."))
    conversation = await session.get_one(Conversation, message.conversation_id)
    picker = pages.picker(request, registry, conversation)
    return partial(request, "chat/_editor.html", message=shown, picker=picker, send_key=new_id())


@router.get("/chat/{conversation_id}/messages/{message_id}/events")
async def watch(
    request: Request,
    conversation_id: UUID,
    message_id: UUID,
    user: CurrentUser,
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
    answer = Watched(message_id, conversation_id, user.id)
    if not turns.writes_for(message_id, conversation_id, user.id):
        async with sessions.as_person(user.id) as session:
            await find_message(session, user.id, conversation_id, message_id)
    cursor = Cursor.parse(last_event_id or since)
    events = following.events(request, answer, sessions, turns, titles, cursor)
    return EventStream(events, until=streams.joined(user.id, lambda: request.state.login.doubtful))


def _nothing_asked(request: Request, registry: Registry) -> dict[str, Any]:
    picker = pages.picker(request, registry, None)
    return {
        "conversation": None,
        "messages": [],
        "picker": picker,
        "instead": None,
        "context": pages.gauge(registry, picker, []),
        "send_key": new_id(),
        "hour": local(now(), zone_of(request)).hour,
    }


def _require_answer(message: Message) -> None:
    if message.speaker is not Speaker.MODEL:
        raise NotFound(_("There is no answer here."))


async def _whole_thread(
    request: Request,
    turns: Turns,
    conversation_id: UUID,
    about: UUID | None = None,
    *,
    announce: Literal["sent", "continued", "deleted", "version"] = "version",
) -> Response:
    """The conversation as it is now, because its branch may be another one; the message box stays as it is.

    The message that this is `about` gets the focus; `_rebranched.html` has the words that are announced.
    """
    if not request.headers.get("hx-request"):
        place = f"#message-{about}" if about else ""
        return RedirectResponse(f"/chat/{conversation_id}{place}", status_code=303)
    viewer, registry = request.state.viewer, request.state.registry
    async with request.state.sessions.as_person(viewer.id) as session:
        conversation = await find_conversation(session, viewer.id, conversation_id)
        thread = await _thread(request, session, turns, registry, conversation)
        response = partial(request, "chat/_rebranched.html", about=about, announce=announce, **thread)
    response.headers.update({"HX-Retarget": "#thread", "HX-Reswap": "outerHTML"})
    return response


async def _thread(
    request: Request, session: AsyncSession, turns: Turns, registry: Registry, conversation: Conversation, **shown: Any
) -> dict[str, Any]:
    messages = await pages.load_thread(session, turns, conversation, **shown)
    picker = pages.picker(request, registry, conversation)
    return {
        "conversation": conversation,
        "messages": messages,
        "picker": picker,
        "instead": pages.instead(request, registry, conversation, messages),
        "context": pages.gauge(registry, picker, messages),
        "send_key": new_id(),
        "hour": None,
    }


def _turn(request: Request, turns: Turns, registry: Registry, turn: Turn) -> dict[str, Any]:
    """A question and its answer to come, and a fresh composer."""
    carried = by_message(turn.files).get(turn.question.id, ())
    messages = [replace(pages.show(turns, turn.question), files=carried), pages.show(turns, turn.answer)]
    picker = pages.picker(request, registry, turn.conversation)
    return {
        "conversation": turn.conversation,
        "messages": messages,
        "picker": picker,
        "instead": pages.instead(request, registry, turn.conversation, messages),
        "context": pages.gauge(registry, picker, messages),
        "send_key": new_id(),
        "hour": None,
    }

"""Where one is signed in: see it, end one, end all others, end all."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.accounts import sessions
from backend.accounts.models import LoginSession
from backend.audit import service as audit
from backend.audit.service import Action
from backend.core.db import Session
from backend.core.errors import NotFound
from backend.core.i18n import _
from web.chat.sidebar import load_sidebar
from web.cookies import SESSION
from web.dependencies import CurrentUser
from web.forms import plain_form
from web.rendering import page

router = APIRouter(dependencies=[Depends(plain_form)])

# The more special name first: Edge says that it is Chrome, and Chrome that it is Safari.
_BROWSERS: Final = (
    (r"\bEdgA?/", "Edge"),
    (r"\bOPR/", "Opera"),
    (r"\b(?:Firefox|FxiOS)/", "Firefox"),
    (r"\bSamsungBrowser/", "Samsung Internet"),
    (r"\b(?:Headless)?Chrome/|\bCriOS/", "Chrome"),
    (r"\bSafari/", "Safari"),
)
_SYSTEMS: Final = (
    (r"\biPhone\b", "iPhone"),
    (r"\biPad\b", "iPad"),
    (r"\bAndroid\b", "Android"),
    (r"\bWindows\b", "Windows"),
    (r"\bMac OS X\b", "macOS"),
    (r"\bCrOS\b", "ChromeOS"),
    (r"\bLinux\b", "Linux"),
)


@dataclass(frozen=True)
class BrowserRow:
    id: UUID
    name: str
    address: str
    signed_in_at: datetime
    last_seen_at: datetime
    is_this: bool


@router.get("/settings/sessions")
async def browsers(request: Request, user: CurrentUser, session: Session, ended: str = "") -> HTMLResponse:
    mine = request.state.login.session_id
    found = await sessions.open_of(session, user.id, request.state.lifetime)
    return page(
        request,
        "accounts/browsers.html",
        browsers=sorted((_row(each, mine) for each in found), key=lambda row: not row.is_this),
        ended=bool(ended),
        **await load_sidebar(request, session, user, current=None),
    )


@router.post("/settings/sessions/{session_id}/end")
async def end(session_id: UUID, user: CurrentUser, session: Session) -> Response:
    if not await sessions.close_one_of(session, user.id, session_id):
        raise NotFound(_("This browser is signed out already."))
    await audit.record(session, Action.SESSION_ENDED, audit.person(user.id), after={"sessions": 1})
    return RedirectResponse("/settings/sessions?ended=1", status_code=303)


@router.post("/settings/sessions/end-others")
async def end_others(request: Request, user: CurrentUser, session: Session) -> Response:
    count = await sessions.close_all_of(session, user.id, but=request.state.login.session_id)
    await audit.record(session, Action.SESSION_ENDED, audit.person(user.id), after={"sessions": count})
    return RedirectResponse("/settings/sessions?ended=1", status_code=303)


@router.post("/settings/sessions/end-all")
async def end_all(request: Request, user: CurrentUser, session: Session) -> Response:
    """Also here."""
    count = await sessions.close_all_of(session, user.id)
    await audit.record(session, Action.SESSION_ENDED, audit.person(user.id), after={"sessions": count})
    response = RedirectResponse("/login", status_code=303)
    SESSION.clear(request, response)
    return response


def name_of(user_agent: str) -> str:
    """What its owner calls a browser, as far as it says so itself."""
    browser, system = _first(_BROWSERS, user_agent), _first(_SYSTEMS, user_agent)
    if browser and system:
        return _("{browser} on {system}").format(browser=browser, system=system)
    return browser or system or _("An unknown browser")


def _first(names: tuple[tuple[str, str], ...], text: str) -> str | None:
    return next((name for pattern, name in names if re.search(pattern, text)), None)


def _row(each: LoginSession, mine: UUID) -> BrowserRow:
    return BrowserRow(
        each.id, name_of(each.user_agent), each.address, each.created_at, each.last_seen_at, each.id == mine
    )

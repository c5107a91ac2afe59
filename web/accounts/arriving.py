"""What a way in needs from a request, and the reply that hands out the session."""

import re
from typing import Annotated

from fastapi import Depends, Form, Request
from starlette.responses import RedirectResponse, Response

from backend.accounts.entrance import Arrival
from backend.accounts.service import LinkEnded
from backend.accounts.sessions import Browser
from backend.core.i18n import _
from web.cookies import ONE_TIME_LINK, SESSION
from web.dependencies import AllSessions, Hasher
from web.rendering import find_zone

_SECRET = re.compile(r"[A-Za-z0-9_-]{1,100}")


async def _arrival(
    request: Request, sessions: AllSessions, hasher: Hasher, time_zone: Annotated[str, Form()] = ""
) -> Arrival:
    """The time zone is what the browser's own clock says; the script of the page fills it in."""
    login = request.state.login
    browser = Browser(
        address=request.client.host if request.client else "",
        user_agent=request.headers.get("user-agent", ""),
        time_zone=time_zone if find_zone(time_zone) else login.time_zone if login else None,
    )
    return Arrival(sessions, hasher, request.state.lifetime, browser, request.cookies.get(SESSION.name(request)))


Arriving = Annotated[Arrival, Depends(_arrival)]


def let_in(request: Request, token: str, target: str) -> Response:
    """The link that may have led here is spent, so its cookie goes."""
    response = RedirectResponse(target, status_code=303)
    SESSION.set(request, response, token)
    ONE_TIME_LINK.clear(request, response)
    return response


def take_secret(request: Request, secret: str, target: str) -> Response:
    """Out of the address, where histories and screens would keep it, into a cookie. Raises LinkEnded for garbage."""
    if not _SECRET.fullmatch(secret):
        raise LinkEnded(_("This link is not complete."))
    response = RedirectResponse(target, status_code=303)
    ONE_TIME_LINK.set(request, response, secret)
    return response


def kept_secret(request: Request) -> str | None:
    return request.cookies.get(ONE_TIME_LINK.name(request))

"""What a way in needs from a request, and the reply that hands out the session."""

import re
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Form, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.accounts import passkeys
from backend.accounts.entrance import Arrival, Entry, HalfWay
from backend.accounts.passkeys import RelyingParty
from backend.accounts.rules import Demand
from backend.accounts.service import LinkEnded
from backend.accounts.sessions import Browser
from backend.core.i18n import _
from backend.identity import entrance as company
from web.cookies import ONE_TIME_LINK, SECOND_STEP, SESSION
from web.dependencies import AllSessions, Hasher
from web.errors import safe_next
from web.rendering import find_zone, page

_SECRET = re.compile(r"[A-Za-z0-9_-]{1,100}")


async def arrival_of(
    request: Request, sessions: AllSessions, hasher: Hasher, time_zone: Annotated[str, Form()] = ""
) -> Arrival:
    """The time zone is what the browser's own clock says; the script of the page fills it in."""
    login = request.state.login
    browser = Browser(
        address=request.client.host if request.client else "",
        user_agent=request.headers.get("user-agent", ""),
        time_zone=time_zone if find_zone(time_zone) else login.time_zone if login else None,
    )
    demand = request.state.settings.require_second_factor
    return Arrival(
        sessions,
        hasher,
        request.state.lifetime,
        browser,
        request.cookies.get(SESSION.name(request)),
        request.state.second_factors,
        Demand(demand) if demand else None,
    )


Arriving = Annotated[Arrival, Depends(arrival_of)]


def let_in(request: Request, entry: Entry, target: str) -> Response:
    """On to `target`, or first to the second factor. The link that may have led here is spent, so its cookie goes."""
    if isinstance(entry, HalfWay):
        response = RedirectResponse(f"/login/second?next={quote(target)}", status_code=303)
        SECOND_STEP.set(request, response, entry.secret)
    else:
        response = RedirectResponse(target, status_code=303)
        seat(request, response, entry)
    ONE_TIME_LINK.clear(request, response)
    return response


def seat(request: Request, response: Response, token: str) -> None:
    """The browser is signed in, so what it held on the way is of no use any more."""
    SESSION.set(request, response, token)
    if SECOND_STEP.name(request) in request.cookies:
        SECOND_STEP.clear(request, response)


def take_secret(request: Request, secret: str, target: str) -> Response:
    """Out of the address, where histories and screens would keep it, into a cookie. Raises LinkEnded for garbage."""
    if not _SECRET.fullmatch(secret):
        raise LinkEnded(_("This link is not complete."))
    response = RedirectResponse(target, status_code=303)
    ONE_TIME_LINK.set(request, response, secret)
    return response


def kept_secret(request: Request) -> str | None:
    return request.cookies.get(ONE_TIME_LINK.name(request))


async def sign_in_page(
    request: Request,
    target: str,
    *,
    email: str = "",
    error: str | None = None,
    notice: str | None = None,
    out: str = "",
) -> HTMLResponse:
    """`out` is the company sign-in by which somebody came who has just signed out here."""
    async with request.state.sessions.begin() as session:
        ways = await company.buttons(session)
    return page(
        request,
        "accounts/sign_in.html",
        status=401 if error else 200,
        next=safe_next(target),
        email=email,
        error=error,
        notice=notice,
        passkey=passkey_options(request),
        ways=ways,
        left=next((way for way in ways if way.slug == out), None),
    )


def passkey_options(request: Request) -> str | None:
    """What the browser needs to ask for a passkey; None where it gives none to this address."""
    party: RelyingParty = request.state.party
    return passkeys.options_for_sign_in(party) if party.can_have_passkeys else None

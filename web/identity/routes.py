"""Signing in with the company: a link to the provider, its way back, and signing out. How is told in
`backend/identity/entrance.py`."""

import logging
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.core.clock import now
from backend.core.db import Session, Sessions
from backend.core.errors import Forbidden
from backend.core.i18n import _
from backend.identity import entrance, pending
from backend.identity.entrance import Doors, Reply
from backend.identity.pending import Aim, Pending
from backend.identity.problems import ReplyRefused, SignInRefused
from web import policy
from web.accounts.arriving import arrival_of, let_in
from web.chat.sidebar import load_sidebar
from web.cookies import PENDING_SIGN_INS
from web.dependencies import AllSessions, CurrentUser, Hasher, IdentityDoors, OwnRow
from web.errors import safe_next
from web.forms import plain_form
from web.identity.trial import trial_page
from web.rendering import page

log = logging.getLogger(__name__)

router = APIRouter(dependencies=[Depends(plain_form)])

_AGAIN = {Aim.SIGN_IN: "/login/with/{slug}", Aim.CONNECT: "/settings/company", Aim.TEST: "/admin/sign-in/providers"}


@router.get("/login/with/{slug}")
async def go(
    request: Request, slug: str, doors: IdentityDoors, target: Annotated[str, Query(alias="next")] = "/"
) -> Response:
    """A link, not a form: the policy of our pages lets no form lead elsewhere. It changes nothing but the cookie."""
    return await leave_for(request, doors, Pending.begin(slug, safe_next(target)))


@router.get("/login/callback/{slug}")
async def come_back(
    request: Request,
    slug: str,
    doors: IdentityDoors,
    db: AllSessions,
    hasher: Hasher,
    state: str = "",
    code: str = "",
    error: str = "",
    iss: str | None = None,
) -> Response:
    """Whatever goes wrong is told in words with a way on; a session that was there stays."""
    kept = _kept(request, doors)
    aim = Aim.SIGN_IN
    try:
        started = entrance.take(kept, slug, state)
        aim = started.aim
        client, claims = await entrance.claims_of(doors, started, Reply(state, code, error, iss))
        if started.aim is Aim.SIGN_IN:
            token = await entrance.sign_in(await arrival_of(request, db, hasher), client, claims)
            response = let_in(request, token, started.target)
        elif started.aim is Aim.CONNECT:
            await _same_person(request, started)
            assert started.person_id is not None
            await entrance.connect(doors, started.person_id, _address(request), client, claims)
            response = RedirectResponse("/settings/company?connected=1", status_code=303)
        else:
            await _same_person(request, started)
            response = trial_page(request, await entrance.try_out(doors, client, claims))
    except SignInRefused as refused:
        response = await _refused(request, db, slug, refused, aim)
    _keep(request, doors, response, [each for each in kept if each.state != state])
    return response


@router.post("/login/backchannel/{slug}")
async def end_by_provider(slug: str, doors: IdentityDoors, logout_token: Annotated[str, Form()] = "") -> Response:
    """From the provider's own server: a signed token, and no cookie. OpenID Connect Back-Channel Logout 1.0."""
    try:
        await entrance.end_by_provider(doors, slug, logout_token)
    except SignInRefused as refused:
        log.warning("a back-channel logout of %s was refused: %s", slug, refused.reason)
        return Response(status_code=400)
    return Response(status_code=200)


@router.get("/logout/at/{slug}")
async def sign_out_there(slug: str, doors: IdentityDoors) -> Response:
    """To the provider's own sign-out, which leads back to ours."""
    address = await entrance.provider_sign_out(doors, slug)
    return RedirectResponse(address or "/login", status_code=303)


@router.get("/settings/company")
async def connections(request: Request, user: OwnRow, session: Session, connected: str = "") -> HTMLResponse:
    """With which company sign-ins this account is connected."""
    return page(
        request,
        "identity/connections.html",
        connections=await entrance.connections(session, user),
        connected=bool(connected),
        has_password=user.password_hash is not None,
        **await load_sidebar(request, session, request.state.viewer, current=None),
    )


@router.get("/settings/company/{slug}/connect")
async def go_to_connect(request: Request, slug: str, user: CurrentUser, doors: IdentityDoors) -> Response:
    return await leave_for(request, doors, Pending.begin(slug, "/settings/company", Aim.CONNECT, user.id))


@router.post("/settings/company/{slug}/disconnect")
async def disconnect(slug: str, user: OwnRow, session: Session) -> Response:
    await entrance.disconnect(session, user, slug)
    return RedirectResponse("/settings/company", status_code=303)


async def leave_for(request: Request, doors: Doors, started: Pending) -> Response:
    try:
        address, cookie = await entrance.begin(doors, started, _kept(request, doors))
    except SignInRefused as refused:
        return await _refused(request, doors.db, started.slug, refused, started.aim)
    response = RedirectResponse(address, status_code=303)
    PENDING_SIGN_INS.set(request, response, cookie)
    return response


def _kept(request: Request, doors: Doors) -> tuple[Pending, ...]:
    return pending.read(doors.cookies, request.cookies.get(PENDING_SIGN_INS.name(request), ""))


def _keep(request: Request, doors: Doors, response: Response, kept: list[Pending]) -> None:
    if cookie := pending.write(doors.cookies, kept):
        PENDING_SIGN_INS.set(request, response, cookie)
    else:
        PENDING_SIGN_INS.clear(request, response)


async def _same_person(request: Request, started: Pending) -> None:
    """What somebody began for their own account, or as an administrator, they have to end as the same."""
    login = await policy.find_login(request)
    if login is None or login.viewer.id != started.person_id:
        raise ReplyRefused("somebody else is signed in than who began", _("You were signed out meanwhile. Try again."))
    if started.aim is Aim.TEST and not login.viewer.is_admin:
        raise Forbidden(_("Only administrators test a sign-in."))
    request.state.viewer = login.viewer


async def _refused(request: Request, db: Sessions, slug: str, refused: SignInRefused, aim: Aim) -> HTMLResponse:
    log.warning("a sign-in with %s was refused: %s", slug, refused.reason)
    await entrance.refuse(db, slug, _address(request), refused)
    return page(
        request,
        "identity/refused.html",
        status=refused.status,
        status_code=refused.status,
        sentence=str(refused),
        again=_AGAIN[aim].format(slug=quote(slug, safe="")),
        moment=now(),
    )


def _address(request: Request) -> str:
    return request.client.host if request.client else ""

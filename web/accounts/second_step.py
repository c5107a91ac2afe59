"""What comes after a right password: the second factor, or, later, showing once more that it is still the same person.

Signing in again is signing in: the form leads to `/login`, so it is throttled, counted and asked for a second factor as
any other, and ends with a new session in place of the old one.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Query, Request
from sqlalchemy import select
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.accounts import entrance, second_factor
from backend.accounts.entrance import Asked
from backend.accounts.models import Passkey
from backend.accounts.service import LinkEnded
from backend.core.db import Session
from backend.core.i18n import _
from web.accounts.arriving import Arriving, let_in, passkey_options, seat, sign_in_page
from web.accounts.codes import picture
from web.cookies import SECOND_STEP
from web.dependencies import OwnRow
from web.errors import safe_next
from web.forms import plain_form
from web.rendering import page

router = APIRouter(dependencies=[Depends(plain_form)])


@router.get("/login/second")
async def ask(request: Request, arrival: Arriving, target: Annotated[str, Query(alias="next")] = "/") -> Response:
    try:
        asked = await entrance.second_step(arrival, _kept(request))
    except LinkEnded:
        return await _from_the_start(request, target)
    return _page(request, asked, target)


@router.post("/login/second")
async def take(
    request: Request,
    arrival: Arriving,
    code: Annotated[str, Form()] = "",
    target: Annotated[str, Form(alias="next")] = "/",
) -> Response:
    try:
        passed = await entrance.take_second_step(arrival, _kept(request), code)
        asked = None if passed else await entrance.second_step(arrival, _kept(request))
    except LinkEnded:
        return await _from_the_start(request, target)
    if asked is not None:
        error = _("This code is wrong or was used already. After several tries, wait a minute before the next one.")
        return _page(request, asked, target, error=error)
    assert passed is not None
    response: Response = RedirectResponse(safe_next(target), status_code=303)
    if passed.recovery_codes:
        response = page(
            request, "accounts/recovery_codes.html", codes=passed.recovery_codes, next=safe_next(target), is_new=True
        )
    seat(request, response, passed.token)
    return response


@router.post("/login/passkey")
async def passkey(
    request: Request,
    arrival: Arriving,
    reply: Annotated[str, Form()] = "",
    target: Annotated[str, Form(alias="next")] = "/",
) -> Response:
    token = await entrance.sign_in_with_passkey(arrival, request.state.party, reply)
    if token is None:
        return await sign_in_page(
            request, target, error=_("This passkey does not open anything here. Try again, or another way.")
        )
    return let_in(request, token, safe_next(target))


@router.get("/login/again")
async def again(
    request: Request, user: OwnRow, session: Session, target: Annotated[str, Query(alias="next")] = "/"
) -> HTMLResponse:
    has_passkey = await session.scalar(select(Passkey.id).where(Passkey.user_id == user.id).limit(1)) is not None
    return page(
        request,
        "accounts/again.html",
        next=safe_next(target),
        has_password=user.password_hash is not None,
        passkey=passkey_options(request) if has_passkey else None,
    )


def _page(request: Request, asked: Asked, target: str, *, error: str | None = None) -> HTMLResponse:
    address = None
    if asked.new_secret:
        company = request.state.company.name
        address = second_factor.address_for_app(asked.new_secret, email=asked.person.email, company=company)
    return page(
        request,
        "accounts/second_step.html",
        status=401 if error else 200,
        next=safe_next(target),
        asked=asked,
        picture=picture(address) if address else None,
        passkey=passkey_options(request) if asked.has_passkey else None,
        error=error,
    )


def _kept(request: Request) -> str | None:
    return request.cookies.get(SECOND_STEP.name(request))


async def _from_the_start(request: Request, target: str) -> Response:
    """Ten minutes have gone by, or the password was changed meanwhile."""
    response = await sign_in_page(request, target, error=_("That took too long, so please begin again."))
    SECOND_STEP.clear(request, response)
    return response

"""One's own ways in: passkeys, and the app that shows codes."""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Request
from markupsafe import Markup
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.accounts import passkeys, rules, second_factor
from backend.accounts.models import User
from backend.accounts.passkeys import RelyingParty
from backend.accounts.rules import Demand
from backend.core.db import Session
from backend.core.errors import AppError, BadInput, Conflict
from backend.core.i18n import _
from web.accounts.codes import picture
from web.chat.sidebar import load_sidebar
from web.dependencies import OwnRow
from web.forms import plain_form
from web.rendering import page

router = APIRouter(dependencies=[Depends(plain_form)])

_HERE = "/settings/sign-in"


@dataclass(frozen=True)
class NewApp:
    """A secret that no code has been entered of yet."""

    secret: str
    picture: Markup


@router.get("/settings/sign-in")
async def ways_in(request: Request, user: OwnRow, session: Session, done: str = "") -> HTMLResponse:
    return await _page(request, session, user, done=done)


@router.post("/settings/sign-in/app")
async def confirm_app(
    request: Request, user: OwnRow, session: Session, code: Annotated[str, Form()] = ""
) -> HTMLResponse:
    """The reply is the only page that shows the recovery codes."""
    codes = await second_factor.confirm(session, request.state.second_factors, user, code)
    if codes is None:
        wrong = _("This is not the code that the app shows now. Check that the clock of the telephone is right.")
        return await _page(request, session, user, status=422, errors={"code": wrong})
    return _codes_page(request, codes, is_new=True)


@router.post("/settings/sign-in/app/remove")
async def remove_app(request: Request, user: OwnRow, session: Session) -> Response:
    await _refuse_where_demanded(request, session, user)
    await second_factor.remove(session, user)
    return RedirectResponse(f"{_HERE}?done=removed", status_code=303)


@router.post("/settings/sign-in/recovery-codes")
async def new_codes(request: Request, user: OwnRow, session: Session) -> HTMLResponse:
    if not await second_factor.is_set(session, user.id):
        raise Conflict(_("There is no second factor that these codes would stand in for."))
    return _codes_page(request, await second_factor.new_recovery_codes(session, user), is_new=False)


@router.post("/settings/passkeys")
async def add_passkey(
    request: Request,
    user: OwnRow,
    session: Session,
    reply: Annotated[str, Form()] = "",
    name: Annotated[str, Form()] = "",
) -> Response:
    try:
        async with session.begin_nested():
            await passkeys.add(session, request.state.party, user, reply, name)
    except (BadInput, Conflict) as error:
        return await _page(request, session, user, status=error.status, problem=error)
    return RedirectResponse(f"{_HERE}?done=added", status_code=303)


@router.post("/settings/passkeys/{passkey_id}/name")
async def rename_passkey(
    passkey_id: UUID, user: OwnRow, session: Session, name: Annotated[str, Form()] = ""
) -> Response:
    await passkeys.rename(session, user, passkey_id, name)
    return RedirectResponse(f"{_HERE}?done=renamed", status_code=303)


@router.post("/settings/passkeys/{passkey_id}/remove")
async def remove_passkey(passkey_id: UUID, user: OwnRow, session: Session) -> Response:
    await passkeys.remove(session, user, passkey_id)
    return RedirectResponse(f"{_HERE}?done=removed", status_code=303)


async def _refuse_where_demanded(request: Request, session: AsyncSession, user: User) -> None:
    if await _is_demanded(request, session, user):
        raise Conflict(
            _("Your account needs a second factor, so the app stays. A new telephone: ask an administrator.")
        )


async def _is_demanded(request: Request, session: AsyncSession, user: User) -> bool:
    demand = request.state.settings.require_second_factor
    ruled = (await rules.read(session)).overridden(Demand(demand) if demand else None)
    return ruled.demand_second_factor_of(user)


def _codes_page(request: Request, codes: list[str], *, is_new: bool) -> HTMLResponse:
    return page(request, "accounts/recovery_codes.html", codes=codes, next=_HERE, is_new=is_new)


async def _page(
    request: Request,
    session: AsyncSession,
    user: User,
    *,
    status: int = 200,
    done: str = "",
    errors: dict[str, str] | None = None,
    problem: AppError | None = None,
) -> HTMLResponse:
    party: RelyingParty = request.state.party
    has_app = await second_factor.is_set(session, user.id)
    return page(
        request,
        "accounts/ways_in.html",
        status=status,
        has_app=has_app,
        new_app=None if has_app else await _new_app(request, session, user),
        codes_left=await second_factor.recovery_codes_left(session, user.id),
        is_demanded=await _is_demanded(request, session, user),
        passkeys=await passkeys.kept_by(session, user.id),
        options=await passkeys.options_for_new(session, party, user) if party.can_have_passkeys else None,
        host=party.host,
        done=done if done in ("added", "removed", "renamed") else None,
        errors=errors or {},
        problem=str(problem) if problem else None,
        **await load_sidebar(request, session, request.state.viewer, current=None),
    )


async def _new_app(request: Request, session: AsyncSession, user: User) -> NewApp:
    secret = await second_factor.begin(session, request.state.second_factors, user.id)
    company = request.state.company.name
    return NewApp(secret, picture(second_factor.address_for_app(secret, email=user.email, company=company)))

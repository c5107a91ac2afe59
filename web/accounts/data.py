"""What is kept of oneself: take it along, or have it gone."""

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from backend.accounts import service as accounts
from backend.audit.acting import act_as, actor_of
from backend.core.clock import now
from backend.core.db import Session
from backend.core.errors import AppError, BadInput
from backend.privacy import erasing, exporting
from web.chat.sidebar import load_sidebar
from web.cookies import SESSION
from web.dependencies import AllSessions, OwnRow
from web.forms import plain_form
from web.rendering import page

router = APIRouter(dependencies=[Depends(plain_form)])


@router.get("/settings/data")
async def data(request: Request, session: Session) -> HTMLResponse:
    return await _page(request, session)


@router.post("/settings/data/export")
async def export(user: OwnRow, session: Session, sessions: AllSessions) -> Response:
    """An archive, made while it is taken."""
    await exporting.note(session, user.id)
    name = f"parley-{now():%Y-%m-%d}.zip"
    return StreamingResponse(
        exporting.archive(sessions, user.id),
        media_type="application/zip",
        headers={"content-disposition": f'attachment; filename="{name}"', "x-accel-buffering": "no"},
    )


@router.post("/settings/data/delete")
async def delete(
    request: Request,
    user: OwnRow,
    session: Session,
    sessions: AllSessions,
    address: Annotated[str, Form()] = "",
) -> Response:
    """The account with everything in it; afterwards nobody is signed in here."""
    actor = actor_of(session)
    await session.commit()  # nobody holds two connections
    try:
        erasing.require_address(user, address)
        async with sessions.as_worker() as worker:
            act_as(worker, actor)
            await erasing.erase(worker, await accounts.find_person(worker, user.id), user.id)
    except AppError as error:
        wrong = error.fields if isinstance(error, BadInput) else {"address": str(error)}
        async with sessions.as_person(user.id) as again:
            return await _page(request, again, status=error.status, errors=wrong)
    response = RedirectResponse("/login", status_code=303)
    SESSION.clear(request, response)
    return response


async def _page(
    request: Request, session: AsyncSession, *, status: int = 200, errors: dict[str, str] | None = None
) -> HTMLResponse:
    return page(
        request,
        "accounts/data.html",
        status=status,
        most=exporting.MOST_AN_HOUR,
        errors=errors or {},
        **await load_sidebar(request, session, request.state.viewer, current=None),
    )

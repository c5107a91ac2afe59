"""One's own API keys: make one, see it once, see when it was used, revoke it."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.core.clock import now
from backend.core.db import Session
from backend.core.errors import BadInput, Conflict
from backend.core.text import clean
from backend.keys import queries, service
from backend.keys.service import LIFETIMES, Made
from web.chat.sidebar import load_sidebar
from web.dependencies import CurrentUser, DeploymentSettings
from web.forms import plain_form
from web.rendering import page
from web.viewer import Viewer

router = APIRouter(dependencies=[Depends(plain_form)])

Days = Literal["", "30", "90", "365"]
_USUAL: Days = "90"


@router.get("/settings/keys")
async def keys(
    request: Request, user: CurrentUser, session: Session, settings: DeploymentSettings, revoked: str = ""
) -> HTMLResponse:
    return await _page(request, session, user, settings.origin, revoked=bool(revoked))


@router.post("/settings/keys")
async def make(
    request: Request,
    user: CurrentUser,
    session: Session,
    settings: DeploymentSettings,
    name: Annotated[str, Form()] = "",
    days: Annotated[Days, Form()] = _USUAL,
) -> HTMLResponse:
    """The reply is the only page that ever shows the key."""
    try:
        made = await service.make(session, user.id, name, LIFETIMES[days])
    except (BadInput, Conflict) as error:
        wrong = error.fields if isinstance(error, BadInput) else {}
        problem = None if wrong else str(error)
        return await _page(
            request,
            session,
            user,
            settings.origin,
            status=error.status,
            errors=wrong,
            problem=problem,
            name=clean(name),
        )
    return await _page(request, session, user, settings.origin, made=made)


@router.post("/settings/keys/{key_id}/revoke")
async def revoke(key_id: UUID, user: CurrentUser, session: Session) -> Response:
    await service.revoke(session, user.id, key_id)
    return RedirectResponse("/settings/keys?revoked=1", status_code=303)


async def _page(
    request: Request,
    session: AsyncSession,
    user: Viewer,
    origin: str,
    *,
    status: int = 200,
    made: Made | None = None,
    revoked: bool = False,
    errors: dict[str, str] | None = None,
    problem: str | None = None,
    name: str = "",
) -> HTMLResponse:
    return page(
        request,
        "accounts/keys.html",
        status=status,
        keys=(await session.scalars(queries.kept_by(user.id))).all(),
        most=service.MOST,
        prefix=service.PREFIX,
        base=f"{origin}/v1",
        moment=now(),
        made=made,
        revoked=revoked,
        errors=errors or {},
        problem=problem,
        name=name,
        **await load_sidebar(request, session, user, current=None),
    )

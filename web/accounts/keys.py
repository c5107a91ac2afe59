"""One's own API keys: make one, see it once, see when it was used, revoke it."""

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.core.clock import now
from backend.core.db import Session
from backend.core.errors import BadInput, Conflict
from backend.core.text import clean
from backend.engines.registry import Registry
from backend.keys import queries, service
from backend.keys.models import Scope
from backend.keys.service import LIFETIMES, Made
from web.chat.sidebar import load_sidebar
from web.dependencies import CurrentUser, DeploymentSettings, Models
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
    *,
    registry: Models,
) -> HTMLResponse:
    """The reply is the only page that ever shows the key."""
    try:
        wanted = await _wanted(request, registry, user)
        made = await service.make(session, user.id, name, LIFETIMES[days], **wanted)
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


async def _wanted(request: Request, registry: Registry, user: Viewer) -> dict[str, Any]:
    """What the key is to be for: scopes, and models of those that its owner may use."""
    form = await request.form()
    scopes = frozenset(scope for scope in Scope if f"scope-{scope}" in form)
    mine = {offer.id for offer in registry.offers_for(user.id)}
    chosen = {model_id for model_id in mine if f"model-{model_id}" in form}
    return {"scopes": scopes, "model_ids": chosen if form.get("models") == "some" else None}


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
        models=request.state.registry.offers_for(user.id),
        names={offer.id: offer.name for offer in request.state.registry.offers},
        base=f"{origin}/v1",
        moment=now(),
        made=made,
        revoked=revoked,
        errors=errors or {},
        problem=problem,
        name=name,
        **await load_sidebar(request, session, user, current=None),
    )

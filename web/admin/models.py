"""Administration: the models as people see them, and who may use which.

Which engines have a model, and whether it is published, is said on the page of the engines.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.core.clock import now
from backend.core.db import Session
from backend.core.errors import AppError, BadInput
from backend.core.i18n import _
from backend.engines import publishing, queries, service
from backend.engines.models import Deployment, Model
from backend.engines.parameters import ADJUSTABLE, THINKING
from backend.engines.publishing import COLORS, Wishes
from backend.engines.registry import Registry, State
from backend.groups import queries as groups
from backend.groups.models import Group
from web.admin.dependencies import OneDeployment, OneModel
from web.admin.model_form import (
    COLOR_NAMES,
    PARAMETER_NAMES,
    THINKING_NAMES,
    as_it_is,
    deployment_rows,
    facts,
    typed,
)
from web.admin.trial_view import TrialForm, trial_view
from web.dependencies import Models
from web.forms import Choice, plain_form
from web.rendering import date_and_time, page, zone_of

router = APIRouter(dependencies=[Depends(plain_form)])


@dataclass(frozen=True)
class ModelRow:
    """A line of the list."""

    id: UUID
    name: str
    description: str
    color: str
    who: str
    state: str  # good, warn, bad, off
    word: str
    departures: bool  # an engine is not what it was pinned to
    external: bool  # one of its engines is outside
    is_first: bool
    is_last: bool


@router.get("/admin/models")
async def models(request: Request, session: Session, registry: Models) -> HTMLResponse:
    return await _list(request, session, registry)


@router.post("/admin/models")
async def choose_default(
    request: Request, session: Session, registry: Models, model: Annotated[str, Form()] = ""
) -> Response:
    """With which model everybody begins who has no other choice."""
    try:
        async with session.begin_nested():
            await publishing.choose_default(session, publishing.named(model))
    except BadInput as error:
        return await _list(request, session, registry, status=error.status, errors=error.fields)
    return RedirectResponse("/admin/models", status_code=303)


@router.post("/admin/models/{model_id}/move")
async def move(model: OneModel, session: Session, to: Annotated[str, Form()]) -> Response:
    await publishing.move(session, model, up=to == "up")
    return RedirectResponse("/admin/models", status_code=303)


@router.get("/admin/models/{model_id}")
async def one(
    request: Request, model: OneModel, session: Session, registry: Models, saved: str = "", changed: str = ""
) -> HTMLResponse:
    return await model_page(request, session, registry, model, saved=bool(saved), changed=bool(changed))


@router.post("/admin/models/{model_id}")
async def change(request: Request, model: OneModel, session: Session, registry: Models) -> Response:
    wishes = typed(await request.form())
    try:
        async with session.begin_nested():
            await publishing.change(session, model, wishes, zone_of(request))
    except BadInput as error:
        await session.refresh(model)
        return await model_page(
            request, session, registry, model, status=error.status, errors=error.fields, wishes=wishes
        )
    return RedirectResponse(f"/admin/models/{model.id}?saved=1", status_code=303)


@router.post("/admin/models/{model_id}/publish")
async def publish(model: OneModel, session: Session) -> Response:
    """Once more: it was withdrawn, and its engines still have it."""
    await publishing.publish_again(session, model)
    return RedirectResponse(f"/admin/models/{model.id}", status_code=303)


@router.post("/admin/deployments/{deployment_id}/pin")
async def pin(request: Request, deployment: OneDeployment, session: Session, registry: Models) -> Response:
    """What the engine has now is what it should have."""
    await session.refresh(deployment, ["engine"])
    try:
        await publishing.pin(session, deployment)
    except AppError as error:
        model = await service.find_model(session, deployment.model_id) if deployment.model_id else None
        if model is None:
            raise
        return await model_page(request, session, registry, model, status=error.status, problem=str(error))
    return _back_to_model(deployment)


@router.post("/admin/deployments/{deployment_id}/unpin")
async def unpin(deployment: OneDeployment, session: Session) -> Response:
    await publishing.unpin(session, deployment)
    return _back_to_model(deployment)


def _back_to_model(deployment: Deployment) -> Response:
    where = f"/{deployment.model_id}#engines" if deployment.model_id else ""
    return RedirectResponse(f"/admin/models{where}", status_code=303)


# The list


async def _list(
    request: Request,
    session: AsyncSession,
    registry: Registry,
    *,
    status: int = 200,
    errors: dict[str, str] | None = None,
) -> HTMLResponse:
    rows = (await session.scalars(queries.models())).all()
    names = {group.id: group.name for group in await session.scalars(groups.everything())}
    shares: dict[UUID, list[str]] = {}
    for model_id, group_id in await session.execute(queries.shares()):
        shares.setdefault(model_id, []).append(names[group_id])
    astray = {
        deployment.model_id
        for deployment in await session.scalars(queries.pinned_deployments())
        if publishing.departures(deployment)
    }
    default = await session.scalar(queries.default_of())
    offered = [model for model in rows if model.published and model.retired_at is None]
    return page(
        request,
        "admin/models.html",
        status=status,
        errors=errors or {},
        models=[_row(request, registry, model, shares.get(model.id, []), model.id in astray, rows) for model in rows],
        defaults=[
            Choice(str(model.id), model.name, default is not None and default.model_id == model.id) for model in offered
        ],
    )


def _row(
    request: Request, registry: Registry, model: Model, names: Iterable[str], astray: bool, rows: Sequence[Model]
) -> ModelRow:
    state, word = _state(model, registry, zone_of(request))
    return ModelRow(
        id=model.id,
        name=model.name,
        description=model.description,
        color=model.color,
        who=_("Everybody") if model.for_everybody else ", ".join(sorted(names, key=str.lower)) or _("Nobody"),
        state=state,
        word=word,
        departures=astray,
        external=(offer := registry.offer(model.id)) is not None and offer.external,
        is_first=model is rows[0],
        is_last=model is rows[-1],
    )


def _state(model: Model, registry: Registry, zone: ZoneInfo) -> tuple[str, str]:
    """A class and a word."""
    if not model.published:
        return "off", _("Not published")
    if model.retired_at is not None:
        return "off", _("Retired")
    if model.maintenance_until is not None and model.maintenance_until > now():
        return "warn", _("Maintenance until {time}").format(time=date_and_time(model.maintenance_until, zone))
    offer = registry.offer(model.id)
    match registry.state_of(offer) if offer else State.AWAY:
        case State.AWAY:
            return "bad", _("No engine")
        case State.LOADING:
            return "warn", _("Loading")
        case State.BUSY:
            return "warn", _("Busy")
    return "good", _("Available")


# One model


async def model_page(
    request: Request,
    session: AsyncSession,
    registry: Registry,
    model: Model,
    *,
    status: int = 200,
    saved: bool = False,
    changed: bool = False,
    problem: str | None = None,
    errors: dict[str, str] | None = None,
    wishes: Wishes | None = None,
    given: TrialForm | None = None,
) -> HTMLResponse:
    zone = zone_of(request)
    form = wishes or await as_it_is(session, model, zone)
    deployments = (await session.scalars(queries.deployments_with_engines(model.id))).all()
    all_groups = (await session.scalars(groups.everything())).all()
    others = [other for other in await session.scalars(queries.models()) if other.id != model.id]
    state, word = _state(model, registry, zone)
    return page(
        request,
        "admin/model.html",
        status=status,
        model=model,
        saved=saved,
        changed=changed,
        problem=problem,
        errors=errors or {},
        form=form,
        state=state,
        word=word,
        since=model.retired_at,
        colors=[Choice(color, COLOR_NAMES[color], form.color == color) for color in ("", *COLORS)],
        thinking=[Choice(way, THINKING_NAMES[way], form.thinking == way) for way in ("", *THINKING)],
        adjustable=[Choice(name, PARAMETER_NAMES[name], name in form.adjustable) for name in ADJUSTABLE],
        groups=_group_choices(all_groups, form),
        fallbacks=[Choice(str(other.id), other.name, form.fallback == str(other.id)) for other in others],
        facts=facts(deployments),
        deployments=deployment_rows(deployments, registry.offer(model.id)),
        trial=await trial_view(request.state.direct, model, deployments, all_groups, given),
    )


def _group_choices(found: Iterable[Group], form: Wishes) -> list[Choice]:
    return [Choice(str(group.id), group.name, group.id in form.groups) for group in found]

"""Administration: a new revision of a model for some, then for all or for nobody (`backend/engines/trials.py`)."""

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import RedirectResponse, Response

from backend.core.db import Session
from backend.core.errors import AppError, BadInput
from backend.engines import service, trials
from backend.engines.models import Deployment, Model
from backend.engines.registry import Registry
from web.admin.dependencies import OneDeployment, OneModel
from web.admin.models import model_page
from web.admin.trial_view import Given
from web.dependencies import Models
from web.forms import plain_form

router = APIRouter(dependencies=[Depends(plain_form)])


@router.post("/admin/deployments/{deployment_id}/try")
async def begin(request: Request, deployment: OneDeployment, session: Session, registry: Models) -> Response:
    """Put what runs there on trial."""
    try:
        async with session.begin_nested():
            await trials.begin(session, deployment)
    except AppError as error:
        return await _told(request, session, registry, deployment, error)
    return _back(deployment.model_id)


@router.post("/admin/deployments/{deployment_id}/restore")
async def restore(request: Request, deployment: OneDeployment, session: Session, registry: Models) -> Response:
    """Let new conversations have what runs there."""
    try:
        async with session.begin_nested():
            await trials.restore(session, deployment)
    except AppError as error:
        return await _told(request, session, registry, deployment, error)
    return _back(deployment.model_id)


@router.post("/admin/models/{model_id}/trial")
async def give(
    request: Request,
    model: OneModel,
    session: Session,
    registry: Models,
    share: Annotated[str, Form()] = "",
    group: Annotated[str, Form()] = "",
) -> Response:
    try:
        async with session.begin_nested():
            await trials.give(session, model, share=share, group=group)
    except BadInput as error:
        await session.refresh(model)
        return await model_page(
            request, session, registry, model, status=error.status, errors=error.fields, given=Given(share, group)
        )
    return _back(model.id)


@router.post("/admin/models/{model_id}/promote")
async def promote(request: Request, model: OneModel, session: Session, registry: Models) -> Response:
    return await _end(request, session, registry, model, promoted=True)


@router.post("/admin/models/{model_id}/roll-back")
async def roll_back(request: Request, model: OneModel, session: Session, registry: Models) -> Response:
    return await _end(request, session, registry, model, promoted=False)


async def _end(
    request: Request, session: AsyncSession, registry: Registry, model: Model, *, promoted: bool
) -> Response:
    try:
        async with session.begin_nested():
            await (trials.promote if promoted else trials.roll_back)(session, model)
    except AppError as error:
        await session.refresh(model)
        return await model_page(request, session, registry, model, status=error.status, problem=str(error))
    return _back(model.id)


async def _told(
    request: Request, session: AsyncSession, registry: Registry, deployment: Deployment, error: AppError
) -> Response:
    """On the page of its model, if it still has one."""
    await session.refresh(deployment)
    if deployment.model_id is None:
        raise error
    model = await service.find_model(session, deployment.model_id)
    return await model_page(request, session, registry, model, status=error.status, problem=str(error))


def _back(model_id: object) -> Response:
    return RedirectResponse(f"/admin/models/{model_id}#trial", status_code=303)

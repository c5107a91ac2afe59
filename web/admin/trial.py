"""Administration: a new revision of a model for some, then for all or for nobody (`backend/engines/trials.py`)."""

from collections.abc import Awaitable
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from starlette.responses import RedirectResponse, Response

from backend.core.db import Session
from backend.core.errors import AppError, BadInput
from backend.engines import service, trials
from backend.engines.models import Deployment, Model
from web.admin.dependencies import OneDeployment, OneModel
from web.admin.models import model_page
from web.admin.trial_view import TrialForm
from web.forms import plain_form

router = APIRouter(dependencies=[Depends(plain_form)])


@router.post("/admin/deployments/{deployment_id}/try")
async def begin(request: Request, deployment: OneDeployment, session: Session) -> Response:
    """Put what runs there on trial."""
    return await _do(request, session, trials.begin(session, deployment), deployment)


@router.post("/admin/deployments/{deployment_id}/restore")
async def restore(request: Request, deployment: OneDeployment, session: Session) -> Response:
    """Let new conversations have what runs there."""
    return await _do(request, session, trials.restore(session, deployment), deployment)


@router.post("/admin/models/{model_id}/trial")
async def assign(
    request: Request,
    model: OneModel,
    session: Session,
    share: Annotated[str, Form()] = "",
    group: Annotated[str, Form()] = "",
) -> Response:
    """Say who gets what is on trial."""
    change = trials.assign(session, model, share=share, group=group)
    return await _do(request, session, change, model, form=TrialForm(share, group))


@router.post("/admin/models/{model_id}/promote")
async def promote(request: Request, model: OneModel, session: Session) -> Response:
    return await _do(request, session, trials.promote(session, model), model)


@router.post("/admin/models/{model_id}/roll-back")
async def roll_back(request: Request, model: OneModel, session: Session) -> Response:
    return await _do(request, session, trials.roll_back(session, model), model)


async def _do(
    request: Request,
    session: Session,
    change: Awaitable[None],
    what: Deployment | Model,
    form: TrialForm | None = None,
) -> Response:
    """And back to the page of the model, which tells where it could not be done."""
    problem: AppError | None = None
    try:
        async with session.begin_nested():
            await change
    except AppError as error:
        problem = error
        await session.refresh(what)
    model_id = what.model_id if isinstance(what, Deployment) else what.id
    if problem is None:
        return RedirectResponse(f"/admin/models/{model_id}?changed=1#trial", status_code=303)
    if model_id is None:
        raise problem
    model = await service.find_model(session, model_id)
    told = {"errors": problem.fields, "given": form} if isinstance(problem, BadInput) else {"problem": str(problem)}
    return await model_page(request, session, request.state.registry, model, status=problem.status, **told)

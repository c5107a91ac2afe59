"""What several pages of the administration ask for."""

from typing import Annotated
from uuid import UUID

from fastapi import Depends

from backend.core.db import Session
from backend.engines import service
from backend.engines.models import Deployment, Model


async def _model(model_id: UUID, session: Session) -> Model:
    return await service.find_model(session, model_id)


async def _deployment(deployment_id: UUID, session: Session) -> Deployment:
    return await service.find_deployment(session, deployment_id)


OneModel = Annotated[Model, Depends(_model)]
OneDeployment = Annotated[Deployment, Depends(_deployment)]

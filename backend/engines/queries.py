"""Selects over engines, models and deployments."""

from uuid import UUID

from sqlalchemy import Select, exists, func, select, update
from sqlalchemy.orm import selectinload
from sqlalchemy.sql.dml import Update

from backend.engines.models import Deployment, Engine, Model


def everything() -> Select[Engine]:
    """All engines with their deployments and the models these belong to, in three statements."""
    return (
        select(Engine)
        .options(selectinload(Engine.deployments).selectinload(Deployment.model))
        .order_by(func.lower(Engine.name), Engine.id)
    )


def engine(engine_id: UUID) -> Select[Engine]:
    return select(Engine).where(Engine.id == engine_id)


def deployment(deployment_id: UUID) -> Select[Deployment]:
    return select(Deployment).where(Deployment.id == deployment_id)


def model(model_id: UUID) -> Select[Model]:
    return select(Model).where(Model.id == model_id)


def deployments_of(engine_id: UUID) -> Select[Deployment]:
    return select(Deployment).where(Deployment.engine_id == engine_id)


def at_address(url: str) -> Select[Engine]:
    return select(Engine).where(Engine.url == url)


def forget_abilities(engine_id: UUID) -> Update:
    """What was proved at another address has to be proved again."""
    return (
        update(Deployment)
        .where(Deployment.engine_id == engine_id)
        .values(continues=None, sees=None)
        .execution_options(synchronize_session=False)
    )


def withdraw_models_without_deployment() -> Update:
    """Their rows stay for the conversations that used them."""
    return (
        update(Model)
        .where(Model.published, ~exists().where(Deployment.model_id == Model.id))
        .values(published=False)
        .execution_options(synchronize_session=False)
    )

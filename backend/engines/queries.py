"""Selects over engines, models and deployments."""

from uuid import UUID

from sqlalchemy import Select, exists, func, or_, select, update
from sqlalchemy.orm import contains_eager, selectinload
from sqlalchemy.sql.dml import Update

from backend.engines.models import DefaultModel, Deployment, Engine, Model, ModelGroup, Stage


def everything() -> Select[Engine]:
    """All engines with their deployments and the models these belong to, in three statements."""
    return (
        select(Engine)
        .options(selectinload(Engine.deployments).selectinload(Deployment.model))
        .order_by(func.lower(Engine.name), Engine.id)
    )


def engine(engine_id: UUID) -> Select[Engine]:
    return select(Engine).where(Engine.id == engine_id)


def whole_engine(engine_id: UUID) -> Select[Engine]:
    """With its deployments, and each with its model and its engine."""
    deployments = selectinload(Engine.deployments)
    return (
        select(Engine)
        .where(Engine.id == engine_id)
        .options(deployments.joinedload(Deployment.model), deployments.joinedload(Deployment.engine))
        .execution_options(populate_existing=True)
    )


def deployment(deployment_id: UUID) -> Select[Deployment]:
    return select(Deployment).where(Deployment.id == deployment_id)


def model(model_id: UUID) -> Select[Model]:
    return select(Model).where(Model.id == model_id)


def models() -> Select[Model]:
    """All of them, in the order people see them."""
    return select(Model).order_by(Model.position, Model.id)


def shares() -> Select[UUID, UUID]:
    """Model and group, of models that are not for everybody."""
    return (
        select(ModelGroup.model_id, ModelGroup.group_id)
        .join(Model, Model.id == ModelGroup.model_id)
        .where(Model.for_everybody.is_(False))
    )


def defaults() -> Select[DefaultModel]:
    return select(DefaultModel)


def default_of(*, person_id: UUID | None = None, group_id: UUID | None = None) -> Select[DefaultModel]:
    """Of a person, of a group, or (neither) of everybody."""
    return select(DefaultModel).where(
        DefaultModel.user_id.is_not_distinct_from(person_id), DefaultModel.group_id.is_not_distinct_from(group_id)
    )


def groups_of(model_id: UUID) -> Select[UUID]:
    return select(ModelGroup.group_id).where(ModelGroup.model_id == model_id)


def deployments_with_engines(model_id: UUID) -> Select[Deployment]:
    return (
        select(Deployment)
        .join(Deployment.engine)
        .options(contains_eager(Deployment.engine))
        .where(Deployment.model_id == model_id)
        .order_by(func.lower(Engine.name), Deployment.id)
    )


def on_several_engines() -> Select[UUID]:
    """Models that more than one engine has for new conversations."""
    current = select(Model.id).join(Deployment, Deployment.model_id == Model.id)
    return current.where(Deployment.stage == Stage.CURRENT).group_by(Model.id).having(func.count() > 1)


def in_service(model_id: UUID, stage: Stage) -> Select[UUID]:
    """Deployments of a model in this stage, on engines that take new questions."""
    return (
        select(Deployment.id)
        .join(Deployment.engine)
        .where(Deployment.model_id == model_id, Deployment.stage == stage, Engine.enabled, Engine.draining.is_(False))
    )


def pinned_deployments() -> Select[Deployment]:
    return (
        select(Deployment)
        .join(Deployment.engine)
        .options(contains_eager(Deployment.engine))
        .where(or_(Deployment.pinned_revision.is_not(None), Deployment.pinned_version.is_not(None)))
    )


def deployments_of(engine_id: UUID) -> Select[Deployment]:
    return select(Deployment).where(Deployment.engine_id == engine_id)


def at_address(url: str) -> Select[Engine]:
    return select(Engine).where(Engine.url == url)


def last_engine_of(engine_id: UUID) -> Select[str]:
    """The names of published models that no other engine in service has for people."""
    other = (
        exists()
        .where(Deployment.model_id == Model.id, Deployment.engine_id != engine_id, Engine.id == Deployment.engine_id)
        .where(Deployment.stage != Stage.WITHDRAWN, Engine.enabled, Engine.draining.is_(False))
    )
    here = exists().where(Deployment.model_id == Model.id, Deployment.engine_id == engine_id)
    return select(Model.name).where(Model.published, here, ~other).order_by(Model.position, Model.id)


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

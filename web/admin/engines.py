"""Administration: where models run, and which of them people may use."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.core.db import Session, after_commit
from backend.core.errors import BadInput
from backend.core.i18n import _
from backend.core.text import clean
from backend.engines import queries, service
from backend.engines.events import Failure
from backend.engines.models import Deployment, Engine, Model, Source
from backend.engines.registry import EngineStatus, Registry
from backend.engines.snapshot import DeploymentStatus, status_of
from web.dependencies import Models
from web.forms import plain_form
from web.rendering import page, partial

router = APIRouter(dependencies=[Depends(plain_form)])

_KINDS = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "trtllm": "TensorRT-LLM",
    "llamacpp": "llama.cpp",
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
    "tgi": "TGI",
    "openai": _("OpenAI-compatible"),
}


@dataclass(frozen=True)
class ModelRow:
    """What an engine calls a model, under the name people know or would know."""

    deployment_id: UUID
    model_id: UUID | None
    name: str
    upstream_name: str
    context_length: int | None
    published: bool
    missing: bool
    joins: bool  # publishing adds the engine to a model that is there already


@dataclass(frozen=True)
class EngineRow:
    id: UUID
    name: str
    url: str
    kind: str
    version: str | None
    source: Source
    enabled: bool
    state: str  # good, warn, bad, off
    word: str
    sentence: str
    since: datetime | None
    models: list[ModelRow]


@dataclass(frozen=True)
class Found:
    """A server on this machine that is no engine yet."""

    name: str
    url: str
    port: int | None


@dataclass(frozen=True)
class AddForm:
    """What was typed into the form that adds an engine; a key is never shown again."""

    name: str = ""
    url: str = ""


@dataclass(frozen=True)
class ChangeForm:
    """What was typed into the form that changes one engine, and what is wrong with it."""

    engine_id: UUID
    url: str
    errors: dict[str, str]


async def _engine(engine_id: UUID, session: Session) -> Engine:
    return await service.find_engine(session, engine_id)


async def _deployment(deployment_id: UUID, session: Session) -> Deployment:
    return await service.find_deployment(session, deployment_id)


async def _model(model_id: UUID, session: Session) -> Model:
    return await service.find_model(session, model_id)


OneEngine = Annotated[Engine, Depends(_engine)]
OneDeployment = Annotated[Deployment, Depends(_deployment)]
OneModel = Annotated[Model, Depends(_model)]


@router.get("/admin/engines")
async def engines(request: Request, session: Session, registry: Models) -> HTMLResponse:
    """The whole page, or for htmx only the list: it asks again while an engine has not been looked at."""
    if request.headers.get("hx-request"):
        return partial(request, "admin/_engines.html", **await _list(session, registry))
    return await _page(request, session, registry)


@router.post("/admin/engines")
async def add(
    request: Request,
    session: Session,
    registry: Models,
    name: Annotated[str, Form()] = "",
    url: Annotated[str, Form()] = "",
    api_key: Annotated[str, Form()] = "",
) -> Response:
    try:
        async with session.begin_nested():
            await service.add_engine(
                session, registry.allowed, registry.sealer, name=name, url=clean(url), api_key=clean(api_key)
            )
    except BadInput as error:
        form = AddForm(clean(name), clean(url))
        return await _page(request, session, registry, status=error.status, errors=error.fields, form=form)
    return _done(session, registry)


@router.post("/admin/engines/{engine_id}")
async def change(
    request: Request,
    engine: OneEngine,
    session: Session,
    registry: Models,
    url: Annotated[str, Form()] = "",
    api_key: Annotated[str, Form()] = "",
) -> Response:
    try:
        await service.change_engine(
            session, registry.allowed, registry.sealer, engine, url=clean(url), api_key=clean(api_key)
        )
    except BadInput as error:
        form = ChangeForm(engine.id, clean(url), error.fields)
        return await _page(request, session, registry, status=error.status, change_form=form)
    return _done(session, registry)


@router.post("/admin/engines/{engine_id}/enable")
async def enable(engine: OneEngine, session: Session, registry: Models) -> Response:
    service.enable(engine)
    return _done(session, registry)


@router.post("/admin/engines/{engine_id}/disable")
async def disable(engine: OneEngine, session: Session, registry: Models) -> Response:
    service.disable(engine)
    return _done(session, registry)


@router.post("/admin/engines/{engine_id}/remove")
async def remove(engine: OneEngine, session: Session, registry: Models) -> Response:
    await service.remove(session, engine)
    return _done(session, registry)


@router.post("/admin/deployments/{deployment_id}/publish")
async def publish(deployment: OneDeployment, session: Session, registry: Models) -> Response:
    await service.publish(session, deployment)
    return _done(session, registry)


@router.post("/admin/models/{model_id}/unpublish")
async def unpublish(model: OneModel, session: Session, registry: Models) -> Response:
    service.unpublish(model)
    return _done(session, registry)


def _done(session: AsyncSession, registry: Registry) -> Response:
    after_commit(session, registry.wake)
    return RedirectResponse("/admin/engines", status_code=303)


async def _page(
    request: Request,
    session: AsyncSession,
    registry: Registry,
    *,
    status: int = 200,
    errors: dict[str, str] | None = None,
    form: AddForm | None = None,
    change_form: ChangeForm | None = None,
) -> HTMLResponse:
    return page(
        request,
        "admin/engines.html",
        status=status,
        found=[Found(server.name, server.url, urlsplit(server.url).port) for server in registry.local],
        errors=errors or {},
        form=form or AddForm(),
        **await _list(session, registry, change_form),
    )


async def _list(session: AsyncSession, registry: Registry, change_form: ChangeForm | None = None) -> dict[str, Any]:
    """The rows as this transaction sees them, which is sooner than the registry, and how the engines are."""
    rows = await session.scalars(queries.everything())
    found = [status_of(engine, registry.health(engine.id)) for engine in rows]
    names = {deployment.model_name for engine in found for deployment in engine.deployments if deployment.model_name}
    return {
        "engines": [_row(engine, names) for engine in found],
        "change_form": change_form,
        "looking": any(engine.enabled and engine.health.checked_at is None for engine in found),
    }


def _row(engine: EngineStatus, names: set[str]) -> EngineRow:
    state, word = _state(engine)
    return EngineRow(
        id=engine.id,
        name=engine.name,
        url=engine.url,
        kind=_KINDS.get(engine.kind or "", engine.kind or ""),
        version=engine.version,
        source=engine.source,
        enabled=engine.enabled,
        state=state,
        word=word,
        sentence=_sentence(engine),
        since=engine.health.since if engine.enabled else None,
        models=[_model_row(deployment, names) for deployment in engine.deployments],
    )


def _state(engine: EngineStatus) -> tuple[str, str]:
    if not engine.enabled:
        return "off", _("Out of service")
    if engine.health.problem is None:
        return ("good", _("Healthy")) if engine.health.checked_at else ("off", _("Not looked at yet"))
    if engine.health.kind is Failure.LOADING:
        return "warn", _("Starting")
    return "bad", _("Key refused") if engine.health.kind is Failure.AUTH else _("Not reachable")


def _sentence(engine: EngineStatus) -> str:
    if not engine.enabled and engine.source is not Source.DATABASE:
        return _("The deployment no longer names this engine.")
    if not engine.enabled:
        return _("It gets no questions until you put it into service.")
    if engine.health.problem or not engine.health.checked_at:
        return engine.health.problem or ""
    if not engine.deployments:
        return _("It answers, but has no models.")
    if not any(deployment.published for deployment in engine.deployments):
        return _("Publish a model, so that people can choose it.")
    return ""


def _model_row(deployment: DeploymentStatus, names: set[str]) -> ModelRow:
    return ModelRow(
        deployment_id=deployment.id,
        model_id=deployment.model_id,
        name=deployment.model_name or deployment.proposed_name,
        upstream_name=deployment.upstream_name,
        context_length=deployment.context_length,
        published=deployment.published,
        missing=deployment.missing_since is not None,
        joins=deployment.model_id is None and deployment.proposed_name in names,
    )

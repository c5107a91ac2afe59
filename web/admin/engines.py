"""Administration: where models run, and which of them people may use."""

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.core.db import Session
from backend.core.errors import BadInput
from backend.core.text import clean
from backend.engines import publishing, queries, service
from backend.engines.checking import TEST_SECONDS, Report, check_connection
from backend.engines.registry import Registry
from backend.engines.snapshot import status_of
from web.admin.dependencies import OneDeployment, OneModel
from web.admin.engine_rows import engine_row, kind_choices, refused
from web.dependencies import Models
from web.errors import safe_next
from web.forms import plain_form
from web.rendering import page, partial

router = APIRouter(dependencies=[Depends(plain_form)])


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
    kind: str = ""
    api_key: str = ""


async def _typed(
    name: Annotated[str, Form()] = "",
    url: Annotated[str, Form()] = "",
    api_key: Annotated[str, Form()] = "",
    kind: Annotated[str, Form()] = "",
) -> AddForm:
    return AddForm(clean(name), clean(url), clean(kind), clean(api_key).strip())


Typed = Annotated[AddForm, Depends(_typed)]


@router.get("/admin/engines")
async def engines(request: Request, session: Session, registry: Models) -> HTMLResponse:
    """The whole page, or for htmx only the list: it asks again, more often while an engine has not been looked at."""
    if request.headers.get("hx-request"):
        return partial(request, "admin/_engines.html", **await _list(session, registry))
    return await _page(request, session, registry)


@router.post("/admin/engines")
async def add(request: Request, session: Session, registry: Models, form: Typed) -> Response:
    try:
        async with session.begin_nested():
            await service.add_engine(
                session,
                registry.allowed,
                registry.sealer,
                name=form.name,
                url=form.url,
                api_key=form.api_key,
                kind=form.kind,
            )
    except BadInput as error:
        return await _page(request, session, registry, status=error.status, errors=error.fields, form=form)
    return RedirectResponse("/admin/engines", status_code=303)


@router.post("/admin/engines/test")
async def test_new(request: Request, registry: Models, form: Typed) -> HTMLResponse:
    """What answers there, before anything is saved. No transaction is open while the engine is waited for."""
    return partial(request, "admin/_engine_test.html", report=await tested(registry, form))


async def tested(registry: Registry, form: AddForm) -> Report:
    try:
        service.check_key(form.api_key)
        return await check_connection(form.url, form.api_key, kind=form.kind or None, allowed=registry.allowed)
    except BadInput as error:
        return refused(str(error))


@router.post("/admin/deployments/{deployment_id}/publish")
async def publish(
    deployment: OneDeployment,
    session: Session,
    target: Annotated[str, Form(alias="next")] = "/admin/engines",
    trial: Annotated[bool, Form()] = False,
) -> Response:
    """On trial it leads to where one says who gets it."""
    model = await publishing.publish(session, deployment, on_trial=trial)
    if trial:
        return RedirectResponse(f"/admin/models/{model.id}#trial", status_code=303)
    return RedirectResponse(safe_next(target), status_code=303)


@router.post("/admin/deployments/{deployment_id}/leave")
async def leave(
    deployment: OneDeployment, session: Session, target: Annotated[str, Form(alias="next")] = "/admin/engines"
) -> Response:
    """Off this engine only."""
    await publishing.leave(session, deployment)
    return RedirectResponse(safe_next(target), status_code=303)


@router.post("/admin/models/{model_id}/unpublish")
async def unpublish(
    model: OneModel, session: Session, target: Annotated[str, Form(alias="next")] = "/admin/engines"
) -> Response:
    await publishing.unpublish(session, model)
    return RedirectResponse(safe_next(target), status_code=303)


async def _page(
    request: Request,
    session: AsyncSession,
    registry: Registry,
    *,
    status: int = 200,
    errors: dict[str, str] | None = None,
    form: AddForm | None = None,
) -> HTMLResponse:
    form = form or AddForm()
    return page(
        request,
        "admin/engines.html",
        status=status,
        found=[Found(server.name, server.url, urlsplit(server.url).port) for server in registry.local],
        errors=errors or {},
        form=form,
        kinds=kind_choices(form.kind),
        seconds=f"{TEST_SECONDS:g}",
        **await _list(session, registry),
    )


async def _list(session: AsyncSession, registry: Registry) -> dict[str, Any]:
    """The rows as this transaction sees them, which is sooner than the registry, and how the engines are."""
    rows = await session.scalars(queries.everything())
    found = [status_of(engine, registry.health(engine.id)) for engine in rows]
    names = {deployment.model_name for engine in found for deployment in engine.deployments if deployment.model_name}
    shared = set(await session.scalars(queries.on_several_engines()))
    return {
        "engines": [engine_row(engine, names, load=registry.load(engine.id), shared=shared) for engine in found],
        "looking": any(engine.enabled and engine.health.checked_at is None for engine in found),
    }

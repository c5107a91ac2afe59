"""Administration: one engine. How it is, what it has loaded, its settings, and everything that can be done with it."""

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.datastructures import URL
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.core.db import Session
from backend.core.errors import BadInput, Conflict, NotFound
from backend.core.i18n import _
from backend.core.text import clean
from backend.engines import addresses, dialects, keys, publishing, queries, service
from backend.engines.checking import TEST_SECONDS, Finding, Report, Verdict, check_connection
from backend.engines.memory import Change, Memory
from backend.engines.models import Engine, Source
from backend.engines.registry import Registry
from backend.engines.snapshot import status_of
from web.admin.engine_rows import engine_row, kind_choices, refused
from web.admin.sparks import readings
from web.dependencies import AllSessions, Models
from web.forms import plain_form
from web.rendering import page, partial

router = APIRouter(dependencies=[Depends(plain_form)])

_PATIENCE = 3.0
"""Seconds for which a load or an unload is waited for before the page says that it goes on."""


@dataclass(frozen=True)
class ChangeForm:
    """The settings of an engine as stored or as typed; a key is never shown again."""

    name: str
    url: str
    kind: str
    external: bool
    priorities: bool
    session_header: str
    api_key: str = ""


@dataclass(frozen=True)
class Question:
    """What has to be said before models are unloaded."""

    model: str
    sentence: str


async def _engine(engine_id: UUID, session: Session) -> Engine:
    return await service.find_engine(session, engine_id)


async def _typed(
    name: Annotated[str, Form()] = "",
    url: Annotated[str, Form()] = "",
    api_key: Annotated[str, Form()] = "",
    kind: Annotated[str, Form()] = "",
    external: Annotated[str, Form()] = "",
    priorities: Annotated[str, Form()] = "",
    session_header: Annotated[str, Form()] = "",
) -> ChangeForm:
    return ChangeForm(
        clean(name),
        clean(url),
        clean(kind),
        bool(external),
        bool(priorities),
        clean(session_header),
        clean(api_key).strip(),
    )


OneEngine = Annotated[Engine, Depends(_engine)]
Typed = Annotated[ChangeForm, Depends(_typed)]


@router.get("/admin/engines/{engine_id}")
async def one(
    request: Request, engine: OneEngine, session: Session, registry: Models, saved: str = "", unload: str = ""
) -> HTMLResponse:
    """The whole page, or for htmx only what changes by itself."""
    if request.headers.get("hx-request"):
        return partial(request, "admin/_engine_now.html", **await _now(session, registry, engine))
    return await _page(request, session, registry, engine, saved=bool(saved), asked=unload)


@router.post("/admin/engines/{engine_id}")
async def change(request: Request, engine: OneEngine, session: Session, registry: Models, form: Typed) -> Response:
    try:
        async with session.begin_nested():
            await service.change_engine(
                session,
                registry.allowed,
                registry.sealer,
                engine,
                name=form.name,
                url=form.url,
                api_key=form.api_key,
                kind=form.kind,
                external=form.external,
                priorities=form.priorities,
                session_header=form.session_header,
            )
    except BadInput as error:
        await session.refresh(engine)
        return await _page(request, session, registry, engine, status=error.status, errors=error.fields, form=form)
    return await _done(session, engine, "?saved=1")


@router.post("/admin/engines/{engine_id}/test")
async def test(request: Request, engine_id: UUID, sessions: AllSessions, registry: Models, form: Typed) -> HTMLResponse:
    """With what the form says now. No transaction is open while the engine is waited for."""
    async with sessions.begin() as session:
        engine = await service.find_engine(session, engine_id)
    report = await _tested(registry, engine, form)
    if request.headers.get("hx-request"):
        return partial(request, "admin/_engine_test.html", report=report)
    async with sessions.begin() as session:
        engine = await service.find_engine(session, engine_id)
        return await _page(request, session, registry, engine, form=form, report=report)


@router.post("/admin/engines/{engine_id}/enable")
async def enable(engine: OneEngine, session: Session) -> Response:
    service.enable(engine)
    return await _done(session, engine)


@router.post("/admin/engines/{engine_id}/disable")
async def disable(engine: OneEngine, session: Session) -> Response:
    service.disable(engine)
    return await _done(session, engine)


@router.post("/admin/engines/{engine_id}/drain")
async def drain(engine: OneEngine, session: Session) -> Response:
    service.drain(engine)
    return await _done(session, engine)


@router.post("/admin/engines/{engine_id}/undrain")
async def undrain(engine: OneEngine, session: Session) -> Response:
    service.undrain(engine)
    return await _done(session, engine)


@router.post("/admin/engines/{engine_id}/remove")
async def remove(engine: OneEngine, session: Session) -> Response:
    await service.remove(session, engine)
    await service.changed(session)
    return RedirectResponse("/admin/engines", status_code=303)


@router.post("/admin/engines/{engine_id}/load")
async def load(
    engine_id: UUID, registry: Models, model: Annotated[str, Form()] = "", keep: Annotated[str, Form()] = ""
) -> Response:
    return await _begin(registry, engine_id, Change.KEEP if keep else Change.LOAD, model)


@router.post("/admin/engines/{engine_id}/unload")
async def unload(
    engine_id: UUID, registry: Models, model: Annotated[str, Form()] = "", sure: Annotated[str, Form()] = ""
) -> Response:
    """Asks first where it could cut answers, or takes other models with it."""
    if not sure and _before_unloading(registry, engine_id, model):
        return RedirectResponse(str(_address(engine_id).include_query_params(unload=model)), status_code=303)
    return await _begin(registry, engine_id, Change.UNLOAD, model)


async def _begin(registry: Registry, engine_id: UUID, change: Change, model: str) -> Response:
    """Nobody waits until a large model is loaded: after some seconds the page says that it goes on."""
    memory = registry.memory(engine_id)
    if memory is None:
        raise Conflict(_("This engine is not in service."))
    engine = next((each for each in registry.engines if each.id == engine_id), None)
    known = {deployment.upstream_name for deployment in engine.deployments} if engine else set()
    if memory.models is None or model not in known:
        raise NotFound(_("The engine has no such model, or cannot be told to load it."))
    memory.begin(change, model)
    await memory.until_quiet(_PATIENCE)
    return RedirectResponse(str(_address(engine_id)), status_code=303)


def _before_unloading(registry: Registry, engine_id: UUID, model: str) -> str:
    """What has to be considered; empty where nothing has."""
    memory, client = registry.memory(engine_id), registry.client(engine_id)
    lifecycle = client.dialect.lifecycle if client else None
    if memory is None or lifecycle is None or model not in {held.name for held in memory.models or ()}:
        return ""
    running = _running_words(registry, engine_id)
    if lifecycle.whole:
        others = ", ".join(held.name for held in memory.models or () if held.name != model)
        return " ".join(
            filter(
                None,
                (
                    _("The engine puts all of its models to sleep at once."),
                    _("These go with it: {models}.").format(models=others) if others else "",
                    running,
                    _("Answers that are being written end first, and nothing new goes there until you wake it."),
                ),
            )
        )
    return f"{running} {_('Answers that the model is writing may be cut off.')}" if running else ""


def _running_words(registry: Registry, engine_id: UUID) -> str:
    ours, told = registry.traffic.running_on(engine_id), registry.load(engine_id)
    running = max(ours, told.running or 0 if told else 0)
    if not running:
        return ""
    return _("One answer runs there.") if running == 1 else _("{count} answers run there.").format(count=running)


async def _tested(registry: Registry, engine: Engine, form: ChangeForm) -> Report:
    if engine.source is not Source.DATABASE:
        key = keys.to_send(registry.sealer, engine, engine.url, "")
        return await check_connection(engine.url, key, kind=engine.forced_kind, allowed=None)
    if not service.is_sendable(form.api_key):
        return refused(_("This is not an API key: it has spaces or unusual characters, or is too long."))
    try:
        url = addresses.parse(form.url.strip()).url
        key = keys.to_send(registry.sealer, engine, url, form.api_key)
        same = addresses.origin(url) == addresses.origin(engine.url)
        report = await check_connection(
            url,
            key,
            kind=form.kind or None,
            allowed=registry.allowed,
            answered_before=same and engine.kind is not None,
        )
    except BadInput as error:
        return refused(str(error))
    if engine.sealed_api_key and key is None:
        stays = _("The stored key was not sent: it belongs to the address that it was entered for.")
        kept = Finding(Verdict.NOTE, stays, _("Enter it again, if this engine wants one."))
        return Report((*report.findings, kept), report.models)
    return report


async def _done(session: AsyncSession, engine: Engine, query: str = "") -> Response:
    """Every process reads the rows again once they are committed."""
    await service.changed(session)
    return RedirectResponse(f"/admin/engines/{engine.id}{query}", status_code=303)


async def _page(
    request: Request,
    session: AsyncSession,
    registry: Registry,
    engine: Engine,
    *,
    status: int = 200,
    saved: bool = False,
    asked: str = "",
    errors: dict[str, str] | None = None,
    form: ChangeForm | None = None,
    report: Report | None = None,
) -> HTMLResponse:
    form = form or ChangeForm(
        engine.name,
        engine.url,
        engine.forced_kind or "",
        engine.external,
        engine.priorities,
        engine.session_header,
    )
    before = _before_unloading(registry, engine.id, asked) if asked else ""
    return page(
        request,
        "admin/engine.html",
        status=status,
        saved=saved,
        errors=errors or {},
        form=form,
        kinds=kind_choices(form.kind),
        has_key=engine.sealed_api_key is not None,
        report=report,
        seconds=f"{TEST_SECONDS:g}",
        question=Question(asked, before) if before else None,
        orphans=list(await session.scalars(queries.last_engine_of(engine.id))),
        can_prioritise=dialects.of(engine.spoken_kind).priority is not None,
        **await _now(session, registry, engine),
    )


async def _now(session: AsyncSession, registry: Registry, engine: Engine) -> dict[str, Any]:
    """What changes by itself."""
    engine = (await session.scalars(queries.whole_engine(engine.id))).one()
    names = [model.name for model in await session.scalars(queries.models())]
    astray = {deployment.id for deployment in engine.deployments if publishing.departures(deployment)}
    memory = registry.memory(engine.id)
    status = status_of(engine, registry.health(engine.id))
    loads = registry.loads(engine.id) if engine.enabled else ()
    return {
        "engine": engine_row(status, names, load=registry.load(engine.id), memory=memory, astray=astray),
        "readings": readings(loads, f"engine-{engine.id}"),
        "read_at": loads[-1].at if loads else None,
        "running": registry.traffic.running_on(engine.id),
        "memory": _told(memory),
    }


def _told(memory: Memory | None) -> Memory | None:
    return memory if memory is not None and memory.models is not None else None


def _address(engine_id: UUID) -> URL:
    return URL(f"/admin/engines/{engine_id}")

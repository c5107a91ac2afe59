"""Administration: one engine. How it is, its settings, and what can be done with it; what it has loaded is changed in
`engine_memory.py`."""

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.core.db import Session
from backend.core.errors import BadInput
from backend.core.i18n import _
from backend.core.text import clean
from backend.engines import addresses, dialects, keys, publishing, queries, service
from backend.engines.checking import TEST_SECONDS, Finding, Report, Verdict, check_connection
from backend.engines.memory import Memory
from backend.engines.models import Engine, Source
from backend.engines.registry import Registry
from backend.engines.snapshot import status_of
from web.admin.engine_memory import question
from web.admin.engine_rows import engine_row, kind_choices, refused
from web.admin.sparks import readings
from web.dependencies import AllSessions, Models
from web.forms import plain_form
from web.rendering import page, partial

router = APIRouter(dependencies=[Depends(plain_form)])


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
    return _back_to(engine, "?saved=1")


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
    await service.enable(session, engine)
    return _back_to(engine)


@router.post("/admin/engines/{engine_id}/disable")
async def disable(engine: OneEngine, session: Session) -> Response:
    await service.disable(session, engine)
    return _back_to(engine)


@router.post("/admin/engines/{engine_id}/drain")
async def drain(engine: OneEngine, session: Session) -> Response:
    await service.drain(session, engine)
    return _back_to(engine)


@router.post("/admin/engines/{engine_id}/undrain")
async def undrain(engine: OneEngine, session: Session) -> Response:
    await service.undrain(session, engine)
    return _back_to(engine)


@router.post("/admin/engines/{engine_id}/remove")
async def remove(engine: OneEngine, session: Session) -> Response:
    await service.remove(session, engine)
    return RedirectResponse("/admin/engines", status_code=303)


async def _tested(registry: Registry, engine: Engine, form: ChangeForm) -> Report:
    if engine.source is not Source.DATABASE:
        key = keys.to_send(registry.sealer, engine, engine.url, "")
        return await check_connection(engine.url, key, kind=engine.forced_kind, allowed=None)
    try:
        service.check_key(form.api_key)
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


def _back_to(engine: Engine, query: str = "") -> Response:
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
        question=question(registry, engine.id, asked),
        orphans=list(await session.scalars(queries.last_engine_of(engine.id))),
        can_prioritise=dialects.of(engine.spoken_kind).priority is not None,
        **await _now(session, registry, engine),
    )


async def _now(session: AsyncSession, registry: Registry, engine: Engine) -> dict[str, Any]:
    """What changes by itself."""
    engine = (await session.scalars(queries.whole_engine(engine.id))).one()
    names = [model.name for model in await session.scalars(queries.models())]
    astray = {deployment.id for deployment in engine.deployments if publishing.departures(deployment)}
    shared = set(await session.scalars(queries.on_several_engines()))
    memory = registry.memory(engine.id)
    status = status_of(engine, registry.health(engine.id))
    loads = registry.loads(engine.id) if engine.enabled else ()
    return {
        "engine": engine_row(status, names, load=registry.load(engine.id), memory=memory, astray=astray, shared=shared),
        "readings": readings(loads, f"engine-{engine.id}"),
        "read_at": loads[-1].at if loads else None,
        "running": registry.traffic.running_on(engine.id),
        "memory": _told(memory),
    }


def _told(memory: Memory | None) -> Memory | None:
    return memory if memory is not None and memory.models is not None else None

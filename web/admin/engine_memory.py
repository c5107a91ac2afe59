"""Administration: have an engine load a model or let it go, and ask first where that could cut answers."""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Request
from starlette.datastructures import URL
from starlette.responses import RedirectResponse, Response

from backend.audit import service as audit
from backend.audit.acting import Actor, act_as
from backend.audit.service import Action
from backend.core.db import Sessions
from backend.core.errors import Conflict, NotFound
from backend.core.i18n import _
from backend.engines.memory import Change
from backend.engines.registry import Registry
from web.dependencies import AllSessions, Models
from web.forms import plain_form

router = APIRouter(dependencies=[Depends(plain_form)])

_PATIENCE = 3.0
"""Seconds for which a load or an unload is waited for before the page says that it goes on."""


@dataclass(frozen=True)
class Question:
    """What has to be said before models are unloaded."""

    model: str
    sentence: str


@router.post("/admin/engines/{engine_id}/load")
async def load(
    request: Request,
    engine_id: UUID,
    registry: Models,
    sessions: AllSessions,
    model: Annotated[str, Form()] = "",
    keep: Annotated[str, Form()] = "",
) -> Response:
    change = Change.KEEP if keep else Change.LOAD
    return await _begin(registry, sessions, request.state.actor, engine_id, change, model)


@router.post("/admin/engines/{engine_id}/unload")
async def unload(
    request: Request,
    engine_id: UUID,
    registry: Models,
    sessions: AllSessions,
    model: Annotated[str, Form()] = "",
    sure: Annotated[str, Form()] = "",
) -> Response:
    """Asks first where it could cut answers, or takes other models with it."""
    if not sure and question(registry, engine_id, model):
        return RedirectResponse(str(_address(engine_id).include_query_params(unload=model)), status_code=303)
    return await _begin(registry, sessions, request.state.actor, engine_id, Change.UNLOAD, model)


def question(registry: Registry, engine_id: UUID, model: str) -> Question | None:
    """None where nothing has to be considered, or nothing was asked."""
    sentence = _before_unloading(registry, engine_id, model)
    return Question(model, sentence) if sentence else None


async def _begin(
    registry: Registry, sessions: Sessions, actor: Actor, engine_id: UUID, change: Change, model: str
) -> Response:
    """Nobody waits until a large model is loaded: after some seconds the page says that it goes on."""
    memory = registry.memory(engine_id)
    if memory is None:
        raise Conflict(_("This engine is not in service."))
    engine = next((each for each in registry.engines if each.id == engine_id), None)
    known = {deployment.upstream_name for deployment in engine.deployments} if engine else set()
    if memory.models is None or model not in known:
        raise NotFound(_("The engine has no such model, or cannot be told to load it."))
    memory.require_idle()
    # That it was asked for is recorded first: what could not be recorded is not begun. What came of it, the page says.
    async with sessions.begin() as session:
        act_as(session, actor)
        asked = Action.ENGINE_UNLOAD if change is Change.UNLOAD else Action.ENGINE_LOAD
        target = audit.Target("engine", engine_id, engine.name if engine else "")
        await audit.record(session, asked, target, after={"model": model})
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


def _address(engine_id: UUID) -> URL:
    return URL(f"/admin/engines/{engine_id}")

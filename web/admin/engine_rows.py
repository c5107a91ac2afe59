"""Engines and their models as the pages of the administration show them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from backend.core.i18n import _
from backend.engines import dialects
from backend.engines.checking import Finding, Report, Verdict
from backend.engines.dialects import LoadedModel, ModelState
from backend.engines.events import Failure
from backend.engines.memory import Memory
from backend.engines.metrics import Load
from backend.engines.models import Source
from backend.engines.registry import EngineStatus
from backend.engines.snapshot import DeploymentStatus
from web.admin.kinds import kind_name
from web.admin.sparks import in_a_line
from web.forms import Choice


@dataclass(frozen=True)
class ModelRow:
    """What an engine calls a model, under the name people know or would know, and whether it is in memory."""

    deployment_id: UUID
    model_id: UUID | None
    name: str
    upstream_name: str
    context_length: int | None
    published: bool
    missing: bool
    joins: bool  # publishing adds the engine to a model that is there already
    elsewhere: bool  # another engine has it, too
    astray: bool = False  # not what it was pinned to
    memory: str = ""  # a word on it; empty where the engine does not tell
    memory_state: str = ""  # the class of that word
    until: datetime | None = None  # then it will be unloaded
    gpu_bytes: int | None = None
    can_load: bool = False
    can_keep: bool = False
    can_unload: bool = False


@dataclass(frozen=True)
class EngineRow:
    id: UUID
    name: str
    url: str
    kind: str
    version: str | None
    source: Source
    enabled: bool
    draining: bool
    external: bool
    state: str  # good, warn, bad, off
    word: str
    sentence: str
    since: datetime | None
    load: str  # in one line
    models: list[ModelRow]


def engine_row(
    engine: EngineStatus,
    names: Collection[str],
    *,
    load: Load | None = None,
    memory: Memory | None = None,
    astray: Collection[UUID] = (),
    shared: Collection[UUID] = (),
) -> EngineRow:
    """`names` of models there are, `astray` those deployments that are not what they were pinned to, `shared` the
    models that several engines have."""
    state, word = _state(engine)
    return EngineRow(
        id=engine.id,
        name=engine.name,
        url=engine.url,
        kind=kind_name(engine.kind),
        version=engine.version,
        source=engine.source,
        enabled=engine.enabled,
        draining=engine.draining,
        external=engine.external,
        state=state,
        word=word,
        sentence=_sentence(engine),
        since=engine.health.since if engine.enabled else None,
        load=in_a_line(load) if engine.enabled else "",
        models=[
            _model_row(each, names, engine.kind, memory, astray=each.id in astray, elsewhere=each.model_id in shared)
            for each in engine.deployments
        ],
    )


def kind_choices(chosen: str | None) -> list[Choice]:
    known = [Choice(str(dialect.kind), dialect.name, dialect.kind == chosen) for dialect in dialects.ALL.values()]
    return [Choice("", _("Find out"), not chosen), *sorted(known, key=lambda choice: choice.label.lower())]


def refused(sentence: str) -> Report:
    """The report on an address that may not be asked at all."""
    return Report((Finding(Verdict.BAD, sentence),))


def _state(engine: EngineStatus) -> tuple[str, str]:
    if not engine.enabled:
        return "off", _("Out of service")
    if engine.health.problem is None and engine.draining:
        return "warn", _("Drained")
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
    if engine.draining:
        return _("It gets no new questions until you end the draining. Answers that run there end as they would have.")
    if not engine.deployments:
        return _("It answers, but has no models.")
    if not any(deployment.published for deployment in engine.deployments):
        return _("Publish a model, so that people can choose it.")
    return ""


def _model_row(
    deployment: DeploymentStatus,
    names: Collection[str],
    kind: str | None,
    memory: Memory | None,
    *,
    astray: bool,
    elsewhere: bool,
) -> ModelRow:
    held = _held(deployment.upstream_name, memory.models or ()) if memory else None
    word, state = _in_memory(held, memory)
    lifecycle = dialects.of(kind).lifecycle
    free = held is not None and memory is not None and memory.work is None
    is_loaded = held is not None and held.state in (ModelState.LOADED, ModelState.LOADING)
    return ModelRow(
        deployment_id=deployment.id,
        model_id=deployment.model_id,
        name=deployment.model_name or deployment.proposed_name,
        upstream_name=deployment.upstream_name,
        context_length=deployment.context_length,
        published=deployment.published,
        missing=deployment.missing_since is not None,
        joins=deployment.model_id is None and deployment.proposed_name in names,
        elsewhere=elsewhere,
        astray=astray,
        memory=word,
        memory_state=state,
        until=held.until if held else None,
        gpu_bytes=held.gpu_bytes if held else None,
        can_load=free and not is_loaded,
        can_keep=free and lifecycle is not None and lifecycle.keeps_warm,
        can_unload=free and is_loaded,
    )


def _held(name: str, models: Iterable[LoadedModel]) -> LoadedModel | None:
    return next((model for model in models if model.name == name), None)


def _in_memory(held: LoadedModel | None, memory: Memory | None) -> tuple[str, str]:
    if held is None or memory is None:
        return "", ""
    if memory.work and memory.work.model == held.name:
        return (_("Is being unloaded"), "warn") if memory.work.change == "unload" else (_("Is being loaded"), "warn")
    return {
        ModelState.LOADED: (_("Loaded"), ""),
        ModelState.LOADING: (_("Is being loaded"), "warn"),
        ModelState.UNLOADED: (_("Not loaded"), "off"),
        ModelState.SLEEPING: (_("Asleep"), "off"),
    }[held.state]

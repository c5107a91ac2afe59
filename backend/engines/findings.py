"""What the probes found becomes rows: deployments, and the first models people see."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.audit import service as audit
from backend.audit.service import Action, Target
from backend.core.clock import now
from backend.core.i18n import _
from backend.core.ids import new_id
from backend.engines import dialects, queries
from backend.engines.kinds import Kind
from backend.engines.models import Deployment, Engine, Model, Source
from backend.engines.pages import UpstreamModel

T = TypeVar("T")

MAX_NAME = 100  # of a model, as in its table

CANNOT_CHAT = re.compile(r"embed|rerank|whisper|\bbge\b", re.IGNORECASE)
"""What else lives behind the same list."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Kind and version are None where they were not asked for."""

    kind: str | None
    version: str | None
    models: Sequence[UpstreamModel]


async def store(session: AsyncSession, engine_id: UUID, findings: Findings, *, publish: bool) -> None:
    """Remember what an engine lists. A name that is new is published or waits for an admin, as `publish` says.

    A name that is known keeps what admins made of it. One that is no longer listed is kept and marked.
    """
    # Locked, because every process looks: the second one sees what the first has added.
    engine = await session.scalar(queries.engine(engine_id).with_for_update(key_share=True))
    if engine is None:
        return
    before = engine.kind, engine.version
    engine.kind, engine.version = findings.kind or engine.kind, findings.version or engine.version
    engine.external = engine.external or engine.kind == Kind.HOSTED
    listed = {model.id: model for model in findings.models}
    known = set()
    for deployment in await session.scalars(queries.deployments_of(engine_id)):
        known.add(deployment.upstream_name)
        found = listed.get(deployment.upstream_name)
        # Another engine, or another model under an old name: what was proved then is to be proved again.
        is_other = found is not None and _or(found.revision, deployment.revision) != deployment.revision
        if (engine.kind, engine.version) != before or deployment.missing_since is not None or is_other:
            deployment.continues = deployment.sees = deployment.thinks = None
        _update(deployment, found)
    for name, model in listed.items():
        if name not in known:
            for_everybody = not CANNOT_CHAT.search(name) and dialects.of(engine.spoken_kind).has(name)
            await _add(session, engine, model, publish and for_everybody)


def is_news(engine: Engine, findings: Findings) -> bool:
    """Whether `store` would change anything; with the deployments of `engine` loaded."""
    if (findings.kind or engine.kind) != engine.kind or (findings.version or engine.version) != engine.version:
        return True
    listed = {model.id: model for model in findings.models}
    known = {deployment.upstream_name for deployment in engine.deployments}
    return bool(listed.keys() - known) or any(
        _differs(deployment, listed.get(deployment.upstream_name)) for deployment in engine.deployments
    )


def display_name(upstream_name: str, *, embedded: bool = False) -> str:
    """What people read: the last part of a path, or the proper name of the model that comes with Parley."""
    last = upstream_name.rstrip("/").rpartition("/")[2] or upstream_name
    if embedded and last.lower().startswith("smollm2-135m-instruct"):
        return "SmolLM2 135M"
    return last[:MAX_NAME]


def _differs(deployment: Deployment, listed: UpstreamModel | None) -> bool:
    if listed is None or deployment.missing_since:
        return (listed is None) != (deployment.missing_since is not None)
    return _facts(deployment, listed) != (deployment.context_length, deployment.revision, deployment.thinks)


def _facts(deployment: Deployment, listed: UpstreamModel) -> tuple[int | None, str | None, bool | None]:
    """Context, revision and thinking; what an engine does not tell this time stays as it was."""
    context = listed.context_length
    if listed.context_is_assumed:
        context = deployment.context_length or context  # it said better, when the model was loaded
    return (
        _or(context, deployment.context_length),
        _or(listed.revision, deployment.revision),
        _or(listed.thinks, deployment.thinks),
    )


def _or(told: T | None, known: T | None) -> T | None:
    return known if told is None else told


def _update(deployment: Deployment, listed: UpstreamModel | None) -> None:
    if listed is None:
        deployment.missing_since = deployment.missing_since or now()
        return
    deployment.missing_since = None
    deployment.context_length, deployment.revision, deployment.thinks = _facts(deployment, listed)


async def _add(session: AsyncSession, engine: Engine, found: UpstreamModel, publish: bool) -> None:
    models: list[UUID | None] = [None]
    if publish:
        models = [*await _publish(session, engine, found.id)] or models
    for model_id in models:
        session.add(
            Deployment(
                engine_id=engine.id,
                model_id=model_id,
                upstream_name=found.id,
                context_length=found.context_length,
                revision=found.revision,
                thinks=found.thinks,
            )
        )


async def _publish(session: AsyncSession, engine: Engine, upstream_name: str) -> list[UUID]:
    """The new models, or none where the name is taken: joining that model is an admin's decision."""
    embedded = engine.source is Source.EMBEDDED
    name = display_name(upstream_name, embedded=embedded)
    description = _("Small and quick, runs on this machine. Good for a first look.") if embedded else ""
    first = await _new_model(session, name, description)
    if first is None and name != upstream_name and len(upstream_name) <= MAX_NAME:
        first = await _new_model(session, upstream_name)  # `team/llama` beside `other/llama`
    if first is None or not embedded:
        return [first] if first else []
    # So that a newcomer with a single small model has something to switch to.
    second = await _new_model(
        session,
        _("{name}, brief").format(name=name[: MAX_NAME - 20]),
        _("The same model, told to answer in one or two sentences."),
        system_prompt="Answer in one or two short sentences.",
        temperature=0.2,
    )
    return [first, second] if second else [first]


async def _new_model(
    session: AsyncSession,
    name: str,
    description: str = "",
    *,
    system_prompt: str = "",
    temperature: float | None = None,
) -> UUID | None:
    last = await session.scalar(select(func.max(Model.position)))
    made = await session.scalar(
        insert(Model)
        .values(
            id=new_id(),
            created_at=now(),
            name=name,
            description=description,
            system_prompt=system_prompt,
            temperature=temperature,
            published=True,
            position=0 if last is None else last + 1,
        )
        .on_conflict_do_nothing()
        .returning(Model.id)
    )
    if made is not None:
        await audit.record(session, Action.MODEL_PUBLISHED, Target("model", made, name))
    return made

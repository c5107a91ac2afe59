"""What the page of one model is given: its form as it is or was typed, and what was found out about it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from sqlalchemy.ext.asyncio import AsyncSession

from backend.core.clock import now
from backend.core.i18n import _
from backend.engines import publishing, queries
from backend.engines.models import Deployment, Model, Stage
from backend.engines.parameters import ADJUSTABLE
from backend.engines.publishing import Wishes
from backend.engines.registry import Offer
from web.admin.kinds import kind_name
from web.admin.trial_view import STAGE_NAMES
from web.rendering import local


@dataclass(frozen=True)
class DeploymentRow:
    """Where a model runs, and whether that is what it should be."""

    id: UUID
    engine_id: UUID
    engine: str
    kind: str
    version: str | None
    upstream_name: str
    revision: str | None
    pinned: str
    departures: list[str]
    external: bool  # what is sent there leaves the building
    can_pin: bool  # the engine tells something, and it is not what is pinned
    stage: Stage
    stage_name: str
    problem: str  # why nothing is asked there at the moment
    can_try: bool  # something else is left for those who do not try it


COLOR_NAMES = {
    "": _("None"),
    "petrol": _("Petrol"),
    "blue": _("Blue"),
    "plum": _("Plum"),
    "amber": _("Amber"),
    "slate": _("Slate"),
}
THINKING_NAMES = {
    "": _("As the engine does"),
    "off": _("Off"),
    "on": _("On"),
    "low": _("A little"),
    "medium": _("Some"),
    "high": _("A lot"),
}
PARAMETER_NAMES = {
    "temperature": _("Temperature"),
    "max_tokens": _("Longest answer"),
    "thinking": _("Thinking"),
    "json": _("Answers in JSON"),
}


def typed(form: Any) -> Wishes:
    """A form of `admin/model.html`; each box has a name of its own, because a field comes only once."""
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    groups_ticked = {name.removeprefix("group-") for name in fields if name.startswith("group-")}
    return Wishes(
        name=fields.get("name", ""),
        description=fields.get("description", ""),
        color=fields.get("color", ""),
        system_prompt=fields.get("system_prompt", ""),
        temperature=fields.get("temperature", ""),
        max_tokens=fields.get("max_tokens", ""),
        thinking=fields.get("thinking", ""),
        adjustable=frozenset(name for name in ADJUSTABLE if fields.get(f"adjust-{name}")),
        for_everybody=fields.get("who") != "groups",
        groups=frozenset(id_ for id_ in map(_id, groups_ticked) if id_),
        max_concurrent=fields.get("max_concurrent", ""),
        maintenance_until=fields.get("maintenance_until", ""),
        retired=bool(fields.get("retired")),
        fallback=fields.get("fallback", ""),
    )


def _id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


async def as_it_is(session: AsyncSession, model: Model, zone: ZoneInfo) -> Wishes:
    return Wishes(
        name=model.name,
        description=model.description,
        color=model.color,
        system_prompt=model.system_prompt,
        temperature="" if model.temperature is None else f"{model.temperature:g}",
        max_tokens="" if model.max_tokens is None else str(model.max_tokens),
        thinking=model.thinking,
        adjustable=frozenset(model.adjustable),
        for_everybody=model.for_everybody,
        groups=frozenset(await session.scalars(queries.groups_of(model.id))),
        max_concurrent="" if model.max_concurrent is None else str(model.max_concurrent),
        maintenance_until=_written(model.maintenance_until, zone),
        retired=model.retired_at is not None,
        fallback=str(model.fallback_id or ""),
    )


def _written(moment: datetime | None, zone: ZoneInfo) -> str:
    """As `datetime-local` has it; what has passed is over."""
    return f"{local(moment, zone):%Y-%m-%dT%H:%M}" if moment is not None and moment > now() else ""


def facts(deployments: Sequence[Deployment]) -> list[tuple[str, str]]:
    """What was found out about it, over all engines that have it."""
    windows = sorted({deployment.context_length for deployment in deployments if deployment.context_length})
    sizes = [f"{size:,}" for size in ((windows[0], windows[-1]) if len(windows) > 1 else windows)]
    reads = _("{count} tokens").format(count="–".join(sizes)) if sizes else _("Not known yet")
    return [
        (_("Reads up to"), reads),
        (_("Sees pictures"), _found(deployment.sees for deployment in deployments)),
        (_("Writes its reasoning apart"), _found(deployment.thinks for deployment in deployments)),
        (_("Goes on with an answer that broke off"), _found(deployment.continues for deployment in deployments)),
    ]


def _found(told: Iterable[bool | None]) -> str:
    """One engine that can is enough."""
    answers = list(told)
    if True in answers:
        return _("Yes") if all(answers) else _("On some engines")
    return _("Not known yet") if None in answers or not answers else _("No")


def deployment_rows(deployments: Sequence[Deployment], offer: Offer | None) -> list[DeploymentRow]:
    problems = {endpoint.deployment_id: endpoint.problem or "" for endpoint in (offer.endpoints if offer else ())}
    can_try = sum(deployment.stage is Stage.CURRENT for deployment in deployments) > 1
    return [_deployment_row(each, problem=problems.get(each.id, ""), can_try=can_try) for each in deployments]


def _deployment_row(deployment: Deployment, *, problem: str, can_try: bool) -> DeploymentRow:
    engine = deployment.engine
    if not engine.enabled:
        problem = _("The engine is out of service.")
    now_there = deployment.revision, engine.version
    pinned = deployment.pinned_revision, deployment.pinned_version
    return DeploymentRow(
        id=deployment.id,
        engine_id=engine.id,
        engine=engine.name,
        kind=kind_name(engine.spoken_kind),
        version=engine.version,
        upstream_name=deployment.upstream_name,
        revision=deployment.revision,
        pinned=", ".join(part for part in pinned if part),
        departures=publishing.departures(deployment),
        external=engine.external,
        can_pin=any(now_there) and now_there != pinned,
        stage=deployment.stage,
        stage_name=STAGE_NAMES[deployment.stage],
        problem=problem,
        can_try=deployment.stage is Stage.CURRENT and can_try,
    )

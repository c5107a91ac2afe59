"""What admins say of the models people see. Every function runs in the caller's transaction, and tells all processes.

What they say of engines is in `service.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID
from zoneinfo import ZoneInfo

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.audit import service as audit
from backend.audit.service import Action, Target
from backend.core.clock import now
from backend.core.db import broken
from backend.core.errors import BadInput, Conflict
from backend.core.i18n import _
from backend.core.ids import new_id
from backend.core.text import clean, one_line
from backend.engines import queries, trials
from backend.engines.findings import MAX_NAME, display_name
from backend.engines.models import DefaultModel, Deployment, Model, ModelGroup, Stage
from backend.engines.parameters import ADJUSTABLE, MAX_TOKENS, typed_count, typed_temperature, typed_thinking
from backend.engines.service import changed, find_model
from backend.engines.targets import deployment_target, model_target
from backend.groups import queries as groups

#: By which people tell models apart at a glance; `web/static/app.css` knows what they look like.
COLORS: Final = ("petrol", "blue", "plum", "amber", "slate")

MAX_DESCRIPTION, MAX_SYSTEM_PROMPT, MAX_CONCURRENT = 200, 20_000, 10_000
_LONGEST_MAINTENANCE = timedelta(days=36_500)  # far from the last year that a calendar has


@dataclass(frozen=True)
class Wishes:
    """A model as an admin wants it, as typed. `maintenance_until` is a moment in the admin's own `zone`."""

    name: str = ""
    description: str = ""
    color: str = ""
    system_prompt: str = ""
    temperature: str = ""
    max_tokens: str = ""
    thinking: str = ""
    adjustable: frozenset[str] = frozenset()
    for_everybody: bool = True
    groups: frozenset[UUID] = frozenset()
    max_concurrent: str = ""
    maintenance_until: str = ""
    retired: bool = False
    fallback: str = ""


async def change(session: AsyncSession, model: Model, wishes: Wishes, zone: ZoneInfo) -> None:
    """Raises BadInput with a sentence per field; nothing is changed then."""
    wrong: dict[str, str] = {}
    allowed = await _checked_groups(session, wishes, wrong)
    values = {
        "name": one_line(wishes.name, MAX_NAME),
        "description": one_line(wishes.description, MAX_DESCRIPTION),
        "color": wishes.color if wishes.color in COLORS else "",
        "system_prompt": clean(wishes.system_prompt).strip(),
        "temperature": typed_temperature(wishes.temperature, wrong),
        "max_tokens": typed_count(wishes.max_tokens, "max_tokens", MAX_TOKENS, wrong),
        "thinking": typed_thinking(wishes.thinking, wrong),
        "adjustable": [name for name in ADJUSTABLE if name in wishes.adjustable],
        "for_everybody": wishes.for_everybody,
        "max_concurrent": typed_count(wishes.max_concurrent, "max_concurrent", MAX_CONCURRENT, wrong),
        "maintenance_until": _checked_moment(wishes.maintenance_until, zone, wrong),
        "retired_at": (model.retired_at or now()) if wishes.retired else None,
        "fallback_id": await _fallback(session, model, wishes.fallback),
    }
    if not values["name"]:
        wrong["name"] = _("Please enter a name.")
    if len(wishes.system_prompt) > MAX_SYSTEM_PROMPT:
        wrong["system_prompt"] = _("This is too long; {most:,} characters are the most.").format(most=MAX_SYSTEM_PROMPT)
    if wrong:
        raise BadInput(_("Please check the fields below."), fields=wrong)
    before = await _facts(session, model)
    taken = _("There is already a model with this name.")
    with broken(uq_models_name=BadInput(taken, fields={"name": taken})):
        for name, value in values.items():
            setattr(model, name, value)
        await session.flush()
    await session.execute(delete(ModelGroup).where(ModelGroup.model_id == model.id))
    session.add_all(ModelGroup(model_id=model.id, group_id=group) for group in sorted(allowed))
    gone = _("One of these groups was deleted in the meantime.")
    with broken(fk_model_groups_group_id=BadInput(gone, fields={"groups": gone})):
        await session.flush()
    if told := audit.changes(before, await _facts(session, model)):
        await audit.record(session, Action.MODEL_CHANGED, model_target(model), **_without_prompts(told))
    await changed(session)


async def move(session: AsyncSession, model: Model, *, up: bool) -> None:
    """One place up or down in the list; at its end nothing happens."""
    rows = list(await session.scalars(queries.models().with_for_update().execution_options(populate_existing=True)))
    place = next(number for number, row in enumerate(rows) if row.id == model.id)
    other = place - 1 if up else place + 1
    if 0 <= other < len(rows):
        rows[place], rows[other] = rows[other], rows[place]
    for number, row in enumerate(rows):
        row.position = number
    if 0 <= other < len(rows):
        await audit.record(
            session, Action.MODEL_MOVED, model_target(model), before={"place": place}, after={"place": other}
        )
    await changed(session)


async def publish(session: AsyncSession, deployment: Deployment, name: str = "", *, on_trial: bool = False) -> Model:
    """Let people use what was found. Where there is a model of this name, the engine joins those that serve it: among
    what new conversations get, or `on_trial`, which nobody gets until an admin says who (`trials.py`)."""
    if deployment.model_id is not None:
        model = await find_model(session, deployment.model_id)
        await publish_again(session, model)
        return model
    name = one_line(name, MAX_NAME) or display_name(deployment.upstream_name)
    same_name = await session.scalar(select(Model).where(Model.name == name).with_for_update())
    model = same_name or Model(id=new_id(), name=name, position=await _next_position(session))
    model.published = True
    session.add(model)
    already = Conflict(_("“{name}” is served by this engine already.").format(name=name))
    at_once = Conflict(_("Somebody else published “{name}” at the same moment.").format(name=name))
    with broken(uq_deployments_engine_id=already, uq_models_name=at_once):
        await session.flush()
        deployment.model_id, deployment.stage = model.id, Stage.CURRENT
        await session.flush()
    told = {"deployment": deployment.upstream_name, "engine": deployment.engine_id}
    await audit.record(session, Action.MODEL_PUBLISHED, model_target(model), after=told)
    if on_trial:
        await trials.begin(session, deployment)
    await changed(session)
    return model


async def leave(session: AsyncSession, deployment: Deployment) -> None:
    """Take the model off this engine; the other ones that have it go on.

    Raises Conflict where no other one is left for new conversations: then it is for `unpublish` to say.
    """
    model = await trials.held(session, deployment)
    others = select(Deployment.id).where(
        Deployment.model_id == model.id, Deployment.id != deployment.id, Deployment.stage == Stage.CURRENT
    )
    if await session.scalar(others.limit(1)) is None:
        raise Conflict(_("No other engine has “{name}” for new conversations.").format(name=model.name))
    told = {"deployment": deployment.upstream_name, "engine": deployment.engine_id}
    await audit.record(session, Action.MODEL_LEFT, model_target(model), before=told)
    deployment.model_id, deployment.stage = None, Stage.CURRENT
    await session.flush()
    await changed(session)


async def publish_again(session: AsyncSession, model: Model) -> None:
    """As it was before it was withdrawn; with the engines that it is still linked to."""
    if not model.published:
        await audit.record(session, Action.MODEL_PUBLISHED, model_target(model))
    model.published = True
    await changed(session)


async def unpublish(session: AsyncSession, model: Model) -> None:
    """Nobody can choose it any more. It stays linked to its engines, so that it does not come back by itself."""
    model.published = False
    await audit.record(session, Action.MODEL_UNPUBLISHED, model_target(model))
    await changed(session)


def named(text: str) -> UUID | None:
    """The model that a form names; none for nothing. Raises BadInput for what cannot be one."""
    try:
        return UUID(text) if text else None
    except ValueError:
        raise _no_such_model() from None


async def choose_default(
    session: AsyncSession, model_id: UUID | None, *, person_id: UUID | None = None, group_id: UUID | None = None
) -> None:
    """With what a new chat begins: for a person, for a group, or (neither) for everybody. None takes the choice back.

    Raises BadInput for a model that is gone. Whether it is theirs to use is asked again when they begin.
    """
    before = await session.scalar(queries.default_of(person_id=person_id, group_id=group_id))
    if model_id is None:
        whose = queries.default_of(person_id=person_id, group_id=group_id).with_only_columns(DefaultModel.id)
        await session.execute(delete(DefaultModel).where(DefaultModel.id.in_(whose)))
    else:
        choice = insert(DefaultModel).values(
            id=new_id(), created_at=now(), user_id=person_id, group_id=group_id, model_id=model_id
        )
        with broken(fk_default_models_model_id=_no_such_model()):
            await session.execute(
                choice.on_conflict_do_update(
                    constraint="uq_default_models_user_id", set_={"model_id": choice.excluded.model_id}
                )
            )
    told = audit.changes({"model": before.model_id if before else None}, {"model": model_id})
    if told and person_id is None:  # one's own choice is nobody else's business
        for_whom = Target("group", group_id) if group_id else Target("settings", name="default model")
        await audit.record(session, Action.DEFAULT_CHOSEN, for_whom, **told)
    await changed(session)


async def pin(session: AsyncSession, deployment: Deployment) -> None:
    """What the engine says right now is what it should be from now on; with the engine loaded.

    Raises Conflict for an engine that says nothing.
    """
    revision, version = deployment.revision, deployment.engine.version
    if revision is None and version is None:
        raise Conflict(_("This engine tells neither its version nor the revision of its model, so there is no pin."))
    deployment.pinned_revision, deployment.pinned_version = revision, version
    told = {"revision": revision, "version": version}
    await audit.record(session, Action.MODEL_PINNED, deployment_target(deployment), after=told)
    await changed(session)


async def unpin(session: AsyncSession, deployment: Deployment) -> None:
    told = {"revision": deployment.pinned_revision, "version": deployment.pinned_version}
    await audit.record(session, Action.MODEL_UNPINNED, deployment_target(deployment), before=told)
    deployment.pinned_revision = deployment.pinned_version = None
    await changed(session)


async def _facts(session: AsyncSession, model: Model) -> dict[str, object]:
    names = (
        "name description color system_prompt temperature max_tokens thinking adjustable for_everybody max_concurrent "
        "maintenance_until retired_at fallback_id"
    )
    may = select(ModelGroup.group_id).where(ModelGroup.model_id == model.id)
    return {name: getattr(model, name) for name in names.split()} | {"groups": frozenset(await session.scalars(may))}


def _without_prompts(told: dict[str, Mapping[str, object]]) -> dict[str, Mapping[str, object]]:
    """That it changed is said; what it says is not the audit's business."""
    return {
        side: {
            name: f"{len(str(value))} characters" if name == "system_prompt" else value for name, value in its.items()
        }
        for side, its in told.items()
    }


def departures(deployment: Deployment) -> list[str]:
    """Where the engine is not what it was pinned to, a sentence each; with the engine loaded."""
    pinned = {
        _("The revision"): (deployment.pinned_revision, deployment.revision),
        _("The version of the engine"): (deployment.pinned_version, deployment.engine.version),
    }
    return [
        _("{what} should be {wanted} and is {found}.").format(what=what, wanted=wanted, found=found or _("not told"))
        for what, (wanted, found) in pinned.items()
        if wanted is not None and wanted != found
    ]


async def _next_position(session: AsyncSession) -> int:
    last = await session.scalar(select(func.max(Model.position)))
    return 0 if last is None else last + 1


def _no_such_model() -> BadInput:
    gone = _("This model is not here any more. Choose another one.")
    return BadInput(gone, fields={"model": gone})


async def _checked_groups(session: AsyncSession, wishes: Wishes, wrong: dict[str, str]) -> set[UUID]:
    """Those there are among the wished ones, whoever the model is for at the moment."""
    known = {group.id for group in await session.scalars(groups.everything())}
    if not wishes.for_everybody and not wishes.groups & known:
        wrong["groups"] = _("Choose at least one group, or let everybody use it.")
    return set(wishes.groups & known)


async def _fallback(session: AsyncSession, model: Model, text: str) -> UUID | None:
    """Anything but another model that is there is none."""
    try:
        other = UUID(text)
    except ValueError:
        return None
    return await session.scalar(select(Model.id).where(Model.id == other, Model.id != model.id))


def _checked_moment(text: str, zone: ZoneInfo, wrong: dict[str, str]) -> datetime | None:
    if not text.strip():
        return None
    try:
        moment = datetime.fromisoformat(text.strip()).replace(tzinfo=zone)
        moment.astimezone(UTC)  # not every moment is one there, too
    except (ValueError, OverflowError):
        wrong["maintenance_until"] = _("Write the moment like 2026-12-24T18:00.")
        return None
    if moment <= now():
        wrong["maintenance_until"] = _("This moment has passed already.")
    elif moment > now() + _LONGEST_MAINTENANCE:
        wrong["maintenance_until"] = _("This is too far away. Retire the model instead.")
    return moment

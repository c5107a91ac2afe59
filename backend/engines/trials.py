"""A new revision of a model, tried by a part of its people before all of them get it.

Every deployment of a model is in a stage (`Stage`). New conversations go to what is current; a share of them, and all
of one group, to what is on trial. From then on a conversation stays where it began: the first deployment that answered
in it and still takes part says in which stage that is now; of what was replaced it stays with the very same revision.
So it follows a promotion only in name, and leaves a revision only when that was rolled back, or when nothing of it can
answer: an answer from another revision is better than none. Half an answer from another one is not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.audit import service as audit
from backend.audit.service import Action
from backend.core.clock import now
from backend.core.errors import BadInput, Conflict
from backend.core.i18n import _
from backend.core.text import whole
from backend.engines import queries
from backend.engines.models import Deployment, Model, Stage
from backend.engines.service import changed
from backend.engines.snapshot import Endpoint, Offer
from backend.engines.targets import deployment_target, model_target
from backend.groups.models import Group


@dataclass(frozen=True, slots=True)
class Begun:
    """An answer that a conversation has from a model already."""

    deployment_id: UUID | None  # None: it was given before this was kept
    at: datetime


def fitting(
    offer: Offer, conversation_id: UUID | None, person_id: UUID, begun: Sequence[Begun]
) -> tuple[Endpoint, ...]:
    """Where an answer should come from; `begun` are the answers of its conversation, the first one first."""
    first = _first_that_takes_part(offer, begun)
    if first is None:
        stage = Stage.CURRENT if begun else _drawn_stage(offer, conversation_id, person_id)
    elif first.stage is Stage.FORMER:
        return tuple(each for each in offer.endpoints if each.stage is Stage.FORMER and same_revision(each, first))
    else:
        stage = first.stage
    return tuple(each for each in offer.endpoints if each.stage is stage)


def _first_that_takes_part(offer: Offer, begun: Sequence[Begun]) -> Endpoint | None:
    """What answered on an engine before a trial came to it was given by another revision than the one on trial."""
    endpoints = {endpoint.deployment_id: endpoint for endpoint in offer.endpoints}
    for each in begun:
        endpoint = endpoints.get(each.deployment_id) if each.deployment_id else None
        if endpoint and not (endpoint.stage is Stage.TRIAL and offer.trial_since and each.at < offer.trial_since):
            return endpoint
    return None


def same_revision(one: Endpoint, other: Endpoint) -> bool:
    """The very same deployment, or as far as the engines tell."""
    told = one.revision is not None and (one.upstream_name, one.revision) == (other.upstream_name, other.revision)
    return told or one.deployment_id == other.deployment_id


def may_go_on(offer: Offer, endpoint: Endpoint, provenance: Mapping[str, Any]) -> bool:
    """Whether what was broken off there can be finished here: two halves of two revisions are no answer.

    `provenance` tells of the half that is there. What was kept before trials were says nothing and is believed. What an
    engine tells of its weights is not: vLLM tells a folder, whatever lies in it.
    """
    if (began_on := provenance.get("deployment")) in (None, str(endpoint.deployment_id)):
        return True
    there = next((each for each in offer.endpoints if str(each.deployment_id) == began_on), None)
    return there is not None and there.stage is endpoint.stage is not Stage.FORMER


def _drawn_stage(offer: Offer, conversation_id: UUID | None, person_id: UUID) -> Stage:
    drawn = conversation_id is not None and _draw(conversation_id, offer.id) < offer.trial_share
    is_tried = any(endpoint.stage is Stage.TRIAL for endpoint in offer.endpoints)
    return Stage.TRIAL if is_tried and (drawn or person_id in offer.trial_people) else Stage.CURRENT


def _draw(conversation_id: UUID, model_id: UUID) -> int:
    """From 0 to 99, the same for a conversation each time: with a larger share nobody leaves the trial."""
    return int.from_bytes(blake2b(conversation_id.bytes + model_id.bytes, digest_size=8).digest()) % 100


async def begin(session: AsyncSession, deployment: Deployment) -> None:
    """Put one deployment of its model on trial; the share stays 0 until `give` says otherwise.

    Raises Conflict where nothing would be left for those who do not try it.
    """
    model = await held(session, deployment)
    if deployment.stage is Stage.TRIAL:
        return
    others = await session.scalars(queries.in_service(model.id, Stage.CURRENT))
    if all(other == deployment.id for other in others):
        raise Conflict(
            _("This is the only place where the current revision runs. Add an engine with the new one first.")
        )
    if not await _in_stage(session, model, Stage.TRIAL):
        model.trial_since, model.trial_share, model.trial_group_id = now(), 0, None
    told = audit.changes({"stage": deployment.stage}, {"stage": Stage.TRIAL})
    await audit.record(session, Action.TRIAL_BEGUN, deployment_target(deployment), **told)
    deployment.stage = Stage.TRIAL
    await changed(session)


async def assign(session: AsyncSession, model: Model, *, share: str, group: str) -> None:
    """To `share` per cent of new conversations, and to all of a group's.

    Raises BadInput with a sentence per field, Conflict when nothing is on trial: somebody else has ended it.
    """
    await _hold(session, model.id)
    if not await _in_stage(session, model, Stage.TRIAL):
        raise _ended()
    wrong = {}
    if not 0 <= (per_cent := whole(share)) <= 100:
        wrong["share"] = _("The share is a whole number from 0 to 100.")
    group_id = None
    if group:
        group_id = await session.scalar(select(Group.id).where(Group.id == _uuid(group)))
        if group_id is None:
            wrong["group"] = _("This group was deleted in the meantime.")
    if wrong:
        raise BadInput(_("Please check the fields below."), fields=wrong)
    before = {"share": model.trial_share, "group": model.trial_group_id}
    if told := audit.changes(before, {"share": per_cent, "group": group_id}):
        await audit.record(session, Action.TRIAL_CHANGED, model_target(model), **told)
    model.trial_share, model.trial_group_id = per_cent, group_id
    await changed(session)


async def promote(session: AsyncSession, model: Model) -> None:
    """What was on trial is what new conversations get; those that began on the one before stay there.

    Raises Conflict when nothing is on trial: somebody else has ended it.
    """
    await _end(session, model, {Stage.CURRENT: Stage.FORMER, Stage.TRIAL: Stage.CURRENT})
    await audit.record(session, Action.TRIAL_PROMOTED, model_target(model))


async def roll_back(session: AsyncSession, model: Model) -> None:
    """Nobody gets what was on trial any more, also not in a conversation that began on it.

    Raises Conflict when nothing is on trial, and when nothing else is left.
    """
    await _hold(session, model.id)
    if not await _in_stage(session, model, Stage.CURRENT):
        raise Conflict(_("The revision before this one is not there any more. Promote this one, or add an engine."))
    await _end(session, model, {Stage.TRIAL: Stage.WITHDRAWN})
    await audit.record(session, Action.TRIAL_ROLLED_BACK, model_target(model))


async def restore(session: AsyncSession, deployment: Deployment) -> None:
    """Back among what new conversations get. Raises Conflict for what is on trial, which ends in one of two ways."""
    await held(session, deployment)
    if deployment.stage is Stage.TRIAL:
        raise Conflict(_("This is on trial. Promote it, or roll it back."))
    told = audit.changes({"stage": deployment.stage}, {"stage": Stage.CURRENT})
    await audit.record(session, Action.TRIAL_RESTORED, deployment_target(deployment), **told)
    deployment.stage = Stage.CURRENT
    await changed(session)


async def _end(session: AsyncSession, model: Model, becomes: dict[Stage, Stage]) -> None:
    await _hold(session, model.id)
    deployments = await _in_stage(session, model, *becomes)
    if not any(deployment.stage is Stage.TRIAL for deployment in deployments):
        raise _ended()
    for deployment in deployments:
        deployment.stage = becomes[deployment.stage]
    model.trial_share, model.trial_group_id = 0, None
    await changed(session)


async def _hold(session: AsyncSession, model_id: UUID | None) -> Model | None:
    """Whoever changes the stages of a model comes after the other, and takes the model before its deployments."""
    query = select(Model).where(Model.id == model_id).with_for_update()
    return await session.scalar(query.execution_options(populate_existing=True))


async def held(session: AsyncSession, deployment: Deployment) -> Model:
    """Its model. Raises Conflict for one that serves none."""
    model = await _hold(session, deployment.model_id)
    await session.refresh(deployment)
    if model is None or deployment.model_id != model.id:
        raise Conflict(_("This engine serves no model here any more."))
    return model


async def _in_stage(session: AsyncSession, model: Model, *stages: Stage) -> Sequence[Deployment]:
    """Those of a model, held until the transaction ends."""
    query = select(Deployment).where(Deployment.model_id == model.id, Deployment.stage.in_(stages))
    query = query.order_by(Deployment.id).with_for_update().execution_options(populate_existing=True)
    return (await session.scalars(query)).all()


def _ended() -> Conflict:
    return Conflict(_("There is no trial any more: somebody has ended it."))


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None

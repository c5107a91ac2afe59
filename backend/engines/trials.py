"""A new revision of a model, tried by a part of its people before all of them get it.

Every deployment of a model is in a stage (`Stage`). New conversations go to what is current; a share of them, and all
of one group, to what is on trial. From then on a conversation stays where it began: the first deployment that answered
in it and still takes part says in which stage it is now. So it follows a promotion only in name, and leaves a revision
only when that was rolled back, or when nothing of it can answer: an answer from another revision is better than none.
"""

from collections.abc import Sequence
from hashlib import blake2b
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.audit import service as audit
from backend.audit.service import Action
from backend.core.clock import now
from backend.core.errors import BadInput, Conflict
from backend.core.i18n import _
from backend.core.text import whole
from backend.engines.models import Deployment, Model, Stage
from backend.engines.publishing import deployment_target, target
from backend.engines.service import changed
from backend.engines.snapshot import Offer
from backend.groups.models import Group


def stage_for(offer: Offer, conversation_id: UUID | None, person_id: UUID, began_on: Sequence[UUID]) -> Stage:
    """Where an answer should come from; `began_on` are the deployments that answered in the conversation before."""
    stages = {endpoint.deployment_id: endpoint.stage for endpoint in offer.endpoints}
    if begun := next((stages[each] for each in began_on if each in stages), None):
        return begun
    if Stage.TRIAL not in stages.values():
        return Stage.CURRENT
    drawn = conversation_id is not None and _draw(conversation_id, offer.id) < offer.trial_share
    return Stage.TRIAL if drawn or person_id in offer.trial_people else Stage.CURRENT


def _draw(conversation_id: UUID, model_id: UUID) -> int:
    """From 0 to 99, the same for a conversation each time: with a larger share nobody leaves the trial."""
    return int.from_bytes(blake2b(conversation_id.bytes + model_id.bytes, digest_size=8).digest()) % 100


async def begin(session: AsyncSession, deployment: Deployment) -> None:
    """Put one deployment of its model on trial; the share stays 0 until `give` says otherwise.

    Raises Conflict where nothing would be left for those who do not try it.
    """
    model = await _held(session, deployment)
    others = await _in_stage(session, model, Stage.CURRENT)
    if deployment.stage is Stage.TRIAL:
        return
    if deployment.stage is Stage.CURRENT and len(others) < 2:
        raise Conflict(
            _("This is the only place where the current revision runs. Add an engine with the new one first.")
        )
    if not await _in_stage(session, model, Stage.TRIAL):
        model.trial_since, model.trial_share, model.trial_group_id = now(), 0, None
    told = audit.changes({"stage": deployment.stage}, {"stage": Stage.TRIAL})
    await audit.record(session, Action.TRIAL_BEGUN, deployment_target(deployment), **told)
    deployment.stage = Stage.TRIAL
    await changed(session)


async def give(session: AsyncSession, model: Model, *, share: str, group: str) -> None:
    """To `share` per cent of new conversations, and to all of a group's. Raises BadInput with a sentence per field."""
    wrong = {}
    if not 0 <= (per_cent := whole(share)) <= 100:
        wrong["share"] = _("Please enter a whole number from 0 to 100.")
    group_id = None
    if group:
        group_id = await session.scalar(select(Group.id).where(Group.id == _uuid(group)))
        if group_id is None:
            wrong["group"] = _("This group was deleted in the meantime.")
    if wrong:
        raise BadInput(_("Please check the fields below."), fields=wrong)
    before = {"share": model.trial_share, "group": model.trial_group_id}
    if told := audit.changes(before, {"share": per_cent, "group": group_id}):
        await audit.record(session, Action.TRIAL_CHANGED, target(model), **told)
    model.trial_share, model.trial_group_id = per_cent, group_id
    await changed(session)


async def promote(session: AsyncSession, model: Model) -> None:
    """What was on trial is what new conversations get; those that began on the one before stay there.

    Raises Conflict when nothing is on trial: somebody else has ended it.
    """
    await _end(session, model, {Stage.CURRENT: Stage.FORMER, Stage.TRIAL: Stage.CURRENT})
    await audit.record(session, Action.TRIAL_PROMOTED, target(model))


async def roll_back(session: AsyncSession, model: Model) -> None:
    """Nobody gets what was on trial any more, also not in a conversation that began on it. Raises Conflict."""
    await _end(session, model, {Stage.TRIAL: Stage.WITHDRAWN})
    await audit.record(session, Action.TRIAL_ROLLED_BACK, target(model))


async def restore(session: AsyncSession, deployment: Deployment) -> None:
    """Back among what new conversations get, from whatever stage."""
    await _held(session, deployment)
    told = {"before": {"stage": deployment.stage}, "after": {"stage": Stage.CURRENT}}
    await audit.record(session, Action.TRIAL_RESTORED, deployment_target(deployment), **told)
    deployment.stage = Stage.CURRENT
    await changed(session)


async def _end(session: AsyncSession, model: Model, becomes: dict[Stage, Stage]) -> None:
    deployments = await _in_stage(session, model, *becomes)
    if not any(deployment.stage is Stage.TRIAL for deployment in deployments):
        raise Conflict(_("There is no trial any more: somebody has ended it."))
    for deployment in deployments:
        deployment.stage = becomes[deployment.stage]
    model.trial_share, model.trial_group_id = 0, None
    await changed(session)


async def _held(session: AsyncSession, deployment: Deployment) -> Model:
    """Its model, which two admins change one after the other. Raises Conflict for one that serves no model."""
    query = select(Model).where(Model.id == deployment.model_id).with_for_update()
    model = await session.scalar(query.execution_options(populate_existing=True))
    if model is None:
        raise Conflict(_("This engine serves no model here any more."))
    await session.refresh(deployment)
    return model


async def _in_stage(session: AsyncSession, model: Model, *stages: Stage) -> Sequence[Deployment]:
    """Those of a model, held until the transaction ends."""
    query = select(Deployment).where(Deployment.model_id == model.id, Deployment.stage.in_(stages))
    query = query.order_by(Deployment.id).with_for_update().execution_options(populate_existing=True)
    return (await session.scalars(query)).all()


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None

"""What the page of a model shows of a revision on trial: who gets it, and how it compares."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from backend.conversations import comparison
from backend.core.direct import Direct
from backend.core.i18n import _
from backend.engines.models import Deployment, Model, Stage
from backend.groups.models import Group
from web.forms import Choice

STAGE_NAMES = {
    Stage.CURRENT: _("Current"),
    Stage.TRIAL: _("On trial"),
    Stage.FORMER: _("Replaced"),
    Stage.WITHDRAWN: _("Rolled back"),
}


@dataclass(frozen=True)
class TrialForm:
    """To whom a trial should go, as typed."""

    share: str
    group: str


@dataclass(frozen=True)
class RevisionRow:
    """One side of the comparison."""

    name: str
    revisions: str  # as the engines tell them
    answers: int
    good: int
    bad: int
    broken: int
    first_token: str
    speed: str


@dataclass(frozen=True)
class TrialView:
    running: bool
    since: datetime | None
    share: str
    groups: list[Choice]
    rows: list[RevisionRow]


async def trial_view(
    direct: Direct, model: Model, deployments: Sequence[Deployment], groups: Sequence[Group], given: TrialForm | None
) -> TrialView:
    share = given.share if given else str(model.trial_share)
    group = given.group if given else str(model.trial_group_id or "")
    stages = {deployment.stage for deployment in deployments}
    figures = (
        await comparison.compare(direct, model.id, model.trial_since) if model.trial_since and len(stages) > 1 else {}
    )
    return TrialView(
        running=Stage.TRIAL in stages,
        since=model.trial_since,
        share=share,
        groups=[Choice(str(each.id), each.name, group == str(each.id)) for each in groups],
        rows=[_row(stage, deployments, figures.get(stage)) for stage in STAGE_NAMES if stage in stages],
    )


def _row(stage: Stage, deployments: Sequence[Deployment], figures: comparison.Figures | None) -> RevisionRow:
    told = {each.revision or each.upstream_name for each in deployments if each.stage is stage}
    found = figures or comparison.NOTHING
    return RevisionRow(
        name=STAGE_NAMES[stage],
        revisions=", ".join(sorted(told)),
        answers=found.answers,
        good=found.good,
        bad=found.bad,
        broken=found.broken,
        first_token=_("{seconds:.1f} s").format(seconds=found.first_token_seconds)
        if found.first_token_seconds is not None
        else "–",
        speed=_("{rate:,.0f} per second").format(rate=found.tokens_per_second)
        if found.tokens_per_second is not None
        else "–",
    )

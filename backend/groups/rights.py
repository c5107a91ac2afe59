"""What people may do with what is theirs: decided here, and nowhere else.

For each right there is one answer for everybody (the policy: as the deployment fixed it, else as it was chosen in the
pages, else as it comes). A group may allow more and never less, so of several answers the most permissive wins. The
rights are read with the groups, so that no page has to ask for them; which route needs which is said in the table of
routes (`web/policy.py`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from backend.audit import service as audit
from backend.audit.service import Action, Target
from backend.core import stored
from backend.core.bus import notify
from backend.core.errors import BadInput
from backend.core.i18n import _
from backend.core.settings import Settings
from backend.groups import queries
from backend.groups.models import Group

_STORED: Final = "rights"
CHANGED: Final = "groups"


class Right(StrEnum):
    UPLOAD = "upload"
    PICTURES = "pictures"
    API = "api"
    PARAMETERS = "parameters"
    EDIT = "edit"
    OTHER_MODEL = "other_model"
    INSTRUCT = "instruct"
    RATE = "rate"
    FORK = "fork"
    PROVENANCE = "provenance"
    RENAME = "rename"
    DELETE = "delete"
    OWN_MODEL = "own_model"
    NAME = "name"
    PASSWORD = "password"  # noqa: S105 - the word for it
    EXPORT = "export"
    LEAVE = "leave"


MEANINGS: Final[Mapping[Right, str]] = {
    Right.UPLOAD: _("Attach files"),
    Right.PICTURES: _("Attach pictures, where they may attach files"),
    Right.API: _("Make API keys, and use the API with them"),
    Right.PARAMETERS: _("Choose how warm, long and thoughtful answers are, where the model allows it"),
    Right.EDIT: _("Edit a question and ask it anew"),
    Right.OTHER_MODEL: _("Have a question answered again by another model"),
    Right.INSTRUCT: _("Have an answer written anew in another way, such as shorter"),
    Right.RATE: _("Rate answers"),
    Right.FORK: _("Go on in a new chat from somewhere in an old one"),
    Right.PROVENANCE: _("See where an answer came from: engine, revision, speed"),
    Right.RENAME: _("Rename their chats"),
    Right.DELETE: _("Delete their chats and messages"),
    Right.OWN_MODEL: _("Choose the model that their new chats begin with"),
    Right.NAME: _("Change their own name"),
    Right.PASSWORD: _("Change their own password"),
    Right.EXPORT: _("Take all their data along"),
    Right.LEAVE: _("Delete their own account, with everything in it"),
}

#: Nothing that is thought of as possible is forbidden as it comes; but an account is gone for good.
AS_IT_COMES: Final = frozenset(Right) - {Right.LEAVE}


class Source(StrEnum):
    """Where the answer for everybody comes from."""

    ENVIRONMENT = "environment"
    CHOSEN = "database"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Answer:
    allowed: bool
    source: Source


@dataclass(frozen=True, slots=True)
class Rights:
    """What everybody may do, and what some may do besides: a snapshot."""

    everybody: frozenset[Right] = AS_IT_COMES
    more: Mapping[UUID, frozenset[Right]] = field(default_factory=dict)  # by person, only of those with more

    def of(self, person_id: UUID) -> frozenset[Right]:
        return self.more.get(person_id, self.everybody)


def decide(
    everybody: frozenset[Right], memberships: Iterable[tuple[UUID, UUID]], allowed: Mapping[UUID, frozenset[Right]]
) -> Rights:
    """From pairs of group and person, and what each group allows."""
    more: defaultdict[UUID, frozenset[Right]] = defaultdict(lambda: everybody)
    for group_id, person_id in memberships:
        if besides := allowed.get(group_id, frozenset()) - everybody:
            more[person_id] |= besides
    return Rights(everybody, dict(more))


def fixed(settings: Settings) -> dict[Right, bool]:
    """What the deployment says for everybody. Raises BadInput for what is no right, and for what is in both lists."""
    found: dict[Right, bool] = {}
    for name, words, allowed in (
        ("PARLEY_EVERYBODY_MAY", settings.everybody_may, True),
        ("PARLEY_EVERYBODY_MAY_NOT", settings.everybody_may_not, False),
    ):
        for word in filter(None, words):
            if word not in set(Right):
                raise BadInput(
                    _("{name} names “{word}”, which is no right. There are: {rights}.").format(
                        name=name, word=word, rights=", ".join(Right)
                    )
                )
            if found.get(right := Right(word), allowed) != allowed:
                raise BadInput(_("“{word}” is in PARLEY_EVERYBODY_MAY and in its opposite.").format(word=word))
            found[right] = allowed
    return found


async def policy(session: AsyncSession, settings: Settings) -> dict[Right, Answer]:
    """For everybody, and where each answer comes from."""
    chosen = await stored.read(session, _STORED, {})
    answers = {}
    for right in Right:
        if (by_deployment := fixed(settings).get(right)) is not None:
            answers[right] = Answer(by_deployment, Source.ENVIRONMENT)
        elif right.value in chosen:
            answers[right] = Answer(bool(chosen[right.value]), Source.CHOSEN)
        else:
            answers[right] = Answer(right in AS_IT_COMES, Source.DEFAULT)
    return answers


async def choose(session: AsyncSession, settings: Settings, wished: frozenset[Right]) -> None:
    """What everybody may do from now on; what the deployment fixes stays as it is. All processes are told."""
    chosen = {right.value: right in wished for right in Right if right not in fixed(settings)}
    kept: dict[str, bool] = await stored.read(session, _STORED, {})
    if changed := {word: allowed for word, allowed in chosen.items() if _before(kept, word) != allowed}:
        before = {word: _before(kept, word) for word in changed}
        await audit.record(session, Action.POLICY_CHANGED, Target("policy"), before=before, after=changed)
    await stored.write(session, _STORED, kept | changed)
    await notify(session, CHANGED, {})


def _before(kept: Mapping[str, bool], word: str) -> bool:
    return kept.get(word, Right(word) in AS_IT_COMES)


async def read(session: AsyncSession, settings: Settings) -> Rights:
    answers = await policy(session, settings)
    allowed = {group.id: of_group(group) for group in await session.scalars(queries.everything())}
    memberships = [(group_id, person_id) for group_id, person_id in await session.execute(queries.memberships())]
    return decide(frozenset(right for right, answer in answers.items() if answer.allowed), memberships, allowed)


def of_group(group: Group) -> frozenset[Right]:
    """Words of a right that is not there any more are passed over."""
    return frozenset(right for right in Right if right.value in group.rights)

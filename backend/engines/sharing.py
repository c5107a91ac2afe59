"""Who may use which model, and with which one they begin: read with the engines, so that no page has to ask for it.

A model is for everybody, or for the members of some groups. The rule itself is `Offer.is_for` (`snapshot.py`); here is
what it decides by.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from backend.engines import queries
from backend.engines.models import Model
from backend.groups import queries as groups

_NOBODY: frozenset[UUID] = frozenset()


@dataclass(frozen=True, slots=True)
class Sharing:
    """`models` are all there are, also those that nobody can choose any more: conversations know them."""

    models: tuple[Model, ...] = ()
    groups_of_model: Mapping[UUID, frozenset[UUID]] = field(default_factory=dict)  # only of those not for everybody
    groups_of: Mapping[UUID, frozenset[UUID]] = field(default_factory=dict)  # by person
    weights: Mapping[UUID, int] = field(default_factory=dict)  # by group
    defaults: Mapping[UUID | None, UUID] = field(default_factory=dict)  # by person, by group, and for everybody (None)

    def people_of(self, model: Model) -> frozenset[UUID] | None:
        """Those who may use it; None is everybody."""
        if model.for_everybody:
            return None
        allowed = self.groups_of_model.get(model.id, _NOBODY)
        return frozenset(person for person, groups in self.groups_of.items() if groups & allowed)

    def members_of(self, group_id: UUID | None) -> frozenset[UUID]:
        return frozenset(person for person, groups in self.groups_of.items() if group_id in groups)

    def weight_of(self, person_id: UUID) -> int:
        """The highest of the person's groups; without one it is 1."""
        return max((self.weights.get(group, 1) for group in self.groups_of.get(person_id, _NOBODY)), default=1)

    def defaults_of(self, person_id: UUID) -> Iterable[UUID]:
        """The models a new chat of this person could begin with, the best first: chosen by the person, for their
        groups (the weightiest first), for everybody."""
        groups = sorted(self.groups_of.get(person_id, _NOBODY), key=lambda group: (-self.weights.get(group, 1), group))
        for whose in (person_id, *groups, None):
            if (model_id := self.defaults.get(whose)) is not None:
                yield model_id


#: Everybody may use everything.
OPEN: Final = Sharing()


async def read(session: AsyncSession) -> Sharing:
    models = (await session.scalars(queries.models())).all()
    members: defaultdict[UUID, set[UUID]] = defaultdict(set)
    for group_id, person_id in await session.execute(groups.memberships()):
        members[person_id].add(group_id)
    allowed: defaultdict[UUID, set[UUID]] = defaultdict(set)
    for model_id, group_id in await session.execute(queries.shares()):
        allowed[model_id].add(group_id)
    return Sharing(
        models=tuple(models),
        groups_of_model={model: frozenset(ids) for model, ids in allowed.items()},
        groups_of={person: frozenset(ids) for person, ids in members.items()},
        weights={group.id: group.weight for group in await session.scalars(groups.everything())},
        defaults={row.user_id or row.group_id: row.model_id for row in await session.scalars(queries.defaults())},
    )

"""What people can choose and how engines are, at one moment. Plain values: reading them waits for nothing."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import cast
from uuid import UUID

from backend.core.clock import now
from backend.core.i18n import _
from backend.engines import dialects
from backend.engines.client import EngineClient
from backend.engines.events import Failure
from backend.engines.findings import display_name
from backend.engines.local import LocalServer
from backend.engines.models import Deployment, Engine, Model, Source, Stage
from backend.engines.probing import Health
from backend.engines.request import Thinking
from backend.engines.sharing import OPEN, Sharing


class State(StrEnum):
    """Of a model, as people need to know it; the first that holds, from the end."""

    AVAILABLE = "available"
    BUSY = "busy"  # who asks now has to wait; only `Registry.state_of` knows
    LOADING = "loading"  # an engine is on its way
    AWAY = "away"  # no engine can be used
    MAINTENANCE = "maintenance"  # an admin said so, until a certain time
    RETIRED = "retired"  # nobody can choose it any more


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model on one engine, as last seen."""

    deployment_id: UUID
    engine_id: UUID
    engine_name: str
    engine_kind: str | None
    engine_version: str | None
    upstream_name: str
    context_length: int | None
    client: EngineClient
    problem: str | None  # None is healthy, else a sentence
    since: datetime | None  # when the problem began
    continues: bool  # proved: it goes on with an answer that broke off
    sees: bool  # proved: it takes pictures
    loading: bool = False  # it will be there in a while
    external: bool = False  # what is sent there leaves the building
    thinks: bool | None = None  # writes its reasoning apart; None: not known
    revision: str | None = None  # of the weights, as the engine tells it
    stage: Stage = Stage.CURRENT

    @property
    def without_thinking(self) -> Thinking:
        """What to wish for where thinking is not worth its time."""
        return dialects.of(self.engine_kind).without_thinking(self.thinks)


@dataclass(frozen=True, slots=True)
class Offer:
    """A published model as people see it."""

    id: UUID
    name: str
    description: str
    system_prompt: str
    system_role: bool  # False: a system prompt opens the first question instead
    temperature: float | None
    max_tokens: int | None
    endpoints: tuple[Endpoint, ...]
    color: str = ""
    thinking: Thinking = ""
    adjustable: frozenset[str] = frozenset()  # parameters that people may choose themselves
    max_concurrent: int | None = None
    maintenance_until: datetime | None = None
    retired: bool = False
    people: frozenset[UUID] | None = None  # who may use it; None is everybody
    trial_share: int = 0  # per cent of new conversations that try a new revision
    trial_since: datetime | None = None
    trial_people: frozenset[UUID] = frozenset()  # who tries it in all their new conversations

    def is_for(self, person_id: UUID) -> bool:
        """Whether this person may use it: the one place that decides it."""
        return not self.retired and (self.people is None or person_id in self.people)

    @property
    def in_maintenance(self) -> bool:
        return self.maintenance_until is not None and self.maintenance_until > now()

    @property
    def state(self) -> State:
        if self.retired:
            return State.RETIRED
        if self.in_maintenance:
            return State.MAINTENANCE
        if self.available:
            return State.AVAILABLE
        return State.LOADING if any(endpoint.loading for endpoint in self.endpoints) else State.AWAY

    @property
    def available(self) -> bool:
        """Whether an engine could answer; whether people may ask is another question (`state`)."""
        return any(endpoint.problem is None for endpoint in self.endpoints)

    @property
    def sees(self) -> bool:
        """Whether pictures may be sent: one engine that takes them is enough, and it is the one that gets them."""
        return any(endpoint.sees for endpoint in self.endpoints)

    @property
    def window(self) -> int | None:
        """Tokens that every endpoint reads, of those that tell: what people and programs can count on."""
        return min(self._windows, default=None)

    @property
    def widest_window(self) -> int | None:
        """Tokens of which no endpoint reads more; None while one of them does not tell."""
        return max(self._windows, default=None) if len(self._windows) == len(self.endpoints) else None

    @property
    def _windows(self) -> list[int]:
        return [endpoint.context_length for endpoint in self.endpoints if endpoint.context_length]

    @property
    def external(self) -> bool:
        """Whether an answer may come from outside the building."""
        return any(endpoint.external for endpoint in self.endpoints)

    @property
    def problem(self) -> str | None:
        return None if self.available else self.endpoints[0].problem


@dataclass(frozen=True, slots=True)
class DeploymentStatus:
    id: UUID
    upstream_name: str
    context_length: int | None
    missing_since: datetime | None
    model_id: UUID | None
    model_name: str | None  # of the model it serves, published or not
    published: bool
    proposed_name: str  # under which it would be published


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """An engine as admins see it."""

    id: UUID
    name: str
    url: str
    kind: str | None
    version: str | None
    source: Source
    enabled: bool
    draining: bool
    external: bool
    health: Health
    deployments: tuple[DeploymentStatus, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`offers` are what people can choose from; `by_id` also holds what has retired, for answers that still run."""

    offers: tuple[Offer, ...] = ()
    engines: tuple[EngineStatus, ...] = ()
    local: tuple[LocalServer, ...] = ()
    by_id: Mapping[UUID, Offer] = field(default_factory=dict)


def build(
    engines: Iterable[Engine],
    client_of: Callable[[UUID], EngineClient],
    health_of: Callable[[UUID], Health],
    local: tuple[LocalServer, ...],
    sharing: Sharing = OPEN,
    asleep_on: Callable[[UUID], Collection[str]] = lambda _engine_id: (),
) -> Snapshot:
    """`engines` with their deployments and models loaded. Disabled engines offer nothing."""
    engines = list(engines)
    models: dict[UUID, Model] = {}
    endpoints: dict[UUID, list[Endpoint]] = {}
    for engine in engines:
        for deployment in engine.deployments if engine.enabled else ():
            model = deployment.model
            if model is None or not model.published or _is_out(engine, deployment):
                continue
            models[model.id] = model
            endpoint = _endpoint(engine, deployment, client_of(engine.id), health_of(engine.id))
            if endpoint.problem is None and deployment.upstream_name in asleep_on(engine.id):
                endpoint = replace(endpoint, problem=_("The model sleeps until an administrator wakes it."))
            endpoints.setdefault(model.id, []).append(endpoint)
    offers = [_offer(model, endpoints[model.id], sharing) for model in models.values()]
    # Ids grow with time, so the models of one engine stand together, in the order they were found.
    offers.sort(key=lambda offer: (models[offer.id].position, offer.id))
    return Snapshot(
        tuple(offer for offer in offers if not offer.retired),
        tuple(status_of(engine, health_of(engine.id)) for engine in engines),
        local,
        {offer.id: offer for offer in offers},
    )


def status_of(engine: Engine, health: Health) -> EngineStatus:
    return EngineStatus(
        id=engine.id,
        name=engine.name,
        url=engine.url,
        kind=engine.spoken_kind,
        version=engine.version,
        source=engine.source,
        enabled=engine.enabled,
        draining=bool(engine.draining),
        external=bool(engine.external),
        health=health,
        deployments=tuple(
            DeploymentStatus(
                id=deployment.id,
                upstream_name=deployment.upstream_name,
                context_length=deployment.context_length,
                missing_since=deployment.missing_since,
                model_id=deployment.model_id,
                model_name=deployment.model.name if deployment.model else None,
                published=bool(deployment.model and deployment.model.published),
                proposed_name=display_name(deployment.upstream_name, embedded=engine.source is Source.EMBEDDED),
            )
            for deployment in sorted(engine.deployments, key=lambda each: (each.upstream_name.lower(), each.id))
        ),
    )


def _is_out(engine: Engine, deployment: Deployment) -> bool:
    """Whether nobody goes there any more. The embedded engine serves one model, and whoever starts Parley chooses it:
    an earlier one is gone, not away."""
    is_replaced = engine.source is Source.EMBEDDED and deployment.missing_since is not None
    return is_replaced or deployment.stage is Stage.WITHDRAWN


def _endpoint(engine: Engine, deployment: Deployment, client: EngineClient, health: Health) -> Endpoint:
    problem, since = health.problem, health.since
    if problem is None and deployment.missing_since:
        problem, since = _("The engine does not offer this model at the moment."), deployment.missing_since
    if problem is None and engine.draining:
        problem = _("The engine takes no new questions at the moment.")
    return Endpoint(
        deployment_id=deployment.id,
        engine_id=engine.id,
        engine_name=engine.name,
        engine_kind=engine.spoken_kind,
        engine_version=engine.version,
        upstream_name=deployment.upstream_name,
        context_length=deployment.context_length,
        client=client,
        problem=problem,
        since=since,
        continues=deployment.continues is True,
        sees=deployment.sees is True,
        loading=health.kind is Failure.LOADING,
        external=bool(engine.external),
        thinks=deployment.thinks,
        revision=deployment.revision,
        stage=deployment.stage,
    )


def _offer(model: Model, endpoints: list[Endpoint], sharing: Sharing) -> Offer:
    return Offer(
        id=model.id,
        name=model.name,
        description=model.description,
        system_prompt=model.system_prompt,
        system_role=model.system_role,
        temperature=model.temperature,
        max_tokens=model.max_tokens,
        endpoints=tuple(endpoints),
        color=model.color,
        thinking=cast("Thinking", model.thinking),
        adjustable=frozenset(model.adjustable),
        max_concurrent=model.max_concurrent,
        maintenance_until=model.maintenance_until,
        retired=model.retired_at is not None,
        people=sharing.people_of(model),
        trial_share=model.trial_share,
        trial_since=model.trial_since,
        trial_people=sharing.members_of(model.trial_group_id),
    )

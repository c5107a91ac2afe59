"""What people can choose and how engines are, at one moment. Plain values: reading them waits for nothing."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from uuid import UUID

from backend.core.errors import Unavailable
from backend.core.i18n import _
from backend.engines.client import EngineClient
from backend.engines.findings import display_name
from backend.engines.local import LocalServer
from backend.engines.models import Deployment, Engine, Model, Source
from backend.engines.probing import Health


class NoEngineAvailable(Unavailable):
    """No engine that serves the model can be used at the moment."""


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

    @property
    def available(self) -> bool:
        return any(endpoint.problem is None for endpoint in self.endpoints)

    @property
    def sees(self) -> bool:
        """Whether pictures may be sent: one engine that takes them is enough, and it is the one that gets them."""
        return any(endpoint.sees for endpoint in self.endpoints)

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
    has_key: bool
    health: Health
    deployments: tuple[DeploymentStatus, ...]

    @property
    def changeable(self) -> bool:
        return self.source is Source.DATABASE


@dataclass(frozen=True, slots=True)
class Snapshot:
    offers: tuple[Offer, ...] = ()
    engines: tuple[EngineStatus, ...] = ()
    local: tuple[LocalServer, ...] = ()
    by_id: Mapping[UUID, Offer] = field(default_factory=dict)


def build(
    engines: Iterable[Engine],
    client_of: Callable[[UUID], EngineClient],
    health_of: Callable[[UUID], Health],
    local: tuple[LocalServer, ...],
) -> Snapshot:
    """`engines` with their deployments and models loaded. Disabled engines offer nothing."""
    engines = list(engines)
    models: dict[UUID, Model] = {}
    endpoints: dict[UUID, list[Endpoint]] = {}
    for engine in engines:
        for deployment in engine.deployments if engine.enabled else ():
            model = deployment.model
            if model is None or not model.published or _replaced(engine, deployment):
                continue
            models[model.id] = model
            endpoint = _endpoint(engine, deployment, client_of(engine.id), health_of(engine.id))
            endpoints.setdefault(model.id, []).append(endpoint)
    offers = [_offer(model, endpoints[model.id]) for model in models.values()]
    # Ids grow with time, so the models of one engine stand together, in the order they were found.
    offers.sort(key=lambda offer: (models[offer.id].position, offer.id))
    return Snapshot(
        tuple(offers),
        tuple(status_of(engine, health_of(engine.id)) for engine in engines),
        local,
        {offer.id: offer for offer in offers},
    )


def choose(offer: Offer, conversation_id: UUID | None = None) -> Endpoint:
    """A healthy endpoint, for one conversation always the same as long as it is healthy.

    So the engine still has the conversation in its prefix cache (rendezvous hashing). Raises NoEngineAvailable.
    """
    healthy = [endpoint for endpoint in offer.endpoints if endpoint.problem is None]
    if not healthy:
        raise NoEngineAvailable(offer.problem or _("No engine serves this model at the moment."))
    if conversation_id is None:
        return healthy[0]
    key = conversation_id.bytes
    return max(healthy, key=lambda endpoint: blake2b(key + endpoint.deployment_id.bytes, digest_size=8).digest())


def status_of(engine: Engine, health: Health) -> EngineStatus:
    return EngineStatus(
        id=engine.id,
        name=engine.name,
        url=engine.url,
        kind=engine.kind,
        version=engine.version,
        source=engine.source,
        enabled=engine.enabled,
        has_key=engine.sealed_api_key is not None,
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


def _replaced(engine: Engine, deployment: Deployment) -> bool:
    """The embedded engine serves one model, and whoever starts Parley chooses it: an earlier one is gone, not away."""
    return engine.source is Source.EMBEDDED and deployment.missing_since is not None


def _endpoint(engine: Engine, deployment: Deployment, client: EngineClient, health: Health) -> Endpoint:
    problem, since = health.problem, health.since
    if problem is None and deployment.missing_since:
        problem, since = _("The engine does not offer this model at the moment."), deployment.missing_since
    return Endpoint(
        deployment_id=deployment.id,
        engine_id=engine.id,
        engine_name=engine.name,
        engine_kind=engine.kind,
        engine_version=engine.version,
        upstream_name=deployment.upstream_name,
        context_length=deployment.context_length,
        client=client,
        problem=problem,
        since=since,
        continues=deployment.continues is True,
        sees=deployment.sees is True,
    )


def _offer(model: Model, endpoints: list[Endpoint]) -> Offer:
    return Offer(
        id=model.id,
        name=model.name,
        description=model.description,
        system_prompt=model.system_prompt,
        system_role=model.system_role,
        temperature=model.temperature,
        max_tokens=model.max_tokens,
        endpoints=tuple(endpoints),
    )

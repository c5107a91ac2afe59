"""What this process knows of engines and models at this moment. Asking it waits for nothing and for nobody."""

from collections.abc import Collection
from uuid import UUID

from backend.engines import choosing
from backend.engines.breaker import Breakers
from backend.engines.choosing import Busy
from backend.engines.client import EngineClient
from backend.engines.local import LocalServer
from backend.engines.memory import Memory
from backend.engines.metrics import Load
from backend.engines.models import Stage
from backend.engines.probing import Health
from backend.engines.sharing import OPEN
from backend.engines.snapshot import Endpoint, EngineStatus, Offer, Snapshot, State
from backend.engines.traffic import Traffic
from backend.engines.watching import Watch
from backend.groups.rights import Right, Rights


class Known:
    """The registry keeps it up to date."""

    def __init__(self, *, stale_after: float) -> None:
        """What an engine told of its work means nothing any more after so many seconds."""
        self.breakers = Breakers()
        self.traffic = Traffic()  # answers of this process; also what still runs on an engine that is drained
        self._stale_after = stale_after
        self._snapshot = Snapshot()
        self._sharing = OPEN
        self._rights = Rights()
        self._colors: dict[UUID, str] = {}
        self._watches: dict[UUID, Watch] = {}

    @property
    def offers(self) -> tuple[Offer, ...]:
        """Published models that an enabled engine has or had, in the order people see them."""
        return self._snapshot.offers

    @property
    def engines(self) -> tuple[EngineStatus, ...]:
        return self._snapshot.engines

    @property
    def local(self) -> tuple[LocalServer, ...]:
        """Servers on this machine that an admin could add."""
        return self._snapshot.local

    def offer(self, model_id: UUID | None) -> Offer | None:
        """None when the model is gone: unpublished, or no enabled engine has it."""
        return self._snapshot.by_id.get(model_id) if model_id else None

    def offers_for(self, person_id: UUID) -> tuple[Offer, ...]:
        """What this person may use, in the order people see it; also what is under maintenance or away."""
        return tuple(offer for offer in self._snapshot.offers if offer.is_for(person_id))

    def offer_for(self, person_id: UUID, model_id: UUID | None) -> Offer | None:
        """None alike for what does not exist, has retired, or is not for this person."""
        offer = self.offer(model_id)
        return offer if offer is not None and offer.is_for(person_id) else None

    def default_for(self, person_id: UUID) -> Offer | None:
        """What a new chat begins with: the person's own choice, else their group's, else everybody's, else the first;
        one that works before one that does not. None: there is nothing for this person."""
        wished = [self.offer_for(person_id, model_id) for model_id in self._sharing.defaults_of(person_id)]
        found = [offer for offer in (*wished, *self.offers_for(person_id)) if offer is not None]
        best = next((offer for offer in found if offer.state is State.AVAILABLE), None)
        return best or next((offer for offer in found if not offer.in_maintenance), found[0] if found else None)

    def instead_of(self, person_id: UUID, model_id: UUID | None) -> Offer | None:
        """The fallback that an admin named for a model, or that one's, as far as it works for this person."""
        fallbacks = {model.id: model.fallback_id for model in self._sharing.models}
        seen = {model_id}
        while (model_id := fallbacks.get(model_id) if model_id else None) and model_id not in seen:
            seen.add(model_id)
            offer = self.offer_for(person_id, model_id)
            if offer is not None and offer.state is State.AVAILABLE:
                return offer
        return None

    def has_retired(self, model_id: UUID | None) -> bool:
        return any(model.id == model_id and model.retired_at is not None for model in self._sharing.models)

    def color_of(self, model_id: UUID | None) -> str:
        return self._colors.get(model_id, "") if model_id else ""

    def weight_of(self, person_id: UUID) -> int:
        """How much of a model this person gets, compared with others, while people have to wait for it."""
        return self._sharing.weight_of(person_id)

    @property
    def everybody_may(self) -> frozenset[Right]:
        return self._rights.everybody

    def rights_of(self, person_id: UUID) -> frozenset[Right]:
        """What this person may do with what is theirs."""
        return self._rights.of(person_id)

    def state_of(self, offer: Offer) -> State:
        """The state of a model with what its engines have to do at this moment."""
        if offer.state is not State.AVAILABLE:
            return offer.state
        ready = [self._busy(endpoint.engine_id) for endpoint in offer.endpoints if endpoint.problem is None]
        return State.BUSY if all(each.is_full for each in ready) else State.AVAILABLE

    def choose(self, offer: Offer, affinity: UUID | None = None, *, without: Collection[UUID] = ()) -> Endpoint:
        """See `choosing.choose`; `without` these, by deployment id. Raises NoEngineAvailable."""
        refused = {each.deployment_id for each in offer.endpoints if self.breakers.refuses(each.deployment_id)}
        busy = {each.deployment_id: self._busy(each.engine_id) for each in offer.endpoints}
        return choosing.choose(offer.endpoints, affinity, busy, refused.union(without))

    def limit_of(self, model_id: UUID) -> int | None:
        """How many answers the model takes at once: as an admin set it, else as its healthy engines tell. None: nobody
        knows, for one that does not tell takes as many as it gets."""
        offer = self.offer(model_id)
        if offer is None:
            return 1  # those who wait for it are told so one after the other
        if offer.max_concurrent is not None:
            return offer.max_concurrent
        takes_new = [each for each in offer.endpoints if each.stage is not Stage.FORMER]
        engines = {each.engine_id for each in takes_new if each.problem is None}
        slots = [load.slots if (load := self.load(engine_id)) else None for engine_id in engines]
        known = [count for count in slots if count is not None]
        return sum(known) if known and len(known) == len(slots) else None

    def loads(self, engine_id: UUID) -> tuple[Load, ...]:
        """The last readings of how busy an engine is, oldest first; empty for one that does not tell."""
        watch = self._watches.get(engine_id)
        return tuple(watch.readings.loads) if watch else ()

    def load(self, engine_id: UUID) -> Load | None:
        """The last reading, however old it is: `Load.at` says so."""
        watch = self._watches.get(engine_id)
        return watch.readings.load if watch else None

    def _busy(self, engine_id: UUID) -> Busy:
        """What runs here at this moment, and what the engine told of others when it was last looked at."""
        ours = self.traffic.running_on(engine_id)
        watch = self._watches.get(engine_id)
        load = watch.readings.load if watch else None
        if watch is None or load is None:
            return Busy(ours)
        if watch.readings.age > self._stale_after:
            return Busy(ours, slots=load.slots)
        others = max(0, (load.running or 0) - watch.readings.ours)
        return Busy(ours + others, load.waiting or 0, load.slots)

    def health(self, engine_id: UUID) -> Health:
        watch = self._watches.get(engine_id)
        return watch.health if watch else Health()

    def memory(self, engine_id: UUID) -> Memory | None:
        """Which models it holds; None for an engine that is not in service."""
        watch = self._watches.get(engine_id)
        return watch.memory if watch else None

    def client(self, engine_id: UUID) -> EngineClient | None:
        """For what is no answer to anybody: a measurement. None for an engine that is not in service."""
        watch = self._watches.get(engine_id)
        return watch.client if watch else None

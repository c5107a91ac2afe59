"""The one door through which every request goes to an engine.

    enter      wait for a place, fairly beside the others who want this model
    choose     the endpoint that knows the conversation already, or the least busy one
    request    what exactly is sent depends on the endpoint
    answer     the engine's events, as they come
    again      elsewhere, or once more here, while not a word of the answer was passed on

Leaving `answer()` in any way closes the engine's connection and gives the place back.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import UUID

from backend.admission.wishes import Place, Urgency
from backend.engines.client import ChatRequest
from backend.engines.events import EngineFailed, Event, Failure, Usage
from backend.engines.registry import Endpoint, NoEngineAvailable, Offer, Registry

__all__ = ["Ask", "Place", "Pool", "Urgency"]

_MOST_ENDPOINTS = 3
"""An answer is not sent around for ever: a question that kills engines would kill them all."""

_LONGEST_PAUSE = 5.0
"""Seconds. An engine that asks for more time has too much to do for this answer."""

#: Failures that another endpoint may not have, or that tell of this one only.
_ELSEWHERE = frozenset(
    {
        Failure.UNREACHABLE,
        Failure.AUTH,
        Failure.UNKNOWN_MODEL,
        Failure.OVERLOADED,
        Failure.LOADING,
        Failure.TIMEOUT,
        Failure.DEAD,
        Failure.CUT,
        Failure.NONSENSE,
    }
)

#: Failures that may be over in a moment.
_AGAIN = frozenset({Failure.UNREACHABLE, Failure.OVERLOADED, Failure.LOADING})

#: Failures after which the engine is looked at without waiting for its turn.
_SUSPICIOUS = frozenset(
    {Failure.UNREACHABLE, Failure.AUTH, Failure.LOADING, Failure.TIMEOUT, Failure.DEAD, Failure.CUT}
)


class Ticket(Protocol):
    def spent(self, tokens: int, /) -> None: ...
    def refused(self, retry_after: float | None, /) -> None: ...
    def accepted(self) -> None: ...


class Admission(Protocol):
    """Who may start now; see `backend.admission`."""

    def enter(
        self, model_id: UUID, person_id: UUID, urgency: Urgency, *, cost: int, on_place: Callable[[Place], None]
    ) -> AbstractAsyncContextManager[Ticket]: ...


def _nobody_asks(_endpoint: Endpoint, _failure: EngineFailed) -> None:
    """Not everybody keeps an account of what was tried."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One wish for an answer."""

    offer: Offer
    person_id: UUID
    affinity: UUID | None  # a conversation, whose beginning an engine may still have in its cache
    urgency: Urgency
    cost: int  # tokens of prompt and answer, as far as they can be guessed
    request: Callable[[Endpoint], Awaitable[ChatRequest]]
    on_place: Callable[[Place], None]
    on_endpoint: Callable[[Endpoint], None]  # called again when another one has to answer
    continues: bool = False  # it goes on with an answer that broke off, which not every endpoint can
    shows: bool = False  # it may hold pictures: an endpoint that sees them is preferred
    on_failure: Callable[[Endpoint, EngineFailed], None] = _nobody_asks  # of a try that others follow


@dataclass(slots=True)
class _Tries:
    """Where an answer was tried, until one endpoint begins with it."""

    endpoints: list[UUID] = field(default_factory=list)  # by deployment id
    again: bool = False  # the only endpoint there is was asked a second time
    has_begun: bool = False


def _is_free(endpoint: Endpoint, tries: _Tries) -> bool:
    return endpoint.problem is None and endpoint.deployment_id not in tries.endpoints


class Pool:
    def __init__(self, registry: Registry, admission: Admission) -> None:
        self._registry = registry
        self._admission = admission

    async def answer(self, ask: Ask) -> AsyncGenerator[list[Event], None]:
        """Use it under `aclosing`. Raises EngineFailed and NoEngineAvailable, and whatever `ask.request` raises."""
        place = self._admission.enter(ask.offer.id, ask.person_id, ask.urgency, cost=ask.cost, on_place=ask.on_place)
        async with place as ticket:
            tries, usage = _Tries(), None
            endpoint = self._choose(ask, tries)
            request = await self._prepare(ask, tries, endpoint)
            while True:
                try:
                    with self._trying(endpoint):
                        async with aclosing(endpoint.client.answer(request, insists=False)) as batches:
                            async for events in batches:
                                if not tries.has_begun:
                                    tries.has_begun = True
                                    self._registry.breakers.succeeded(endpoint.deployment_id)
                                    ticket.accepted()
                                for event in events:
                                    if type(event) is Usage:
                                        usage = event
                                yield events
                    if usage is not None:
                        ticket.spent(usage.prompt_tokens + usage.completion_tokens)
                    return
                except EngineFailed as failure:
                    if failure.kind is Failure.OVERLOADED:
                        ticket.refused(failure.retry_after)
                    other = self._elsewhere(ask, tries, failure)
                    if other is None and not await self._may_try_again(tries, failure):
                        raise
                    ask.on_failure(endpoint, failure)
                if other is not None:
                    endpoint = other
                    request = await self._prepare(ask, tries, endpoint)

    def _choose(self, ask: Ask, tries: _Tries) -> Endpoint:
        offer = self._registry.offer(ask.offer.id) or ask.offer
        if ask.continues and (able := tuple(each for each in offer.endpoints if each.continues)):
            offer = replace(offer, endpoints=able)
        if ask.shows and (seeing := tuple(each for each in offer.endpoints if each.sees and _is_free(each, tries))):
            offer = replace(offer, endpoints=seeing)
        return self._registry.choose(offer, ask.affinity, without=tries.endpoints)

    async def _prepare(self, ask: Ask, tries: _Tries, endpoint: Endpoint) -> ChatRequest:
        tries.endpoints.append(endpoint.deployment_id)
        ask.on_endpoint(endpoint)
        return await ask.request(endpoint)

    @contextmanager
    def _trying(self, endpoint: Endpoint) -> Iterator[None]:
        """What the registry learns from an answer."""
        breakers, deployment_id = self._registry.breakers, endpoint.deployment_id
        breakers.begins(deployment_id)
        try:
            with self._registry.traffic.answering(endpoint.engine_id):
                yield
        except EngineFailed as failure:
            breakers.failed(deployment_id, failure.kind)
            if failure.kind in _SUSPICIOUS:
                self._registry.look_now(endpoint.engine_id)
            raise
        finally:
            breakers.ends(deployment_id)

    def _elsewhere(self, ask: Ask, tries: _Tries, failure: EngineFailed) -> Endpoint | None:
        """Another endpoint, as long as no word of the answer was passed on."""
        if tries.has_begun or failure.kind not in _ELSEWHERE or len(tries.endpoints) >= _MOST_ENDPOINTS:
            return None
        try:
            return self._choose(ask, tries)
        except NoEngineAvailable:
            return None

    async def _may_try_again(self, tries: _Tries, failure: EngineFailed) -> bool:
        """Once more at the only endpoint there is, after a moment; True when that is over."""
        if tries.has_begun or tries.again or len(tries.endpoints) > 1 or failure.kind not in _AGAIN:
            return False
        if failure.retry_after is not None and failure.retry_after > _LONGEST_PAUSE:
            return False
        tries.again = True
        # Spread, so that those who were refused together do not come back together.
        pause = random.uniform(0.1, 0.4)  # noqa: S311
        await asyncio.sleep(pause if failure.retry_after is None else failure.retry_after + pause / 2)
        return True

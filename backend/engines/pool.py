"""The one door through which every request goes to an engine.

    enter      wait for a place, fairly beside the others who want this model
    choose     the endpoint that knows the conversation already, or the least busy one
    request    what exactly is sent depends on the endpoint
    answer     the engine's events, as they come
    again      elsewhere, or once more here, while not a word of the answer was passed on
    back       into line, where all that is left are engines with too much to do

Leaving `answer()` in any way closes the engine's connection and gives the place back.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

from backend.admission.wishes import Place, Urgency
from backend.core.i18n import _
from backend.engines import trials
from backend.engines.client import ChatRequest
from backend.engines.events import EngineFailed, Event, Failure, Usage
from backend.engines.registry import Endpoint, NoEngineAvailable, Offer, Registry
from backend.engines.trials import Begun

__all__ = ["Ask", "Place", "Pool", "Urgency"]

_MOST_ENDPOINTS = 3
"""An answer is not sent around for ever: a question that kills engines would kill them all."""

_LONGEST_PAUSE = 5.0
"""Seconds. An engine that asks for more time to start is not waited for."""


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
    on_endpoint: Callable[[Endpoint], None]  # called again with each try
    continues: Mapping[str, Any] | None = None  # the provenance of an answer that broke off and goes on here
    begun: Sequence[Begun] = ()  # what the model answered in its conversation before, the first one first
    shows: bool = False  # it may hold pictures: an endpoint that sees them is preferred
    on_failure: Callable[[Endpoint, EngineFailed], None] = _nobody_asks  # of a try that others follow


@dataclass(slots=True)
class _Tries:
    """Where an answer was tried, until one endpoint begins with it."""

    endpoints: list[UUID] = field(default_factory=list)  # by deployment id
    refused: set[UUID] = field(default_factory=set)  # of these, who had too much to do
    again: bool = False  # the only endpoint there is was asked a second time
    has_begun: bool = False
    overload: EngineFailed | None = None  # what the last of these said
    failure: EngineFailed | None = None  # after which it went back into line
    waits_until: float | None = None  # by the clock of the loop


class Pool:
    def __init__(self, registry: Registry, admission: Admission) -> None:
        self._registry = registry
        self._admission = admission

    async def answer(self, ask: Ask) -> AsyncGenerator[list[Event], None]:
        """Use it under `aclosing`. Raises EngineFailed and NoEngineAvailable, and whatever `ask.request` raises."""
        tries = _Tries()
        while True:
            try:
                async with self._turn(ask, tries) as ticket, aclosing(self._try(ask, tries, ticket)) as batches:
                    async for events in batches:
                        yield events
                return
            except EngineFailed as failure:
                if not self._goes_back(tries, failure):
                    raise

    @asynccontextmanager
    async def _turn(self, ask: Ask, tries: _Tries) -> AsyncIterator[Ticket]:
        """In line, as long as it takes; whoever was refused by an engine waits no longer than for its first word."""
        place = self._admission.enter(ask.offer.id, ask.person_id, ask.urgency, cost=ask.cost, on_place=ask.on_place)
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(tries.waits_until):
                    ticket = await stack.enter_async_context(place)
            except TimeoutError:
                assert tries.failure is not None
                raise tries.failure from None
            yield ticket

    async def _try(self, ask: Ask, tries: _Tries, ticket: Ticket) -> AsyncGenerator[list[Event], None]:
        endpoint, usage = self._choose(ask, tries), None
        while True:
            try:
                with self._trying(endpoint):
                    request = await self._prepare(ask, tries, endpoint)
                    async with aclosing(endpoint.client.answer(request)) as batches:
                        async for events in batches:
                            if not tries.has_begun:
                                tries.has_begun = True
                                self._registry.breakers.spoke(endpoint.deployment_id)
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
                    self._note_refusal(tries, endpoint, failure)
                other = self._elsewhere(ask, tries, failure)
                if other is None and not await self._may_try_again(tries, failure):
                    if tries.overload is not None:  # one that is full beside another that takes it tells nothing
                        ticket.refused(tries.overload.retry_after)
                    if self._may_go_back(tries, failure):
                        ask.on_failure(endpoint, failure)
                    raise
                ask.on_failure(endpoint, failure)
                endpoint = other or endpoint

    def _choose(self, ask: Ask, tries: _Tries) -> Endpoint:
        offer = self._registry.offer_for(ask.person_id, ask.offer.id)
        if offer is None:  # withdrawn or taken from the person while it waited, or its last engine is out of service
            raise NoEngineAvailable(_("This model is not offered any more."))
        if offer.in_maintenance:
            raise NoEngineAvailable(_("This model is under maintenance now."))
        if ask.continues is not None:
            able = [each for each in offer.endpoints if each.continues and trials.may_go_on(offer, each, ask.continues)]
            offer = replace(offer, endpoints=tuple(able) or offer.endpoints)
        free = [each for each in offer.endpoints if self._is_free(each, tries)]
        fitting = trials.fitting(offer, ask.affinity, ask.person_id, ask.begun)
        wanted = [each for each in free if each in fitting] or free
        seeing = [each for each in wanted if each.sees] if ask.shows else []
        offer = replace(offer, endpoints=tuple(seeing or wanted) or offer.endpoints)
        return self._registry.choose(offer, ask.affinity, without=tries.endpoints)

    def _is_free(self, endpoint: Endpoint, tries: _Tries) -> bool:
        refuses = self._registry.breakers.refuses(endpoint.deployment_id)
        return endpoint.problem is None and not refuses and endpoint.deployment_id not in tries.endpoints

    async def _prepare(self, ask: Ask, tries: _Tries, endpoint: Endpoint) -> ChatRequest:
        if endpoint.deployment_id not in tries.endpoints:
            tries.endpoints.append(endpoint.deployment_id)
        ask.on_endpoint(endpoint)
        return await ask.request(endpoint)

    @contextmanager
    def _trying(self, endpoint: Endpoint) -> Iterator[None]:
        """What the registry learns from an answer; from the moment on in which the endpoint was chosen."""
        with (
            self._registry.traffic.answering(endpoint.engine_id),
            self._registry.breakers.answering(endpoint.deployment_id),
        ):
            try:
                yield
            except EngineFailed as failure:
                if failure.kind.suspicious:
                    self._registry.look_now(endpoint.engine_id)
                raise

    def _elsewhere(self, ask: Ask, tries: _Tries, failure: EngineFailed) -> Endpoint | None:
        """Another endpoint, as long as no word of the answer was passed on."""
        if tries.has_begun or not failure.kind.elsewhere or len(tries.endpoints) >= _MOST_ENDPOINTS:
            return None
        try:
            return self._choose(ask, tries)
        except NoEngineAvailable:
            return None

    async def _may_try_again(self, tries: _Tries, failure: EngineFailed) -> bool:
        """Once more at the only endpoint there is, after a moment; True when that is over."""
        if tries.has_begun or tries.again or len(tries.endpoints) > 1 or failure.kind is Failure.OVERLOADED:
            return False
        if not failure.kind.passes or (failure.retry_after or 0) > _LONGEST_PAUSE:
            return False
        tries.again = True
        # Spread, so that those who were turned away together do not come back together.
        pause = random.uniform(0.1, 0.4)  # noqa: S311
        await asyncio.sleep(pause if failure.retry_after is None else failure.retry_after + pause / 2)
        return True

    def _note_refusal(self, tries: _Tries, endpoint: Endpoint, failure: EngineFailed) -> None:
        """From the first one on, it waits for as long as for a first word; not for one who asks for more time."""
        moment = asyncio.get_running_loop().time()
        tries.overload = failure
        if tries.waits_until is None:
            tries.waits_until = moment + endpoint.client.first_token_seconds
        if moment + (failure.retry_after or 0) < tries.waits_until:
            tries.refused.add(endpoint.deployment_id)

    def _may_go_back(self, tries: _Tries, failure: EngineFailed) -> bool:
        return bool(tries.refused) and failure.kind.elsewhere and not tries.has_begun

    def _goes_back(self, tries: _Tries, failure: EngineFailed) -> bool:
        """Into line, to those who had too much to do; not to those who failed otherwise."""
        if not self._may_go_back(tries, failure):
            return False
        tries.endpoints = [each for each in tries.endpoints if each not in tries.refused]
        tries.refused.clear()
        tries.overload = None
        tries.failure = failure
        return True

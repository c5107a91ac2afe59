"""The writing of one answer, as a straight line: path, place, endpoint, prompt, engine, last row.

It belongs to the process, not to a request. Every write compares `attempt`, so a writer that was given up finds its row
gone from under it and hangs up on the engine.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import aclosing, suppress
from functools import partial
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from backend.conversations import context, prompt, statements, tree
from backend.conversations.context import Window
from backend.conversations.live import Phase
from backend.conversations.models import MAX_REASON, Status
from backend.conversations.prompt import Step
from backend.conversations.refusals import AccountDeactivated
from backend.conversations.running import Ended, Running
from backend.conversations.titles import Titles
from backend.conversations.tree import PathRow
from backend.conversations.upkeep import save
from backend.core.db import DatabaseGone, Sessions
from backend.core.direct import Direct
from backend.core.errors import AppError, NotFound
from backend.core.i18n import _
from backend.core.ids import made_at, new_id
from backend.core.telemetry import new_support_id, support_id
from backend.core.text import one_line
from backend.engines import trials
from backend.engines.aliases import Aliases
from backend.engines.client import ChatRequest
from backend.engines.events import EngineFailed, Failure, Overflow
from backend.engines.failures import failed
from backend.engines.parameters import JSON_ANSWER
from backend.engines.pool import Ask, Place, Pool, Urgency
from backend.engines.registry import Endpoint, NoEngineAvailable, Registry
from backend.engines.trials import Begun
from backend.files import service as files
from backend.files.prompt import PromptFile, parts
from backend.usage.service import estimate, estimate_cost

log = logging.getLogger(__name__)

_LOOK_AGAIN = 0.1


class CannotGoOn(AppError):
    """No endpoint of the model picks up an answer that broke off."""


class Writer:
    """Writes the answers of a process; `Turns` owns the tasks. Times are in seconds."""

    def __init__(
        self,
        sessions: Sessions,
        direct: Direct,
        registry: Registry,
        pool: Pool,
        titles: Titles,
        *,
        aliases: Aliases,
        retry_every: float,
        patience: float,
    ) -> None:
        """An answer that is taken up again waits `patience` for an engine: it may have been restarted with us."""
        self._sessions = sessions
        self._direct = direct
        self._registry = registry
        self._pool = pool
        self._titles = titles
        self._aliases = aliases
        self._retry_every = retry_every
        self._patience = patience
        self.gives_up = False  # the process ends: nothing is waited for any more

    async def write(self, running: Running) -> Ended | None:
        """To the last row. None: it was left to another process, or somebody else ended it."""
        support_id.set(new_support_id())
        ended = await self._answer(running)
        running.is_ending, running.ended_at = True, time.monotonic()
        if ended is None:
            await self._hand_over(running)
        elif not await self._store_end(running, ended):
            log.warning("an answer was ended by somebody else", extra=running.marks)
            return None
        return ended

    async def _answer(self, running: Running) -> Ended | None:
        """Raises nothing."""
        running.has_begun = True
        try:
            if running.is_cancelled:
                raise asyncio.CancelledError
            rows = await self._rows(running)
            deadline = time.monotonic() + (self._patience if running.resumed else 0)
            if running.earlier:
                await self._until_available(running.offer.id)
            await self._read(running, rows, deadline)
            if running.live.ended_by == "abort":  # it went to sleep, or was shut down in an orderly way
                return Ended(Status.INTERRUPTED, _("The engine broke this answer off."))
            return Ended(Status.DONE)
        except asyncio.CancelledError:
            return Ended(running.verdict, reason_of(running.verdict)) if running.verdict else None
        except EngineFailed as failure:
            if failure.kind is Failure.EMPTY and running.goes_on:
                return Ended(Status.DONE)  # all was said and saved already, only the last row was missing
            return self._failed(running, failure)
        except NoEngineAvailable as error:
            status = Status.INTERRUPTED if running.goes_on else Status.FAILED
            return Ended(status, f"{error} {_advice()}")
        except AppError as error:
            return Ended(Status.INTERRUPTED if running.goes_on else Status.FAILED, str(error))
        except DatabaseGone:
            return Ended(Status.FAILED, _("The database did not answer. Your question is kept."))
        except Exception:
            # The outermost place of a turn: a fault of ours ends as a failed answer, never as silence.
            log.exception("an answer broke off", extra=running.marks)
            sentence = _("Something went wrong on our side (support id {id}). Your question is kept.")
            return Ended(Status.FAILED, sentence.format(id=support_id.get()))

    async def _read(self, running: Running, rows: Sequence[PathRow], deadline: float) -> None:
        """What the engine says becomes the answer. One that is taken over waits until `deadline` for an engine that is
        not ready yet: what ended its first writer may have ended the engine, too."""
        ask = Ask(
            offer=running.offer,
            person_id=running.owner_id,
            affinity=running.conversation_id,
            urgency=Urgency.CHAT,
            cost=_cost(running, rows),
            request=partial(self._prepare, running, rows),
            on_place=partial(self._waits, running),
            on_endpoint=partial(self._goes_to, running),
            on_failure=partial(_note_try, running),
            continues=running.earlier[-1] if running.goes_on else None,
            begun=running.begun,
            shows=any(row.has_files for row in rows),
        )
        while True:
            try:
                async with aclosing(self._pool.answer(ask)) as batches:
                    async for events in batches:
                        running.live.take(events)
                return
            except NoEngineAvailable:
                if time.monotonic() > deadline:
                    raise
            except EngineFailed as failure:
                if not failure.kind.passes or running.live.written or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(self._retry_every)

    def _waits(self, running: Running, place: Place) -> None:
        running.live.wait(place)
        if not place.own:
            self._titles.make_room(running.offer.id)

    def _goes_to(self, running: Running, endpoint: Endpoint) -> None:
        if running.endpoint:
            self._titles.resume(running.endpoint.engine_id)
        running.endpoint = endpoint
        self._titles.make_way(endpoint.engine_id)

    async def _prepare(self, running: Running, rows: Sequence[PathRow], endpoint: Endpoint) -> ChatRequest:
        """What this endpoint is sent."""
        if running.goes_on and not self._can_go_on(running, endpoint):
            raise CannotGoOn(interrupted())
        request = await self._request(running, await self._path(rows, endpoint), endpoint)
        running.live.enter(Phase.READING)
        return request

    def _can_go_on(self, running: Running, endpoint: Endpoint) -> bool:
        offer = self._registry.offer(running.offer.id) or running.offer
        return endpoint.continues and trials.may_go_on(offer, endpoint, running.earlier[-1])

    async def _rows(self, running: Running) -> Sequence[PathRow]:
        found = running.rows
        if found is None:
            messages = await self._direct.as_worker(statements.MESSAGES, {"chat": running.conversation_id})
            found = [PathRow(*row) for row in messages]
        running.rows = None  # a long conversation need not stay in memory for as long as its answer takes
        rows = tree.path(found, running.answer_id)
        running.begun = _begun(running, found)
        if not rows:
            raise NotFound(_("This conversation is not here any more."))
        if not rows[-1].is_welcome:
            raise AccountDeactivated
        return rows

    async def _path(self, rows: Sequence[PathRow], endpoint: Endpoint) -> list[Step]:
        """The messages with their files, as this endpoint can be shown them."""
        carried: dict[UUID, list[PromptFile]] = {}
        if carriers := [row.id for row in rows if row.has_files]:
            async with self._sessions.as_worker() as session:
                carried = await files.for_prompt(session, carriers)
        return [
            Step(
                row.id,
                row.speaker,
                parts(row.text, carried[row.id], sees=endpoint.sees) if row.id in carried else row.text,
                row.instruction,
                row.context_tokens,
                row.context_from,
            )
            for row in rows
        ]

    async def _until_available(self, model_id: UUID) -> None:
        """An answer that is taken up again waits until there is a place where it could come from."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._registry.first_look()
                while not self._is_available(model_id):  # noqa: ASYNC110 - a snapshot tells nobody
                    await asyncio.sleep(_LOOK_AGAIN)

    def _is_available(self, model_id: UUID) -> bool:
        offer = self._registry.offer(model_id)
        return offer is not None and offer.available

    async def _request(self, running: Running, path: Sequence[Step], endpoint: Endpoint) -> ChatRequest:
        """What the engine is sent: as much of the path as it can read, and room for the answer."""
        offer, chosen = running.offer, running.parameters
        shown = context.kept(path)
        max_tokens = chosen.max_tokens
        if endpoint.context_length:
            window = Window.of(endpoint.context_length, chosen.max_tokens)
            shown, tokens = await self._fit(running, shown, endpoint, window)
            if max_tokens is not None:
                max_tokens = max(1, min(max_tokens, window.size - tokens))
        running.context_from = None if shown[0].id == path[0].id else shown[0].id
        running.prompt = prompt.build(shown, offer.system_prompt, system_role=offer.system_role)
        if not any(message["role"] == "user" for message in running.prompt):
            raise NotFound(_("The question of this answer was deleted. Ask it again."))
        return ChatRequest(
            model=endpoint.upstream_name,
            messages=running.prompt,
            max_tokens=max_tokens,
            temperature=chosen.temperature,
            thinking=chosen.thinking,
            response_format=JSON_ANSWER if chosen.json else None,
            continues=running.goes_on,
            priority=Urgency.CHAT,
            **self._aliases.of(running.owner_id, running.conversation_id),
        )

    async def _fit(
        self, running: Running, path: Sequence[Step], endpoint: Endpoint, window: Window
    ) -> tuple[Sequence[Step], int]:
        """The part of the path that fits, and its tokens. Raises EngineFailed when not even the question does."""
        tokens = await self._count(running, path, endpoint, window)
        if tokens > window.for_prompt:
            path = context.cut(path, tokens, window)
            tokens = await self._count(running, path, endpoint, window)
        if tokens > window.for_prompt:
            raise failed(Failure.OVERFLOW, overflow=Overflow(window.for_prompt, tokens))
        return path, tokens

    async def _count(self, running: Running, path: Sequence[Step], endpoint: Endpoint, window: Window) -> int:
        """An estimate while there is plenty of room; near its end the engine is asked, if it can tell."""
        offer = running.offer
        tokens = context.tokens_of(path, offer.system_prompt)
        if window.is_near(tokens):
            messages = prompt.build(path, offer.system_prompt, system_role=offer.system_role)
            with suppress(EngineFailed):  # it will say so itself when it is asked for the answer
                counted = await endpoint.client.count_tokens(
                    endpoint.upstream_name, messages, continues=running.goes_on
                )
                tokens = counted or tokens
        return tokens

    def _failed(self, running: Running, failure: EngineFailed) -> Ended:
        # Of what the engine said only that which is about the engine: a refusal may repeat the question.
        said = failure.detail if failure.kind.suspicious else ""
        log.warning("an answer broke off: %s", failure.kind, extra=running.marks | {"engine_says": said})
        running.failure = failure.kind
        begun = bool(running.live.text or running.live.reasoning)
        cut_off = running.goes_on or (failure.kind.cuts and begun)
        sentence = f"{failure} {_advice()}" if failure.kind.lasts else str(failure)
        return Ended(Status.INTERRUPTED if cut_off else Status.FAILED, sentence)

    async def _store_end(self, running: Running, ended: Ended) -> bool:
        """However long the database is away, and whatever an engine said: an answer that was shown must not be lost."""
        values = _last_row(running, ended)
        while True:
            try:
                return bool(await self._direct.as_worker(statements.END, values))
            except psycopg.DataError:
                log.exception("the facts of an answer cannot be stored, so it ends without them", extra=running.marks)
                values |= _NO_FACTS
            except DatabaseGone:
                if self.gives_up:
                    log.error("the database is away: an answer keeps only what was saved", extra=running.marks)
                    return False
                log.warning("the database is away: the end of an answer waits", extra=running.marks)
                await asyncio.sleep(self._retry_every)

    async def _hand_over(self, running: Running) -> None:
        """Save what there is, and let whoever reaps next take it at once."""
        values = {"ids": [running.answer_id], "attempts": [running.live.attempt]}
        try:
            await save(self._direct, [running])
            await self._direct.as_worker(statements.HAND_OVER, values)
        except DatabaseGone:
            log.error("the database is away: an answer keeps only what was saved", extra=running.marks)


def _note_try(running: Running, endpoint: Endpoint, failure: EngineFailed) -> None:
    """It goes on elsewhere; the log and the provenance tell where it could not."""
    said = failure.detail if failure.kind.suspicious else ""
    log.info("an engine did not begin an answer: %s", failure.kind, extra=running.marks | {"engine_says": said})
    tried = {
        "deployment": str(endpoint.deployment_id),
        "engine": endpoint.engine_name,
        "failure": failure.kind.value,
    }
    if tried not in running.tries[-1:]:  # who waits for a full engine is refused by it again and again
        running.tries.append(tried)


def _begun(running: Running, found: Sequence[PathRow]) -> list[Begun]:
    """What its model answered in the conversation before, on whatever branch, the first one first."""
    others = (row for row in found if row.model_id == running.offer.id and row.id != running.answer_id)
    return [Begun(row.deployment_id, made_at(row.id)) for row in sorted(others, key=lambda row: row.id)]


def _cost(running: Running, rows: Sequence[PathRow]) -> int:
    """What an attachment adds is not known yet."""
    path = [Step(row.id, row.speaker, row.text, row.instruction, row.context_tokens, row.context_from) for row in rows]
    tokens = context.tokens_of(context.kept(path), running.offer.system_prompt)
    return estimate_cost(tokens, running.parameters.max_tokens)


def reason_of(status: Status) -> str:
    """Why an answer ended when it was not the engine that ended it."""
    return interrupted() if status is Status.INTERRUPTED else ""


def interrupted() -> str:
    return _("The server restarted here. The last words before it may be missing.")


def _advice() -> str:
    return _("Choose another model, or tell your administrator.")


#: In place of what an engine said of an answer, if a column refuses it.
_NO_FACTS: dict[str, object] = {
    "provenance": Jsonb({}),
    "ended_by": None,
    "context_tokens": None,
    "prompt_tokens": 0,
    "cached_tokens": None,
    "completion_tokens": 0,
    "estimated": True,
}


def _last_row(running: Running, ended: Ended) -> dict[str, object]:
    live, endpoint = running.live, running.endpoint
    usage = live.usage
    return {
        "answer": running.answer_id,
        "attempt": live.attempt,
        "text": live.text,
        "reasoning": live.reasoning,
        "status": ended.status.value,
        "reason": one_line(ended.reason, MAX_REASON),
        "ended_by": live.ended_by,
        "provenance": Jsonb(running.provenance),
        "context_tokens": running.context_tokens,
        "context_from": running.context_from,
        "is_read": running.readers > 0,
        "usage": new_id(),
        "owner": running.owner_id,
        "model": running.offer.id,
        "engine": endpoint.engine_id if endpoint else None,
        "prompt_tokens": usage.prompt_tokens if usage else estimate(running.prompt_characters),
        "cached_tokens": usage.cached_tokens if usage else None,
        "completion_tokens": usage.completion_tokens if usage else estimate(live.written),
        "estimated": usage is None,
    }

"""One request for an answer, from its first byte to the last of the reply.

    open       as many as one person may have, none in a drain
    read       the body, bounded, and from it a wish (`requests.py`, `prompts.py`)
    ask        through the pool, in line with everybody else
    relay      what one read of the engine brought leaves with one write
    note       what was used, once, however it ended

Until the first text comes a failure has its HTTP status; afterwards it is an event in the stream. A client that goes
away, and a key that is revoked, close the connection to the engine at once. No database connection is held meanwhile.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backend.core.errors import AppError, TooLarge, Unavailable
from backend.core.i18n import _
from backend.engines.aliases import Aliases
from backend.engines.client import ChatRequest
from backend.engines.events import Delta, EngineFailed, Failure, Reasoning, Usage
from backend.engines.failures import failed
from backend.engines.pool import Ask, Place, Pool, Urgency
from backend.engines.registry import Endpoint
from backend.usage.ledger import Ledger
from backend.usage.models import Cause
from backend.usage.service import Call as Counted, estimate
from web.api import requests, shapes
from web.api.callers import Caller
from web.api.calls import Call, Calls
from web.api.catalogue import Catalogue
from web.api.errors import InvalidKey, ModelNotFound, Refused, TooSlow, problem_of
from web.api.pictures import Pictures
from web.api.prompts import Wish
from web.api.shapes import Chunks, Gathered

log = logging.getLogger(__name__)

MOST_BYTES: Final = 16 << 20
"""Of a body; pictures are most of it."""

_BODY_SECONDS = 60.0
_MAINTENANCE_SECONDS = 60
HEARTBEAT_SECONDS = 15.0
_LOOKS = 3  # in that time
_LAST_WORD_SECONDS = 3.0
READER_SECONDS = 60.0
"""How long a client may take nothing: an engine must not work for somebody who does not read."""


@dataclass(frozen=True)
class Desk:
    """What lives as long as the process and every answer needs."""

    calls: Calls
    catalogue: Catalogue
    pictures: Pictures
    pool: Pool
    ledger: Ledger
    aliases: Aliases


class Answer(Response):
    """The reply to `POST /v1/chat/completions`, streamed or whole as the body says."""

    def __init__(self, request: Request, caller: Caller, desk: Desk) -> None:
        super().__init__()
        self._request = request
        self._caller = caller
        self._desk = desk
        self._started = False
        self._spoke_at = time.monotonic()
        self._sending_since: float | None = None

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        self._send = send
        with self._desk.calls.opened(self._caller, _announced(self._request)) as call:
            await self._within(call, receive)

    async def _within(self, call: Call, receive: Receive) -> None:
        body = await _body(self._request)
        if body is None:
            return
        completion = requests.read(body)
        name, wish = await self._wish(completion)
        relay = _Relay(wish, name, call, self._desk)
        writer = asyncio.create_task(self._stream(relay) if completion.stream else self._whole(relay))
        others = [asyncio.create_task(_until_gone(receive)), asyncio.create_task(call.must_end.wait())]
        if completion.stream:
            others.append(asyncio.create_task(self._beat()))
        try:
            await asyncio.wait({writer, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writer, *others):
                task.cancel()
            results = await asyncio.gather(writer, *others, return_exceptions=True)
        if call.must_end.is_set() and isinstance(results[0], asyncio.CancelledError):
            with suppress(TimeoutError):  # whoever does not read must not keep the call open, and a drain waiting
                async with asyncio.timeout(_LAST_WORD_SECONDS):
                    await self._fail(InvalidKey(_("This API key was revoked, or its account disabled.")))
        elif isinstance(results[0], Exception):
            raise results[0]

    async def _wish(self, completion: requests.Completion) -> tuple[str, Wish]:
        found = self._desk.catalogue.find(self._caller, completion.model)
        if found is None:
            raise ModelNotFound(completion.model[:100])
        name, offer = found
        if offer.in_maintenance:
            raise Unavailable(_("This model is under maintenance."), retry_after=_MAINTENANCE_SECONDS)
        pictures = [url for message in completion.messages for url in message.pictures]
        if pictures and not offer.sees:
            raise Refused(_("This model does not take pictures."), param="messages")
        drawn = await self._desk.pictures.drawn(pictures, self._caller.person_id)
        return name, Wish(self._caller.person_id, offer, completion, drawn, self._desk.aliases)

    async def _stream(self, relay: "_Relay") -> None:
        chunks = Chunks(relay.id, relay.name, relay.created, with_usage=relay.wish.completion.wants_usage)
        try:
            async with aclosing(relay.runs()) as batches:
                async for runs in batches:
                    await self._say(chunks.of(runs))
        except (EngineFailed, AppError) as error:
            await self._fail(error)
            return
        await self._say(chunks.end(relay.gathered, shapes.usage_of(relay.usage)), last=True)

    async def _whole(self, relay: "_Relay") -> None:
        said: list[Delta | Reasoning] = []
        try:
            async with aclosing(relay.runs()) as batches:
                async for runs in batches:
                    said += runs
        except (EngineFailed, AppError) as error:
            await self._fail(error)
            return
        reason = relay.gathered.finish_reason
        body = shapes.whole(relay.id, relay.name, relay.created, said, reason, relay.usage)
        await self._reply(Response(body, media_type="application/json"))

    async def _say(self, body: bytes, *, last: bool = False) -> None:
        """The headers go with the first bytes: while there are none a failure can still have its status."""
        self._spoke_at = self._sending_since = time.monotonic()
        if not self._started:
            self._started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
        await self._send({"type": "http.response.body", "body": body, "more_body": not last})
        self._sending_since = None

    async def _beat(self) -> None:
        """A comment after every silence, so that nobody on the way takes the connection for dead. Returns when the
        client has stopped reading."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS / _LOOKS)
            moment = time.monotonic()
            if self._sending_since is not None:
                if moment - self._sending_since > READER_SECONDS:
                    log.info("a program stopped reading its answer")
                    return
            elif moment - self._spoke_at >= HEARTBEAT_SECONDS:
                await self._say(shapes.WAITING)

    async def _fail(self, error: EngineFailed | AppError) -> None:
        problem = problem_of(error)
        if self._started:
            await self._say(shapes.failure(problem.body()), last=True)
        else:
            await self._reply(problem.reply())

    async def _reply(self, reply: Response) -> None:
        self._started = True
        await self._send({"type": "http.response.start", "status": reply.status_code, "headers": reply.raw_headers})
        await self._send({"type": "http.response.body", "body": reply.body})


class _Relay:
    """The engine's part of an answer, and the counting of it."""

    def __init__(self, wish: Wish, name: str, call: Call, desk: Desk) -> None:
        self.id = f"chatcmpl-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.name = name
        self.wish = wish
        self.gathered = Gathered()
        self._call = call
        self._desk = desk
        self._endpoint: Endpoint | None = None
        self._asked = False

    @property
    def usage(self) -> Usage:
        """The engine's own count, else an estimate."""
        guessed = Usage(estimate(self.wish.characters), estimate(self.gathered.written))
        return self.gathered.usage or guessed

    async def runs(self) -> AsyncGenerator[list[Delta | Reasoning]]:
        """Raises EngineFailed and NoEngineAvailable."""
        gathered = self.gathered
        try:
            async with aclosing(self._desk.pool.answer(self._ask())) as batches:
                async for events in batches:
                    if runs := gathered.take(events):
                        yield runs
            if gathered.ended_by == "abort":  # it went to sleep, or was shut down in an orderly way
                raise failed(Failure.CUT)
        except EngineFailed as failure:
            self._asked = self._asked and (gathered.written > 0 or not failure.kind.unserved)
            marks = {"user_id": self._call.caller.person_id, "key_id": self._call.caller.key_id}
            engine = self._endpoint.engine_name if self._endpoint else None
            log.warning("an answer for a program broke off: %s", failure.kind, extra=marks | {"engine": engine})
            raise
        finally:
            self._note()

    def _ask(self) -> Ask:
        wish = self.wish
        return Ask(
            offer=wish.offer,
            person_id=wish.person_id,
            affinity=wish.affinity,
            urgency=Urgency.API,
            cost=wish.cost,
            request=self._request,
            on_place=_nobody_is_told,
            on_endpoint=self._goes_to,
        )

    def _goes_to(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def _request(self, endpoint: Endpoint) -> ChatRequest:
        request = await self.wish.request(endpoint)
        self._asked = True
        return request

    def _note(self) -> None:
        """Also of what was asked for in vain: the engine has read the prompt."""
        if self._endpoint is None or not self._asked:
            return
        counted = Counted(
            self.wish.person_id,
            self.wish.offer.id,
            self._endpoint.engine_id,
            None,
            Cause.API,
            self._call.caller.key_id,
        )
        self._desk.ledger.note(
            counted,
            self.gathered.usage,
            prompt_characters=self.wish.characters,
            written=self.gathered.written,
        )


_STREAM_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]


def _nobody_is_told(_place: Place) -> None:
    """A stream says only that it is alive; OpenAI's shapes have no word for a place in line."""


def _announced(request: Request) -> int:
    """How large the body is said to be; whoever does not say it may send all that is allowed."""
    said = request.headers.get("content-length", "")
    return int(said) if said.isdecimal() else MOST_BYTES


async def _body(request: Request) -> bytes | None:
    """None when the client went away meanwhile."""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await request.body()
    except ClientDisconnect:
        return None
    except TimeoutError:
        raise TooSlow(_("The body of the request did not come.")) from None
    except HTTPException as refused:
        raise TooLarge(_("The request is too large.")) if refused.status_code == 413 else refused from None


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

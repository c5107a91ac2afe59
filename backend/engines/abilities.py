"""What a model can do on its engine, proved by trying: go on with its own unfinished answer, and see pictures.

It is tried when an engine has been looked at, for published models only, and kept with the deployment until the engine
is another one. A wrong no costs people a button; a wrong yes would spoil their answers, so what is unclear is a no.
"""

import base64
import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import exists, update
from sqlalchemy.ext.asyncio import AsyncSession

from backend.engines.client import ChatMessage, ChatRequest, EngineClient
from backend.engines.dialects import Continuation
from backend.engines.events import Delta, EngineFailed, Failure, Usage
from backend.engines.findings import CANNOT_CHAT
from backend.engines.models import Deployment, Engine


@dataclass(frozen=True, slots=True)
class Abilities:
    """None is not known (yet)."""

    continues: bool | None = None
    sees: bool | None = None


class _Beginning(NamedTuple):
    """A question with the beginning of its answer, and how that answer can only go on."""

    question: str
    answer: str
    goes_on: re.Pattern[str]


# The space belongs to the evidence: without it the two halves would not fit together. A new turn begins without one.
_COUNTING = _Beginning(
    "Count from one to ten in words.",
    "One, two, three,",
    re.compile(r"\s+(four|4)\b(?!.*(\bone\b|<))", re.IGNORECASE | re.DOTALL),
)
# Many models take a list up again in a new turn; the second half of a word comes from nothing but going on.
_WEEK = _Beginning("Name the days of the week.", "Monday, Tuesday, Wednes", re.compile("day"))

_FEWEST_TOKENS_OF_A_PICTURE = 3


def untried(engine: Engine) -> Iterable[Deployment]:
    """The deployments of `engine` that people use and of which something is not known, one for each name."""
    names = set()
    for deployment in engine.deployments:
        if deployment.model is None or not deployment.model.published or deployment.missing_since is not None:
            continue
        if None not in (deployment.continues, deployment.sees) or CANNOT_CHAT.search(deployment.upstream_name):
            continue
        if deployment.upstream_name not in names:
            names.add(deployment.upstream_name)
            yield deployment


async def find_out(client: EngineClient, model: str, known: Abilities) -> Abilities:
    """What is not `known` yet, by at most four small requests, one after the other."""
    continues, sees = known.continues, known.sees
    if continues is None:
        continues = await _continues(client, model)
    if sees is None:
        sees = await client.sees(model)
    if sees is None:
        sees = await _sees(client, model)
    return Abilities(continues, sees)


async def store(session: AsyncSession, engine: Engine, upstream_name: str, found: Abilities) -> None:
    """Keep what was found, unless the engine has become another one meanwhile."""
    same = exists().where(
        Engine.id == Deployment.engine_id,
        Engine.url == engine.url,
        Engine.kind.is_not_distinct_from(engine.kind),
        Engine.forced_kind.is_not_distinct_from(engine.forced_kind),
        Engine.version.is_not_distinct_from(engine.version),
    )
    proved = {"continues": found.continues, "sees": found.sees}
    await session.execute(
        update(Deployment)
        .where(Deployment.engine_id == engine.id, Deployment.upstream_name == upstream_name, same)
        .values({ability: has for ability, has in proved.items() if has is not None})
        .execution_options(synchronize_session=False)
    )


async def _continues(client: EngineClient, model: str) -> bool | None:
    """An engine that is known to obey is asked once; any other might pass over what it was told."""
    continuation = client.dialect.continuation
    if continuation is Continuation.REFUSED:
        return False
    for beginning in (_COUNTING,) if continuation is Continuation.OBEYED else (_COUNTING, _WEEK):
        messages: list[ChatMessage] = [
            {"role": "user", "content": beginning.question},
            {"role": "assistant", "content": beginning.answer},
        ]
        try:
            reply = await _ask(client, ChatRequest(model, messages, max_tokens=12, temperature=0, continues=True))
        except EngineFailed as failure:
            return _proved_by(failure)
        if not beginning.goes_on.match(reply.text):
            return False
    return True


async def _sees(client: EngineClient, model: str) -> bool | None:
    """Ask about a picture. Most engines may pass over it, so its tokens have to be in the count."""
    question = "What colour is this?"
    try:
        shown = await _ask(client, _one_token(model, question, picture=True))
        if client.dialect.refuses_pictures:
            return True
        told = await _ask(client, _one_token(model, question))
    except EngineFailed as failure:
        return _proved_by(failure)
    return shown.prompt_tokens >= told.prompt_tokens + _FEWEST_TOKENS_OF_A_PICTURE


def _proved_by(failure: EngineFailed) -> bool | None:
    """An engine that dies of the question is not asked it again."""
    return False if failure.kind.verdict else None


def _one_token(model: str, question: str, *, picture: bool = False) -> ChatRequest:
    messages: Sequence[ChatMessage] = [{"role": "user", "content": question}]
    if picture:
        url = "data:image/png;base64," + base64.b64encode(_picture()).decode()
        messages[0]["content"] = [
            {"type": "text", "text": question},
            {"type": "image_url", "image_url": {"url": url}},
        ]
    return ChatRequest(model, messages, max_tokens=1, temperature=0)


class _Reply(NamedTuple):
    text: str
    prompt_tokens: int


async def _ask(client: EngineClient, request: ChatRequest) -> _Reply:
    """Without text, too: a single token may be one that stands for nothing."""
    text, prompt_tokens = "", 0
    try:
        async with aclosing(client.answer(request)) as batches:
            async for events in batches:
                for event in events:
                    if isinstance(event, Delta):
                        text += event.text
                    elif isinstance(event, Usage):
                        prompt_tokens = event.prompt_tokens
    except EngineFailed as failure:
        if failure.kind is not Failure.EMPTY:
            raise
    return _Reply(text, prompt_tokens)


def _picture(side: int = 64) -> bytes:
    """A red square as a PNG. Some models refuse pictures that are smaller than one of their patches."""
    rows = (b"\0" + b"\xd0\x20\x20" * side) * side

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = chunk(b"IHDR", struct.pack(">2I5B", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")

"""One answer of a fake engine on its way out."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tests.fakes import tokens
from tests.fakes.asked import Aborted, Asked, Json, limit_of
from tests.fakes.script import RESET, STALL, Break, Fault, Pause, Script, Status, Step, Thought
from tests.fakes.serving import Signed, answer, becomes, reset

if TYPE_CHECKING:
    from tests.fakes.engine import FakeEngine

_FOR_EVER = 86_400


class Answering:
    """One answer on its way out."""

    def __init__(self, engine: "FakeEngine", asked: Asked, script: Script, send: Signed) -> None:
        self._engine = engine
        self._asked = asked
        self._script = script
        self._send = send
        self._steps = 0
        self._tokens = 0
        self._first_token_at: float | None = None
        self._dialect = engine.dialect
        self._common = engine.dialect.common(engine, asked)

    async def run(self) -> None:
        engine = self._engine
        try:
            if isinstance(self._script, Status):
                await asyncio.sleep(min(self._script.after, _FOR_EVER))
                await answer(self._send, self._script)
                return
            streams = bool(self._asked.body.get("stream"))
            if streams:
                await self._begin()
            with self._waits():
                await becomes(lambda: not engine._is_full and engine._line[0] is self)
            with self._runs():
                await self._prefill()
                await (self._stream(self._script) if streams else self._whole(self._script))
        except asyncio.CancelledError:
            engine.aborted.append(Aborted(self._asked, time.monotonic(), self._steps))
            raise

    async def say_aside(self) -> None:
        """All at once, whoever has the seats."""
        assert not isinstance(self._script, Status)
        await self._begin()
        words = b"".join(self._word(step) for step in self._script if isinstance(step, str))
        body = self._dialect.opening(self._so_far()) + words + self._ending()
        await self._send({"type": "http.response.body", "body": body})

    @contextlib.contextmanager
    def _waits(self) -> Iterator[None]:
        self._engine._line.append(self)
        try:
            yield
        finally:
            self._engine._line.remove(self)

    @contextlib.contextmanager
    def _runs(self) -> Iterator[None]:
        self._engine.running += 1
        try:
            yield
        finally:
            self._engine.running -= 1

    async def _begin(self) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _prefill(self) -> None:
        engine, asked = self._engine, self._asked
        seconds = engine.ttft + engine.seconds_per_prompt_token * (asked.prompt_tokens - asked.cached_tokens)
        if seconds:
            await asyncio.sleep(seconds)

    async def _stream(self, script: Sequence[Step]) -> None:
        is_exact = any(isinstance(step, bytes) for step in script)
        opening = b"" if is_exact else self._dialect.opening(self._so_far())
        for step in script:
            await becomes(self._engine._gate.is_set)
            match step:
                case str() | Thought():
                    await self._write(opening + self._word(step))
                    opening = b""
                    await self._keep_pace()
                case bytes():
                    await self._write(step)
                case Pause():
                    await asyncio.sleep(step.seconds)
                case Break():
                    await self._break(step)
                case Fault():
                    await self._fail(opening, step)
                    return
                case asyncio.Event() | threading.Event():
                    await becomes(step.is_set)
            self._steps += 1
        if not is_exact:
            await self._write(opening + self._ending())
        await self._send({"type": "http.response.body"})
        self._count_success()

    async def _whole(self, script: Sequence[Step]) -> None:
        """A completion that is not streamed; only the words of the script count."""
        content = "".join(step for step in script if isinstance(step, str))
        reasoning = "".join(step.text for step in script if isinstance(step, Thought)) or None
        self._tokens = len(tokens.encode(content + (reasoning or "")))
        await becomes(self._engine._gate.is_set)
        message = {"role": "assistant", "content": content, "refusal": None, self._dialect.reasoning: reasoning}
        choice = {"index": 0, "message": message, "finish_reason": self._reason(), "stop_reason": None}
        body = {**self._common, "object": "chat.completion", "choices": [choice], "usage": self._usage()}
        await answer(self._send, Status(200, body))
        self._count_success()

    def _word(self, step: str | Thought) -> bytes:
        text = step if isinstance(step, str) else step.text
        self._tokens += max(1, len(tokens.encode(text)))
        write = self._dialect.word if isinstance(step, str) else self._dialect.thought
        return write(self._so_far(), text)

    def _so_far(self) -> Json:
        """What every chunk has, with the count up to here if it was asked for."""
        continuous = (self._asked.body.get("stream_options") or {}).get("continuous_usage_stats")
        return self._common | {"usage": self._usage()} if continuous else self._common

    def _ending(self) -> bytes:
        wanted = (self._asked.body.get("stream_options") or {}).get("include_usage")
        return self._dialect.ending(self._so_far(), self._reason(), self._usage() if wanted else None)

    async def _fail(self, opening: bytes, fault: Fault) -> None:
        for part in (opening, *self._dialect.fault(fault)):
            if isinstance(part, Break):
                await self._break(part)
                return
            await self._write(part)
        await self._send({"type": "http.response.body"})

    def _reason(self) -> str:
        limit = limit_of(self._asked.body)
        return "length" if limit is not None and self._steps >= limit else "stop"

    def _usage(self) -> Json:
        prompt = self._asked.prompt_tokens
        usage: Json = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + self._tokens,
            "completion_tokens": self._tokens,
        }
        if self._dialect.counts_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": self._asked.cached_tokens}
        return usage

    async def _write(self, data: bytes) -> None:
        if self._first_token_at is None:
            self._first_token_at = time.monotonic()
            self._engine.counters.first_token.observe(self._first_token_at - self._asked.at)
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _keep_pace(self) -> None:
        if self._engine.itl:
            await asyncio.sleep(self._engine.itl)

    async def _break(self, way: Break) -> None:
        if way is STALL:
            await asyncio.sleep(_FOR_EVER)
        transport = self._send.transport
        transport.write(b'400\r\ndata: {"choices":[{"del')
        await asyncio.sleep(0.02)
        if way is RESET:
            reset(transport)
        transport.close()

    def _count_success(self) -> None:
        self._engine.counters.finished(self._reason(), self._tokens, time.monotonic() - self._asked.at)

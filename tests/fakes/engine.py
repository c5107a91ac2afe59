"""A double of vLLM 0.32 behind a real uvicorn on a loopback port, in a thread of its own.

    async with FakeEngine() as engine:
        engine.script = ("Well, ", go_on, "yes.")       # every answer, until changed
        engine.plan([T("a"), RESET], refusal(503, "busy"))   # the next answers, in this order
        …
        engine.requests[-1].body, engine.running, engine.aborted

It keeps vLLM's order (200 at once, then silence while the prompt is read, role and first token in one burst), its
bodies, its bounds, its metrics, and it stops within a token when the client goes away. To run one by hand:
`python -m tests.fakes.engine --help`.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import re
import secrets
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeAlias, cast

import uvicorn

from tests.fakes import metrics, refusals, tokens
from tests.fakes.script import (
    DONE,
    END,
    HANG,
    HANG_UP,
    RESET,
    STALL,
    Break,
    Pause,
    Script,
    Status,
    Step,
    T,
    Thought,
    after,
    cut,
    cut_at,
    error,
    event,
    finish,
    refusal,
    usage,
)

__all__ = [
    "DONE",
    "END",
    "HANG",
    "HANG_UP",
    "RESET",
    "STALL",
    "Asked",
    "FakeEngine",
    "Pause",
    "Script",
    "Status",
    "Step",
    "T",
    "Thought",
    "cut",
    "cut_at",
    "error",
    "event",
    "finish",
    "refusal",
    "usage",
]

Json: TypeAlias = dict[str, Any]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
Receive: TypeAlias = Callable[[], Awaitable[Any]]

_LOOK_AGAIN = 0.002
"""Gates are opened from other threads and loops, so the engine looks at them."""

_FOR_EVER = 86_400


@dataclass
class Asked:
    """One request to `/v1/chat/completions`."""

    headers: dict[str, str]
    raw: bytes
    body: Json
    at: float = field(default_factory=time.monotonic)
    prompt_tokens: int = 0
    cached_tokens: int = 0

    @property
    def messages(self) -> list[Json]:
        messages = self.body.get("messages")
        return messages if isinstance(messages, list) else []

    @property
    def last_text(self) -> str:
        return tokens.text_of(self.messages[-1].get("content")) if self.messages else ""

    @property
    def continues(self) -> bool:
        """It asks for the rest of its last message."""
        return bool(self.body.get("continue_final_message")) and not self.body.get("add_generation_prompt", True)


@dataclass(frozen=True)
class Aborted:
    """A client that went away: when, and how many steps it had been sent."""

    asked: Asked
    at: float
    steps: int


def is_title(asked: Asked) -> bool:
    """Titles are the only answers of at most 32 tokens that the product asks for."""
    limit = asked.body.get("max_tokens")
    return isinstance(limit, int) and limit <= 32


_COUNTING = ("One, ", "two, ", "three, ", "four, ", "five, ", "six, ", "seven, ", "eight, ", "nine, ", "ten.")
_PROBES: dict[str, Sequence[Step]] = {
    "Count from one to ten in words.": _COUNTING,
    "Name the days of the week.": ("Monday, ", "Tuesday, ", "Wednesday, ", "Thursday."),
    "What colour is this?": ("Red.",),
}


def is_probe(asked: Asked) -> bool:
    """What the product asks an engine to learn what it can do, before anybody asks anything."""
    limit = asked.body.get("max_tokens")
    question = tokens.text_of(asked.messages[0].get("content")) if asked.messages else ""
    return question in _PROBES and isinstance(limit, int) and limit <= 12


class FakeEngine:
    """Everything may be changed while it runs; requests that have begun keep what they began with."""

    def __init__(
        self,
        *,
        models: Sequence[str] = ("fake-8b",),
        adapters: Sequence[str] = (),
        api_key: str | None = None,
        port: int = 0,
        window: int = 32_768,
        ttft: float = 0,
        seconds_per_prompt_token: float = 0,
        itl: float = 0,
        seats: int | None = None,
        queue: int | None = None,
        load_seconds: float = 0,
        answers_while_loading: bool = False,
        alternating: bool = False,
        system_role: bool = True,
        continues: bool = True,
        sees: bool = True,
        keep_alive: int = 5,
    ) -> None:
        """`seats` is how many answers run at once, `queue` how many may wait; `alternating` is strict about roles.

        Without `continues` it passes over the fields and begins anew, as many engines do; without `sees` it refuses
        pictures.
        """
        self.models = list(models)
        self.adapters = list(adapters)
        self.api_key = api_key
        self.window = window
        self.ttft = ttft
        self.seconds_per_prompt_token = seconds_per_prompt_token
        self.itl = itl
        self.seats = seats
        self.queue = queue
        self.load_seconds = load_seconds
        self.answers_while_loading = answers_while_loading
        self.alternating = alternating
        self.system_role = system_role
        self.continues = continues
        self.sees = sees

        self.script: Script | None = None
        """For every answer that has no plan; without one the question is repeated.

        An unfinished answer that begins like a script is continued with the rest of it.
        """
        self.title_script: Script = ("A short ", "title")
        self.is_title: Callable[[Asked], bool] = is_title
        self.version = "0.32.0"

        self.requests: list[Asked] = []
        self.probes: list[Asked] = []
        """Answered aside: at once, from no plan, without a seat, uncounted, and no part of `requests`."""
        self.counted: list[Json] = []
        """What it was asked to count the tokens of."""
        self.aborted: list[Aborted] = []
        self.running = 0
        self.cache = tokens.PrefixCache()
        self.counters = metrics.Counters()

        self.port = port
        self._keep_alive = keep_alive
        self._plans: deque[Script] = deque()
        self._line: deque[_Answering] = deque()
        self._gate = threading.Event()
        self._gate.set()
        self._numbers = itertools.count()
        self._loading_until = 0.0
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._listening = threading.Event()
        self._server: uvicorn.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # What a test says and asks

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def plan(self, *scripts: Script) -> None:
        """One script for each of the next answers; titles take none."""
        self._plans.extend(scripts)

    def hold(self) -> None:
        """Every answer stops before its next step, until `release`."""
        self._gate.clear()

    def release(self) -> None:
        self._gate.set()

    @property
    def is_listening(self) -> bool:
        return self._listening.is_set()

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def questions(self) -> list[Asked]:
        return [asked for asked in self.requests if not self.is_title(asked)]

    @property
    def titles(self) -> list[Asked]:
        return [asked for asked in self.requests if self.is_title(asked)]

    async def until(self, condition: Callable[[Self], bool], seconds: float = 5) -> None:
        """Wait for something to have happened here."""
        async with asyncio.timeout(seconds):
            await _becomes(lambda: condition(self))

    def wait_until(self, condition: Callable[[Self], bool], seconds: float = 5) -> None:
        """The same for tests without a loop."""
        deadline = time.monotonic() + seconds
        while not condition(self):
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(_LOOK_AGAIN)

    # Its life

    def start(self) -> Self:
        """Bind the port, and listen on it once loaded: until then the connection is refused, as by vLLM."""
        # Asyncio switches Nagle's algorithm off only where the protocol is named; it would hold tokens back for 40 ms.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._loading_until = time.monotonic() + self.load_seconds
        self._stop.clear()
        self._listening.clear()
        self._thread = threading.Thread(target=self._run, args=(listener,), name="fake engine", daemon=True)
        self._thread.start()
        if self.answers_while_loading or not self.load_seconds:
            self._listening.wait()
        return self

    def stop(self) -> None:
        """Away at once, with every connection, as after `kill -9`; may be started again on the same port."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
            self._listening.clear()

    def reset_connections(self) -> None:
        """Reset every connection, idle ones too, and go on listening."""
        assert self._loop is not None
        done = threading.Event()

        def reset() -> None:
            assert self._server is not None
            for connection in list(self._server.server_state.connections):
                _reset(connection.transport)
            done.set()

        self._loop.call_soon_threadsafe(reset)
        done.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        await asyncio.to_thread(self.stop)

    def _run(self, listener: socket.socket) -> None:
        with listener:
            if not self.answers_while_loading:
                self._stop.wait(self.load_seconds)
            if not self._stop.is_set():
                asyncio.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            ws="none",
            timeout_keep_alive=self._keep_alive,
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener])
        ticking = asyncio.create_task(server.main_loop())
        self._server, self._loop = server, asyncio.get_running_loop()
        self._listening.set()
        await _becomes(self._stop.is_set)
        ticking.cancel()
        for listening in server.servers:
            listening.close()
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        await asyncio.gather(ticking, *server.server_state.tasks, return_exceptions=True)

    # HTTP

    async def _app(self, scope: Json, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path = scope["path"]
        if path.startswith("/v1/") and self.api_key and headers.get("authorization") != f"Bearer {self.api_key}":
            await _answer(send, Status(401, {"error": "Unauthorized"}))
            return
        if time.monotonic() < self._loading_until:
            await _answer(send, refusals.LOADING)
            return
        raw = await _read_body(receive)
        if (scope["method"], path) == ("POST", "/v1/chat/completions"):
            await self._chat(headers, raw, receive, send)
        else:
            await _answer(send, self._page(scope["method"], path, raw))

    def _page(self, method: str, path: str, raw: bytes) -> Status:
        match method, path:
            case "GET", "/health" | "/ping":
                return Status(200)
            case "GET", "/version":
                return Status(200, {"version": self.version})
            case "GET", "/v1/models":
                return Status(200, {"object": "list", "data": self._cards()})
            case "GET", "/metrics":
                return Status(200, self._metrics().encode(), {"content-type": "text/plain; version=1.0.0"})
            case "POST", "/tokenize":
                return self._tokenize(json.loads(raw))
            case "POST", "/v1/chat/completions/input_tokens":
                return self._count(json.loads(raw))
            case "POST", "/detokenize":
                return Status(200, {"prompt": tokens.decode(json.loads(raw)["tokens"])})
            case "GET", "/__fake/state":
                return Status(200, self._state())
        return Status(404, {"detail": "Not Found"})

    def _cards(self) -> list[Json]:
        cards = [self._card(name, "/weights/fake-8b", None, self.window) for name in self.models]
        return cards + [self._card(name, f"/adapters/{name}", self.models[0], None) for name in self.adapters]

    def _card(self, name: str, root: str, parent: str | None, window: int | None) -> Json:
        now = int(time.time())
        permission = {"id": f"modelperm-{secrets.token_hex(8)}", "object": "model_permission", "created": now}
        return {
            "id": name,
            "object": "model",
            "created": now,
            "owned_by": "vllm",
            "root": root,
            "parent": parent,
            "max_model_len": window,
            "permission": [permission],
        }

    def _tokenize(self, body: Json) -> Status:
        self.counted.append(body)
        found = _encode(body) if "messages" in body else tokens.encode(body["prompt"])
        return Status(200, {"count": len(found), "max_model_len": self.window, "tokens": found, "token_strs": None})

    def _count(self, body: Json) -> Status:
        """As llama.cpp counts."""
        self.counted.append(body)
        return Status(200, {"object": "response.input_tokens", "input_tokens": len(_encode(body))})

    def _state(self) -> Json:
        last = self.aborted[-1] if self.aborted else None
        return {
            "requests": len(self.requests),
            "running": self.running,
            "waiting": self.waiting,
            "aborted": len(self.aborted),
            "last_aborted_after_steps": last.steps if last else None,
        }

    def _metrics(self) -> str:
        gauges = {
            "num_requests_running": self.running,
            "num_requests_waiting": self.waiting,
            "kv_cache_usage_perc": 0.0,
        }
        totals = {"prefix_cache_queries": self.cache.queries, "prefix_cache_hits": self.cache.hits}
        return self.counters.text(self.models[0], gauges, totals)

    # A chat

    async def _chat(self, headers: dict[str, str], raw: bytes, receive: Receive, send: Send) -> None:
        try:
            body = json.loads(raw)
        except ValueError:
            await _answer(send, refusals.bad_json(raw))
            return
        asked = Asked(headers, raw, body)
        probes = is_probe(asked)
        (self.probes if probes else self.requests).append(asked)
        if complaint := self._complaint(body):
            await _answer(send, complaint)
            return
        if probes:
            asked.prompt_tokens = len(_encode(body))
            script = self._from_where_it_stopped(_PROBES[tokens.text_of(asked.messages[0]["content"])], asked)
            await _Answering(self, asked, script, send).say_aside()
            return
        if self._is_full and self.queue is not None and self.waiting >= self.queue:
            self.counters.rejected += 1
            await _answer(send, refusals.BUSY)
            return
        self._look_up(asked)
        script = self._next_script(asked)
        writing = asyncio.create_task(_Answering(self, asked, script, send).run())
        leaving = asyncio.create_task(_left(receive))
        done, _pending = await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if writing not in done:
            writing.cancel()
        leaving.cancel()
        await asyncio.gather(writing, leaving, return_exceptions=True)
        if not writing.cancelled() and (mistake := writing.exception()):
            raise mistake

    def _next_script(self, asked: Asked) -> Script:
        if self.is_title(asked):
            return self.title_script
        if self._plans:
            return self._from_where_it_stopped(self._plans.popleft(), asked)
        if self.script is not None:
            return self._from_where_it_stopped(self.script, asked)
        pieces = self._from_where_it_stopped(_echo(asked), asked)
        limit = asked.body.get("max_tokens")
        return pieces[:limit] if isinstance(limit, int) and not isinstance(pieces, Status) else pieces

    def _from_where_it_stopped(self, script: Script, asked: Asked) -> Script:
        if isinstance(script, Status) or not (asked.continues and self.continues):
            return script
        return after(script, asked.last_text)

    def _look_up(self, asked: Asked) -> None:
        found = _encode(asked.body)
        asked.prompt_tokens = len(found)
        asked.cached_tokens = self.cache.look_up(found, str(asked.body.get("cache_salt", "")))
        self.counters.prompt_tokens += asked.prompt_tokens
        self.counters.cached_tokens += asked.cached_tokens

    def _complaint(self, body: Json) -> Status | None:
        name = body.get("model")
        if name is not None and name not in (*self.models, *self.adapters):
            return refusals.unknown_model(name, self.models)
        return (
            refusals.malformed(body, sees=self.sees)
            or refusals.disorder(body["messages"], alternating=self.alternating, system_role=self.system_role)
            or refusals.too_long(body, self.window)
        )

    @property
    def _is_full(self) -> bool:
        return self.seats is not None and self.running >= self.seats


class _Answering:
    """One answer on its way out."""

    def __init__(self, engine: FakeEngine, asked: Asked, script: Script, send: Send) -> None:
        self._engine = engine
        self._asked = asked
        self._script = script
        self._send = send
        self._steps = 0
        self._tokens = 0
        self._first_token_at: float | None = None
        name = asked.headers.get("x-request-id") or secrets.token_hex(8)
        self._common: Json = {
            "id": f"chatcmpl-{name}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": engine.models[0],
        }

    async def run(self) -> None:
        engine = self._engine
        try:
            if isinstance(self._script, Status):
                await asyncio.sleep(min(self._script.after, _FOR_EVER))
                await _answer(self._send, self._script)
                return
            streams = bool(self._asked.body.get("stream"))
            if streams:
                await self._begin()
            with self._waits():
                await _becomes(lambda: not engine._is_full and engine._line[0] is self)
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
        body = self._chunk({"role": "assistant", "content": ""}) + words + self._ending()
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
        opening = b"" if is_exact else self._chunk({"role": "assistant", "content": ""})
        for step in script:
            await _becomes(self._engine._gate.is_set)
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
                case asyncio.Event() | threading.Event():
                    await _becomes(step.is_set)
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
        await _becomes(self._engine._gate.is_set)
        message = {"role": "assistant", "content": content, "refusal": None, "reasoning": reasoning}
        choice = {"index": 0, "message": message, "finish_reason": self._reason(), "stop_reason": None}
        body = {**self._common, "object": "chat.completion", "choices": [choice], "usage": self._usage()}
        await _answer(self._send, Status(200, body))
        self._count_success()

    def _word(self, step: str | Thought) -> bytes:
        text = step if isinstance(step, str) else step.text
        self._tokens += max(1, len(tokens.encode(text)))
        return self._chunk({"content": text} if isinstance(step, str) else {"reasoning": text})

    def _chunk(self, delta: Json, reason: str | None = None) -> bytes:
        choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        if reason is not None:
            choice["stop_reason"] = None
        payload = {**self._common, "choices": [{**choice, "token_ids": None}]}
        options = self._asked.body.get("stream_options") or {}
        if options.get("continuous_usage_stats"):
            payload["usage"] = self._usage()
        return event(payload)

    def _ending(self) -> bytes:
        ending: bytes = self._chunk({"content": ""}, self._reason())
        if (self._asked.body.get("stream_options") or {}).get("include_usage"):
            ending += event({**self._common, "choices": [], "usage": self._usage(), "system_fingerprint": "vllm-fake"})
        return ending + DONE

    def _reason(self) -> str:
        limit = self._asked.body.get("max_tokens")
        return "length" if isinstance(limit, int) and self._steps >= limit else "stop"

    def _usage(self) -> Json:
        prompt = self._asked.prompt_tokens
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + self._tokens,
            "completion_tokens": self._tokens,
            "prompt_tokens_details": {"cached_tokens": self._asked.cached_tokens},
        }

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
        transport = self._send.__self__.transport  # type: ignore[attr-defined]
        transport.write(b'400\r\ndata: {"choices":[{"del')
        await asyncio.sleep(0.02)
        if way is RESET:
            _reset(transport)
        transport.close()

    def _count_success(self) -> None:
        self._engine.counters.finished(self._reason(), self._tokens, time.monotonic() - self._asked.at)


def _echo(asked: Asked) -> Script:
    """The question again."""
    asks = [message for message in asked.messages if message.get("role") == "user"]
    question = tokens.text_of(asks[-1].get("content")) if asks else ""
    return re.findall(r"\s*\S+|\s+$", f"You asked: {question}")


def _encode(body: Json) -> list[int]:
    """The prompt that a chat, or a question for its length, comes to."""
    return tokens.encode_chat(
        body["messages"],
        answers=body.get("add_generation_prompt", True),
        continues=body.get("continue_final_message", False),
    )


async def _becomes(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(_LOOK_AGAIN)


def _reset(transport: Any) -> None:
    """Close with a reset instead of an end."""
    linger = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()


async def _read_body(receive: Receive) -> bytes:
    raw = b""
    while True:
        message = await receive()
        raw += cast(bytes, message.get("body", b""))
        if not message.get("more_body"):
            return raw


async def _left(receive: Receive) -> None:
    """Until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(send: Send, answer: Status) -> None:
    headers = [(name.encode(), value.encode()) for name, value in answer.all_headers().items()]
    content = answer.content()
    headers.append((b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def main() -> None:
    parser = argparse.ArgumentParser(description="A fake vLLM that repeats what it is asked.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--model", action="append", help="may be given several times")
    parser.add_argument("--api-key")
    parser.add_argument("--window", type=int, default=32_768)
    parser.add_argument("--ttft", type=float, default=0.1, help="seconds to the first token")
    parser.add_argument("--itl", type=float, default=0.02, help="seconds between tokens")
    parser.add_argument("--seats", type=int, help="answers at the same time")
    options = parser.parse_args()
    engine = FakeEngine(
        models=options.model or ["fake-8b"],
        api_key=options.api_key,
        port=options.port,
        window=options.window,
        ttft=options.ttft,
        itl=options.itl,
        seats=options.seats,
    )
    with engine, contextlib.suppress(KeyboardInterrupt):
        print(f"{engine.url}  {', '.join(engine.models)}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()

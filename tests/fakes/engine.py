"""A double of an inference engine behind a real uvicorn on a loopback port, in a thread of its own.

    async with FakeEngine() as engine:
        engine.script = ("Well, ", go_on, "yes.")       # every answer, until changed
        engine.plan([T("a"), RESET], refusal(503, "busy"))   # the next answers, in this order
        …
        engine.requests[-1].body, engine.running, engine.aborted

It is a vLLM 0.32 unless told to be another kind (`FakeEngine(kind=Kind.OLLAMA)`): it keeps vLLM's order (200 at once,
then silence while the prompt is read, role and first token in one burst), its bodies, its bounds, its metrics, and it
stops within a token when the client goes away. To run one by hand: `python -m tests.fakes.engine --help`.
"""

import argparse
import asyncio
import contextlib
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from backend.engines.kinds import Kind
from tests.fakes import dialects, metrics, tokens
from tests.fakes.answering import Answering
from tests.fakes.asked import PROBES, Aborted, Asked, Json, is_probe, is_title, limit_of
from tests.fakes.script import (
    DONE,
    END,
    HANG,
    HANG_UP,
    RESET,
    STALL,
    Fault,
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
from tests.fakes.serving import LOOK_AGAIN, Receive, Send, Serving, Signed, answer, becomes, left, read_body

__all__ = [
    "DONE",
    "END",
    "HANG",
    "HANG_UP",
    "RESET",
    "STALL",
    "Asked",
    "FakeEngine",
    "Fault",
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


class FakeEngine(Serving):
    """Everything may be changed while it runs; requests that have begun keep what they began with."""

    def __init__(
        self,
        *,
        kind: Kind = Kind.VLLM,
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
        dev_mode: bool = False,
    ) -> None:
        """`seats` is how many answers run at once, `queue` how many may wait; `alternating` is strict about roles.

        Without `continues` it passes over the fields and begins anew, as many engines do; without `sees` it refuses
        pictures; `dev_mode` opens the routes that vLLM keeps closed.
        """
        super().__init__(port=port, keep_alive=keep_alive)
        self.dialect = dialects.ALL[kind]
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
        self.version = self.dialect.version
        self.weights = "/weights/fake-8b"
        """What it tells about the revision of its models."""
        self.is_dead = False
        """It says so where it is asked how it is, and still lists its models."""
        self.dev_mode = dev_mode
        self.is_asleep = False
        self.loaded: set[str] = set()
        self.kept: set[str] = set()
        """Models that it loads by itself or is told to; kept are those that stay."""

        self.requests: list[Asked] = []
        self.probes: list[Asked] = []
        """Answered aside: at once, from no plan, without a seat, uncounted, and no part of `requests`."""
        self.counted: list[Json] = []
        """What it was asked to count the tokens of."""
        self.aborted: list[Aborted] = []
        self.running = 0
        self.cache = tokens.PrefixCache()
        self.counters = metrics.Counters()

        self._plans: deque[Script] = deque()
        self._line: deque[Answering] = deque()
        self._gate = threading.Event()
        self._gate.set()

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
            await becomes(lambda: condition(self))

    def wait_until(self, condition: Callable[[Self], bool], seconds: float = 5) -> None:
        """The same for tests without a loop."""
        deadline = time.monotonic() + seconds
        while not condition(self):
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(LOOK_AGAIN)

    def before_leaving(self) -> None:
        self.release()

    # HTTP

    async def app(self, scope: Json, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method, path = scope["method"], scope["path"]
        signed = Signed(send, self.dialect.signature)
        if refused := self.dialect.refuses_key(self, path, headers):
            await answer(signed, refused)
            return
        if self.is_loading:
            await answer(signed, self.dialect.loading)
            return
        raw = await read_body(receive)
        if (method, path) == ("POST", "/v1/chat/completions"):
            await self._chat(headers, raw, receive, signed)
        else:
            await answer(signed, self._page(method, path, raw))

    def _page(self, method: str, path: str, raw: bytes) -> Status:
        match method, path:
            case "GET", "/v1/models":
                return Status(200, self.dialect.models(self))
            case "GET", "/__fake/state":
                return Status(200, self._state())
        return self.dialect.page(self, method, path, raw) or Status(404, {"detail": "Not Found"})

    def _state(self) -> Json:
        last = self.aborted[-1] if self.aborted else None
        return {
            "requests": len(self.requests),
            "running": self.running,
            "waiting": self.waiting,
            "aborted": len(self.aborted),
            "last_aborted_after_steps": last.steps if last else None,
        }

    def metrics(self) -> str:
        gauges = {
            "num_requests_running": self.running,
            "num_requests_waiting": self.waiting,
            "kv_cache_usage_perc": 0.0,
        }
        totals = {"prefix_cache_queries": self.cache.queries, "prefix_cache_hits": self.cache.hits}
        return self.counters.text(self.models[0], gauges, totals)

    # A chat

    async def _chat(self, headers: dict[str, str], raw: bytes, receive: Receive, send: Signed) -> None:
        try:
            body = json.loads(raw)
        except ValueError:
            await answer(send, self.dialect.bad_json(raw))
            return
        asked = Asked(headers, raw, body)
        probes = is_probe(asked)
        (self.probes if probes else self.requests).append(asked)
        if complaint := self.dialect.complaint(self, body):
            await answer(send, complaint)
            return
        if probes:
            asked.prompt_tokens = len(tokens.encode_body(body))
            script = self._from_where_it_stopped(PROBES[tokens.text_of(asked.messages[0]["content"])], asked)
            await Answering(self, asked, script, send).say_aside()
            return
        if self._is_full and self.queue is not None and self.waiting >= self.queue:
            self.counters.rejected += 1
            await answer(send, self.dialect.busy)
            return
        self._look_up(asked)
        script = self._next_script(asked)
        writing = asyncio.create_task(Answering(self, asked, script, send).run())
        leaving = asyncio.create_task(left(receive))
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
        limit = limit_of(asked.body)
        return pieces[:limit] if limit is not None and not isinstance(pieces, Status) else pieces

    def _from_where_it_stopped(self, script: Script, asked: Asked) -> Script:
        if isinstance(script, Status) or not (asked.continues and self.continues):
            return script
        return after(script, asked.last_text)

    def _look_up(self, asked: Asked) -> None:
        found = tokens.encode_body(asked.body)
        asked.prompt_tokens = len(found)
        asked.cached_tokens = self.cache.look_up(found, str(asked.body.get("cache_salt", "")))
        self.counters.prompt_tokens += asked.prompt_tokens
        self.counters.cached_tokens += asked.cached_tokens

    @property
    def _is_full(self) -> bool:
        return self.seats is not None and self.running >= self.seats


def _echo(asked: Asked) -> Script:
    """The question again."""
    asks = [message for message in asked.messages if message.get("role") == "user"]
    question = tokens.text_of(asks[-1].get("content")) if asks else ""
    return re.findall(r"\s*\S+|\s+$", f"You asked: {question}")


def main() -> None:
    parser = argparse.ArgumentParser(description="A fake engine that repeats what it is asked.")
    parser.add_argument("--kind", type=Kind, choices=list(Kind), default=Kind.VLLM)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--model", action="append", help="may be given several times")
    parser.add_argument("--api-key")
    parser.add_argument("--window", type=int, default=32_768)
    parser.add_argument("--ttft", type=float, default=0.1, help="seconds to the first token")
    parser.add_argument("--itl", type=float, default=0.02, help="seconds between tokens")
    parser.add_argument("--seats", type=int, help="answers at the same time")
    options = parser.parse_args()
    engine = FakeEngine(
        kind=options.kind,
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

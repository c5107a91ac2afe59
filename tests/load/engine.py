"""An engine that is never what is slow: prepared chunks in vLLM's form, written straight to the socket.

    python -m tests.load.engine --port 8000

The question says what to answer: `plan("t1", "rich", 200, 20)` asks for 200 tokens of rich text at 20 a second; at 0 a
second they come as fast as the connection takes them. `GET /load/asked` tells when each plan arrived, when its first
token left, and when its reader hung up, on the machine's monotonic clock, which all processes here share.
"""

import argparse
import asyncio
import json
import re
import socket
import time
from dataclasses import asdict, dataclass
from functools import cache
from itertools import cycle, islice
from typing import cast

import uvloop

MODEL = "load-8b"
WINDOW = 131_072
FIRST, LAST = "Prologue", "\n\nFinis"
_BURST = 64  # chunks for one write when there is no pace

_PLAIN = """: once upon a time there was a company that wanted its own assistant, on its own machines, for its \
own people. It did not have to know everything; it had to be there in the morning, answer at once, and never lose a \
word of what it had said. So they wrote down what they expected of it, and measured whether it was so.

The first thing they found was that nobody minds a short wait, but everybody minds a pause in the middle of a \
sentence. The second was that most of the time went into things nobody had asked for.

"""
_RICH = """, with **more** in short: the *plan* is `queued`, then `streaming`, then **done**. See [the notes](/notes).

1. **Ask** with `POST /chat`, and read the reply.
2. Open the stream, and keep the *cursor*.
3. When it ends, the **finished** message takes the place of the open one.

```python
def follow(answer: Answer, since: int = 0) -> Iterator[str]:
    while not answer.finished:
        text = answer.text[since:]
        since += len(text)
        yield text  # a slow reader skips, a late one joins
```

- a list with `code` and **bold** words
- and *another* line of it, which is a little longer

| what | before | after |
|---|---|---|
| first token | 160 ms | **8 ms** |
| a turn | 302 ms | 5 ms |

"""
_TEXTS = {"plain": _PLAIN, "rich": _RICH}
_TOKEN = re.compile(r"\n+| ?\w{1,6}|[^\w\s]{1,3}|\s")
_PLAN = re.compile(rb"load (\S+) (plain|rich) (\d+) (\d+)")


def plan(mark: str, kind: str, tokens: int, per_second: int) -> str:
    """The words of a question that bring about this answer."""
    return f"load {mark} {kind} {tokens} {per_second}"


@cache
def pieces(kind: str, tokens: int) -> tuple[str, ...]:
    """The answer, cut as a tokenizer would: five characters or so each."""
    if tokens < 2:
        return (FIRST + LAST,)
    return (FIRST, *islice(cycle(_TOKEN.findall(_TEXTS[kind])), tokens - 2), LAST)


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": None}
    chunk = {"id": "chatcmpl-97bb8b3040beefdf", "object": "chat.completion.chunk", "created": 1_796_046_102,
             "model": MODEL, "choices": [choice]}  # fmt: skip
    return _framed(b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n")


@cache
def _chunks(kind: str, tokens: int) -> tuple[bytes, ...]:
    return tuple(_event({"content": piece}) for piece in pieces(kind, tokens))


_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n" + _event({"role": "assistant", "content": ""})
)


def _end(prompt_bytes: int, tokens: int) -> bytes:
    prompt = prompt_bytes // 4
    usage = {"prompt_tokens": prompt, "total_tokens": prompt + tokens, "completion_tokens": tokens}
    last = {"id": "chatcmpl-97bb8b3040beefdf", "object": "chat.completion.chunk", "created": 1_796_046_102,
            "model": MODEL, "choices": [], "usage": usage}  # fmt: skip
    return (
        _event({"content": ""}, "stop")
        + _framed(b"data: " + json.dumps(last, separators=(",", ":")).encode() + b"\n\n")
        + _framed(b"data: [DONE]\n\n")
        + b"0\r\n\r\n"
    )


@dataclass
class Asked:
    """One request for an answer; times are `time.monotonic()`."""

    mark: str
    arrived: float
    first_sent: float = 0
    sent: int = 0
    ended: float = 0
    whole: bool = False


class Engine:
    """What all connections share."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.running = 0

    def page(self, method: bytes, path: bytes, body: bytes) -> bytes:
        match method, path:
            case b"GET", b"/v1/models":
                card = {"id": MODEL, "object": "model", "created": 1, "owned_by": "vllm", "root": MODEL,
                        "parent": None, "max_model_len": WINDOW}  # fmt: skip
                return _page({"object": "list", "data": [card]})
            case b"GET", b"/version":
                return _page({"version": "0.32.0"})
            case b"GET", b"/health":
                return _page({})
            case b"POST", b"/tokenize":
                count = len(body) // 4
                return _page({"count": count, "max_model_len": WINDOW, "tokens": [7] * count, "token_strs": None})
            case b"GET", b"/load/asked":
                asked, self.asked = self.asked, [one for one in self.asked if not one.ended]
                return _page([asdict(one) for one in asked])
        return _page({"detail": "Not Found"}, b"404 Not Found")


def _page(value: object, status: bytes = b"200 OK") -> bytes:
    body = json.dumps(value).encode()
    head = b"HTTP/1.1 %s\r\nserver: uvicorn\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body


class Connection(asyncio.Protocol):
    """One client; one request at a time, as HTTP clients do it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._asked: Asked | None = None
        self._timer: asyncio.Handle | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
        if self._asked:
            self._over(whole=False)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._asked and not self._pace:
            self._rush()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        size = int(length[1]) if length else 0
        if len(rest) < size:
            return
        arrived = time.monotonic()
        body = bytes(rest[:size])
        self._received = rest[size:]
        method, path, *_more = bytes(head).split(b" ", 2)
        if path == b"/v1/chat/completions":
            self._answer(arrived, body)
        else:
            self._transport.write(self._engine.page(method, path, body))

    def _answer(self, arrived: float, body: bytes) -> None:
        plans = _PLAN.findall(body)
        mark, kind, tokens, pace = plans[-1] if plans else (b"", b"plain", b"4", b"0")
        self._asked = Asked(mark.decode(), arrived)
        self._engine.asked.append(self._asked)
        self._engine.running += 1
        self._chunks = _chunks(kind.decode(), int(tokens))
        self._pace = int(pace)
        self._end = _end(len(body), int(tokens))
        self._asked.first_sent = time.monotonic()
        self._transport.write(_HEAD + self._chunks[0])
        self._asked.sent = 1
        self._next()

    def _next(self) -> None:
        assert self._asked is not None
        if self._asked.sent >= len(self._chunks):
            self._transport.write(self._end)
            self._over(whole=True)
        elif self._pace:
            due = self._asked.first_sent + self._asked.sent / self._pace
            self._timer = self._loop.call_at(due + self._loop.time() - time.monotonic(), self._tick)
        else:
            self._timer = self._loop.call_soon(self._rush)

    def _tick(self) -> None:
        """What is due by now: one chunk, or several when the machine held us up."""
        assert self._asked is not None
        due = min(int((time.monotonic() - self._asked.first_sent) * self._pace) + 1, len(self._chunks))
        for chunk in self._chunks[self._asked.sent : due]:
            self._transport.write(chunk)
        self._asked.sent = max(due, self._asked.sent)
        self._next()

    def _rush(self) -> None:
        if self._paused or self._asked is None:
            return
        burst = self._chunks[self._asked.sent : self._asked.sent + _BURST]
        self._transport.write(b"".join(burst))
        self._asked.sent += len(burst)
        if not self._paused:
            self._next()

    def _over(self, *, whole: bool) -> None:
        assert self._asked is not None
        self._asked.ended, self._asked.whole = time.monotonic(), whole
        self._asked = None
        self._engine.running -= 1


async def listen(port: int = 0) -> asyncio.Server:
    """Serve in this loop, on loopback."""
    engine = Engine()
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    return await asyncio.get_running_loop().create_server(lambda: Connection(engine), sock=listener)


async def _serve(port: int) -> None:
    server = await listen(port)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.load.engine", description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    uvloop.run(_serve(parser.parse_args().port))


if __name__ == "__main__":
    main()

"""Where the web app's CPU time goes: `parley serve` with a clock that looks at its stack.

    python -m tests.load.sampler samples.json

The kernel's profiling timer ticks with the CPU time that is used, so sleeping costs nothing and shares are shares of
CPU. A tick that comes while C code runs is counted for the line of Python that called it. SIGUSR1 begins anew, SIGUSR2
writes what was seen.
"""

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import TypeAlias

import greenlet  # type: ignore[import-untyped]

Frame: TypeAlias = tuple[str, str, int]  # file, function, line

_EVERY = 0.001
_ROOT = str(Path(__file__).parents[2])
_ROOMS = ("backend/", "web/")
_DOORS = {  # where libraries are entered
    "aiohttp/client.py ClientSession._request",
    "fastapi/dependencies/utils.py solve_dependencies",
    "fastapi/routing.py request_response.<locals>.app",
    "jinja2/environment.py Template.render",
    "psycopg/cursor_async.py AsyncCursor.execute",
    "sqlalchemy/util/concurrency.py greenlet_spawn",
    "uvicorn/protocols/http/httptools_impl.py HttpToolsProtocol.data_received",
    "uvicorn/protocols/http/httptools_impl.py RequestResponseCycle.run_asgi",
    "uvicorn/protocols/http/httptools_impl.py RequestResponseCycle.send",
}


class Sampler:
    def __init__(self, output: Path) -> None:
        self._output = output
        self._frames: dict[Frame, int] = {}
        self._stacks: Counter[tuple[int, ...]] = Counter()

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._look)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.signal(signal.SIGUSR1, lambda *_: self._stacks.clear())
        signal.signal(signal.SIGUSR2, lambda *_: self._write())
        signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)

    def _look(self, _number: int, frame: FrameType | None) -> None:
        stack = []
        within: greenlet.greenlet | None = greenlet.getcurrent()
        while within is not None:
            while frame is not None:
                code = frame.f_code
                seen = (code.co_filename, code.co_qualname, frame.f_lineno)
                stack.append(self._frames.setdefault(seen, len(self._frames)))
                frame = frame.f_back
            within = within.parent  # SQLAlchemy leaves the coroutine that called it behind in another greenlet
            frame = within.gr_frame if within is not None else None
        self._stacks[tuple(stack)] += 1

    def _write(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        unfinished = self._output.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"frames": list(self._frames), "stacks": list(self._stacks.items())}))
        unfinished.rename(self._output)


def told(samples: Path, lines: int = 30) -> str:
    """Shares of CPU in three tables: by library at work, by function with all it calls, by line at work."""
    seen = json.loads(samples.read_text())
    frames: list[Frame] = [(file, name, line) for file, name, line in seen["frames"]]
    stacks = [([frames[number] for number in stack], count) for stack, count in seen["stacks"]]
    total = sum(count for _stack, count in stacks) or 1
    at_work: Counter[str] = Counter()
    library: Counter[str] = Counter()
    ours: Counter[str] = Counter()
    with_calls: Counter[str] = Counter()
    for stack, count in stacks:
        if not stack:
            continue
        file, name, line = stack[0]
        at_work[f"{_short(file)}:{line} {name}"] += count
        library[_package(file)] += count
        for function in {f"{_short(file)} {name}" for file, name, _line in stack}:
            if function.startswith(_ROOMS) or function in _DOORS:
                with_calls[function] += count
        for file, name, line in stack:
            if _short(file).startswith(_ROOMS):
                ours[f"{_short(file)}:{line} {name}"] += count
                break
    parts = [f"{total} samples"]
    for title, counted in (
        ("package at work", library),
        ("line of ours that was waiting for it", ours),
        ("function, with all it calls", with_calls),
        ("line at work", at_work),
    ):
        parts.append(f"\n{title}\n" + "-" * len(title))
        parts += [f"{100 * count / total:5.1f} %  {what}" for what, count in counted.most_common(lines)]
    return "\n".join(parts)


def _short(file: str) -> str:
    for start, instead in ((_ROOT + "/", ""), ("site-packages/", ""), ("lib/python3", "python/")):
        _before, found, rest = file.partition(start)
        if found and "site-packages" not in rest:
            return instead + rest
    return file


def _package(file: str) -> str:
    short = _short(file)
    return "/".join(short.split("/")[:2]) if short.startswith(_ROOMS) else short.split("/")[0]


def main() -> None:
    from backend import cli

    Sampler(Path(sys.argv[1])).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn hands its signal on once it has shut down
    sys.exit(cli.main(["serve"]))


if __name__ == "__main__":
    main()

"""From uploaded bytes to what an engine can be shown. Plain text is read here, everything else in a child process."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import UUID

from backend.core.errors import TooMany, Unavailable
from backend.core.i18n import _
from backend.core.text import clean
from backend.files.kinds import HEAD, decode, sort_of
from backend.files.models import Kind
from backend.files.problems import Problem, Unreadable

_ROOT = Path(__file__).parents[2]
_PIECE = 256 * 1024
_MOST_WAITING = 32
_MOST_OF_ONE = 3  # so that nobody's pile of slow files keeps everybody else's waiting
_MOST_PICTURE = 16 * 1024 * 1024  # bytes; a picture drawn anew has far less


@dataclass(frozen=True)
class Found:
    """What a file turned out to be. Of a picture `content` is the one drawn anew, of everything else None."""

    kind: Kind
    text: str | None = None
    content: bytes | None = None
    width: int | None = None
    height: int | None = None


class Extractor:
    """Reads at most `at_once` files at a time; whoever comes later waits. A reader that takes too long is killed."""

    def __init__(self, *, at_once: int = 2, seconds: float = 30, memory: int = 640 * 1024 * 1024) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._reading: Counter[UUID] = Counter()  # files by their person, those that wait among them
        self._seconds = seconds
        self._memory = memory

    async def read(self, file: IO[bytes], most: int, owner_id: UUID) -> Found:
        """`file` is a real one, which the child reads itself; `most` characters are allowed.

        Raises Unreadable; TooMany while three of the same person are being read or wait, Unavailable while many do.
        """
        head = await asyncio.to_thread(_head, file)
        sort = sort_of(head)
        if sort == "text":
            return Found(Kind.TEXT, await asyncio.to_thread(_plain_text, file, most))
        if self._reading[owner_id] >= _MOST_OF_ONE:
            raise TooMany(
                _("Your other files are still being read. Attach this one again in a moment."), retry_after=10
            )
        if self._reading.total() >= _MOST_WAITING:  # each of them keeps its file on our disk meanwhile
            raise Unavailable(_("Many files are being read right now. Attach it again in a minute."), retry_after=30)
        self._reading[owner_id] += 1
        try:
            async with self._slots:
                output = await self._run(file, sort, most)
        finally:
            self._reading -= Counter([owner_id])  # forgets whom nothing is left of
        header, _line, result = output.partition(b"\n")
        told = json.loads(header)
        if "problem" in told:
            raise Unreadable(Problem(told["problem"]))
        kind = Kind(told["kind"])
        if kind.is_picture:
            return Found(kind, content=result, width=told["width"], height=told["height"])
        return Found(kind, clean(result.decode()))

    async def _run(self, file: IO[bytes], sort: str, most: int) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-s", "-B", "-m", "backend.files.child"),
            *(sort, str(most), str(int(self._seconds) + 1), str(self._memory)),
            stdin=file,
            stdout=PIPE,
            stderr=DEVNULL,  # readers quote the file, and what people wrote must not reach a log
            cwd="/",
            env={"PYTHONPATH": str(_ROOT), "PYTHONUTF8": "1"},  # none of our secrets
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(self._seconds):
                output = await _all_of(process.stdout, _MOST_PICTURE + 4 * most)
                await process.wait()
        except TimeoutError as error:
            raise Unreadable(Problem.SLOW) from error
        finally:
            if process.returncode is None:
                process.kill()
            await process.stdout.read()
            await process.wait()
        if process.returncode == -signal.SIGXCPU:
            raise Unreadable(Problem.SLOW)
        if process.returncode or b"\n" not in output:
            # Python itself needs memory to say that there is none; a reader in C just falls over.
            raise Unreadable(Problem.MEMORY if process.returncode in (1, -signal.SIGKILL) else Problem.DAMAGED)
        return output


async def _all_of(stream: asyncio.StreamReader, most: int) -> bytes:
    pieces: list[bytes] = []
    length = 0
    while piece := await stream.read(_PIECE):
        length += len(piece)
        if length > most:
            raise Unreadable(Problem.LONG)
        pieces.append(piece)
    return b"".join(pieces)


def _head(file: IO[bytes]) -> bytes:
    file.flush()
    file.seek(0)
    return file.read(HEAD)


def _plain_text(file: IO[bytes], most: int) -> str:
    file.seek(0)
    content = file.read(4 * most + 4)  # no encoding takes more for a character
    text = decode(content)
    if text is None:
        raise Unreadable(Problem.UNKNOWN)
    text = clean(text)
    if len(text) > most:
        raise Unreadable(Problem.LONG)
    if not text.strip():
        raise Unreadable(Problem.NO_TEXT)
    return text


_SENTENCES: dict[Problem, Callable[[], str]] = {
    Problem.UNKNOWN: lambda: _(
        "“{name}” cannot be read here. Text, PDF, Word (DOCX) and pictures (PNG, JPEG, WebP, GIF) can be attached."
    ),
    Problem.DAMAGED: lambda: _("“{name}” cannot be read: the file is damaged."),
    Problem.ENCRYPTED: lambda: _("“{name}” is protected by a password. Attach it without one."),
    Problem.NO_TEXT: lambda: _("“{name}” holds no text, perhaps only pictures of pages. Nothing can be read from it."),
    Problem.LONG: lambda: _("“{name}” holds too much text: at most {most:,} characters can be attached."),
    Problem.PIXELS: lambda: _("“{name}” has too many pixels. Attach a smaller picture, at most 50 megapixels."),
    Problem.UNPACKS: lambda: _("“{name}” is refused: unpacked it is far larger than a document would be."),
    Problem.SLOW: lambda: _("“{name}” takes too long to read. Attach a part of it, or its text."),
    Problem.MEMORY: lambda: _("“{name}” needs too much memory to be read. Attach a part of it, or its text."),
}


def explain(problem: Problem, name: str, most: int) -> str:
    """A sentence for the person who attached it."""
    return _SENTENCES[problem]().format(name=name, most=most)

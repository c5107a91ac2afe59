"""The child process that reads one document or picture; its arguments are sort, characters, seconds and bytes.

The file is stdin. Out goes a line of JSON, then the bytes of the result. Files are hostile until proved
otherwise and their readers have faults, so this process bounds itself first, and then may neither open a socket nor
start a program nor write a file.
"""

import json
import mmap
import os
import resource
import sys
from typing import Any

from backend.files.problems import Problem, Unreadable


def main(sort: str, most: int) -> None:
    header: dict[str, Any]
    result = b""
    try:
        header, result = _read(sort, _given(), most)
    except Unreadable as error:
        header = {"problem": error.problem.value}
    except MemoryError:
        header = {"problem": Problem.MEMORY.value}
    except Exception:  # noqa: BLE001 - the outermost place: readers raise whatever a broken file leads them to
        header = {"problem": Problem.DAMAGED.value}
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\n" + result)
    sys.stdout.buffer.flush()


def _given() -> bytes:
    """All of stdin, without moving a place in it that is the parent's, too."""
    with mmap.mmap(0, 0, access=mmap.ACCESS_READ) as whole:
        return whole[:]


def _read(sort: str, content: bytes, most: int) -> tuple[dict[str, Any], bytes]:
    if sort == "picture":
        from backend.files.images import redraw

        _lock()
        picture = redraw(content)
        return {"kind": picture.kind, "width": picture.width, "height": picture.height}, picture.content
    from backend.files.documents import docx_text, pdf_text

    _lock()
    text = pdf_text(content, most) if sort == "pdf" else docx_text(content, most)
    return {"kind": "pdf" if sort == "pdf" else "docx"}, text.encode("utf-8", "replace")


def bound(seconds: int, memory: int) -> None:
    for what, limit in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 64),
    ):
        resource.setrlimit(what, (limit, limit))
    os.nice(10)  # answers that stream come first


_REFUSED = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn", "ctypes.")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC


def _lock() -> None:
    """From here on, for good: what a reader asks for by mistake or by order of the file is refused."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(_REFUSED) or (event == "open" and arguments[2] & _WRITES):
            raise PermissionError(event)

    sys.addaudithook(refuse)


if __name__ == "__main__":
    bound(int(sys.argv[3]), int(sys.argv[4]))
    main(sys.argv[1], int(sys.argv[2]))

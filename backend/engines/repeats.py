"""The short way through a stream: nearly all an engine sends is one chunk over and over, with another word in it.

Once such a chunk was read the careful way, the bytes around its text are known, its frame. A read that consists of
chunks in this frame is then taken apart with a search and without JSON. That is exact: the frame with any other JSON
string in it is the same chunk with another text. What does not fit in every respect is left to the careful way.
"""

import re
from typing import Final, NamedTuple, Self

import orjson

from backend.engines.events import Delta, Reasoning

_KINDS: Final[dict[str, type[Delta] | type[Reasoning]]] = {
    "content": Delta,
    "reasoning": Reasoning,
    "reasoning_content": Reasoning,
}
_TEXT = re.compile(rb'"(content|reasoning|reasoning_content)" ?: ?"((?:[^"\\]|\\.)+)"')
_TORN = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_PROBE = "another text"


class Frame(NamedTuple):
    """What stands before and after the text of a chunk, without the blank line that ends it."""

    kind: type[Delta] | type[Reasoning]
    before: bytes
    after: bytes
    between: bytes

    @classmethod
    def of(cls, data: bytes) -> Self | None:
        """Of a chunk that was read and holds one text and nothing else that counts; None where that is not sure."""
        found = list(_TEXT.finditer(data))
        if len(found) != 1:
            return None
        key = found[0][1].decode()
        before, after = data[: found[0].start(2)], data[found[0].end(2) :]
        if not _is_frame(data, before, after, key):
            return None
        before = b"data: " + before
        return cls(_KINDS[key], before, after, after + b"\n\n" + before)

    def read(self, data: bytes) -> tuple[str, int]:
        """The text of all whole chunks at the beginning of `data`, and how many bytes these are; none: 0."""
        if not data.startswith(self.before):
            return "", 0
        chunks = data.split(b"\n\n")
        chunks.pop()
        words = self._words(chunks)
        text = b"".join(words)
        if (b"\\" in text and _tears_an_escape(words)) or (not text.isascii() and _tears_a_character(words)):
            return "", 0  # damage, which the careful way mends
        try:
            said = orjson.loads(b'"%b"' % text)
        except orjson.JSONDecodeError:
            return "", 0
        around = len(self.before) + len(self.after) + 2
        return said, len(words) * around + len(text)

    def _words(self, chunks: list[bytes]) -> list[bytes]:
        """The bytes between the frame, up to the first chunk that has another one."""
        begin, end = len(self.before), -len(self.after)
        words = [chunk[begin:end] for chunk in chunks]
        inner = b"".join((self.before, self.between.join(words), self.after))
        if inner == b"\n\n".join(chunks):
            return words
        least = begin - end
        for number, chunk in enumerate(chunks):
            if len(chunk) < least or not (chunk.startswith(self.before) and chunk.endswith(self.after)):
                return words[:number]
        return words


def _tears_an_escape(words: list[bytes]) -> bool:
    """Whether one begins in a chunk and ends in the next."""
    return any(_TORN.search(word) for word in [word for word in words if b"\\" in word])


def _tears_a_character(words: list[bytes]) -> bool:
    return any(0x80 <= byte < 0xC0 for byte in [word[0] for word in words if word])


def _is_frame(data: bytes, before: bytes, after: bytes, key: str) -> bool:
    """Tried out: with another text in it, it has to be the same chunk but for the text that is read from it."""
    try:
        chunk, other = orjson.loads(data), orjson.loads(before + _PROBE.encode() + after)
        chunk["choices"][0]["delta"][key] = _PROBE
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return False
    alone = len(chunk["choices"]) == 1 and not (chunk.get("usage") or chunk.get("error"))
    return bool(chunk == other and alone and not chunk["choices"][0].get("finish_reason"))

"""Reasoning that arrives inside the text, from engines that run without a reasoning parser.

Only an answer that *begins* with `<think>` thinks; anywhere else the tag is something the answer talks about.
"""

from enum import Enum, auto

from backend.engines.events import Delta, Reasoning

_OPEN = "<think>"
_CLOSE = "</think>"


class _Where(Enum):
    BEFORE = auto()
    """Nothing but white space, or a piece of the opening tag, so far."""
    INSIDE = auto()
    BETWEEN = auto()
    """The tag has closed; the blank lines after it belong to nobody."""
    ANSWER = auto()


class ThinkingSplitter:
    """Text in any pieces in, `Reasoning` and `Delta` out. What could still become a tag is held back."""

    def __init__(self) -> None:
        self._where = _Where.BEFORE
        self._held = ""

    @property
    def settled(self) -> bool:
        """From here on every text is answer."""
        return self._where is _Where.ANSWER

    def feed(self, text: str) -> list[Delta | Reasoning]:
        if self._where is _Where.ANSWER:
            return [Delta(text)]
        return self._split(self._held + text)

    def close(self) -> list[Delta | Reasoning]:
        """What was held back, now that nothing more comes. Thinking that never ended stays thinking."""
        held, self._held = self._held, ""
        if not held:
            return []
        return [Reasoning(held)] if self._where is _Where.INSIDE else [Delta(held)]

    def _split(self, text: str) -> list[Delta | Reasoning]:
        self._held = ""
        if self._where is _Where.BEFORE:
            return self._begin(text)
        if self._where is _Where.INSIDE:
            return self._think(text)
        text = text.lstrip("\r\n")
        if not text:
            return []
        self._where = _Where.ANSWER
        return [Delta(text)]

    def _begin(self, text: str) -> list[Delta | Reasoning]:
        start = text.lstrip()
        if start.startswith(_OPEN):
            self._where = _Where.INSIDE
            return self._think(start[len(_OPEN) :])
        if _OPEN.startswith(start):
            self._held = text
            return []
        self._where = _Where.ANSWER
        return [Delta(text)]

    def _think(self, text: str) -> list[Delta | Reasoning]:
        thought, closed, answer = text.partition(_CLOSE)
        if closed:
            self._where = _Where.BETWEEN
            return [*_reasoning(thought), *self._split(answer)]
        kept = _length_of_partial_tag(text)
        self._held = text[len(text) - kept :]
        return _reasoning(text[: len(text) - kept])


def _reasoning(text: str) -> list[Delta | Reasoning]:
    return [Reasoning(text)] if text else []


def _length_of_partial_tag(text: str) -> int:
    """How many characters at the end of `text` could be the beginning of the closing tag."""
    for length in range(min(len(text), len(_CLOSE) - 1), 0, -1):
        if _CLOSE.startswith(text[-length:]):
            return length
    return 0

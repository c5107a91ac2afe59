"""Which part of a growing answer can no longer change.

Markdown is decided line by line: once a top-level block has begun, the blocks before it are closed for good. (The
definition of a link or a footnote may still come; the finished message, rendered whole at the end, knows it.) What
needs care is the last line while it has no end yet: `2` may become `2. second`, `<div` may become `<divine>`.
"""

import re

from web.chat.markdown.source import PARSER, masked

# A line that could still become an item of the list before it.
_UNDECIDED = re.compile(rb"[-+*_.)\d\s]*")

_OPENING = re.compile(
    r"\n*[ ]{0,3}(?:(?P<fence>`{3,}(?=[^`\n]*\n)|~{3,})"
    r"|(?P<bullet>[-+*])[ \t]|(?P<number>\d{1,9}[.)])[ \t]|(?P<sign>[>|]))"
)
_ANY_LINE = re.compile(r"\n(?!\s|\Z)|\n[ \t]*\n[ \t]+\S")
_LINE_AFTER = {
    "-": re.compile(r"\n(?!\s|\Z|-[ \t\n])"),
    "+": re.compile(r"\n(?!\s|\Z|\+[ \t\n])"),
    "*": re.compile(r"\n(?!\s|\Z|\*[ \t\n])"),
    "1": re.compile(r"\n(?!\s|\Z|\d{1,9}[.)]?(?:\s|\Z))"),
    ">": re.compile(r"\n(?!\s|\Z|>)|\n[ \t]*\n>"),
    "|": re.compile(r"\n(?!\Z|\|)"),
}


_DEFINITION = re.compile(r"\[[^\]]*\]:")


def is_sum_of_its_blocks(text: str) -> bool:
    """Whether a whole text looks like its blocks one after the other: nothing in it defines a link or a footnote,
    which a block before the definition could not know of."""
    return _DEFINITION.search(text) is None


def finished_until(text: str, start: int) -> int:
    """Where the last top-level block of `text[start:]` begins: all before it is finished and can be rendered alone.

    Never before `start`; `start` itself as long as there is only one block, or half a formula that could still
    reach over everything behind it.
    """
    tail = text[start:]
    if not _may_have_ended(tail):
        return start
    source = masked(tail, growing=True)
    begins = _last_block(_decided(source))
    return start + len(tail.encode()[:begins].decode())


def _last_block(source: bytes) -> int:
    depth, begins = 0, []
    for event, place in PARSER.events_with_range(source.decode()):
        if event == "Rule" and not depth:
            begins.append(place["start"])
        elif "Start" in event:
            if not depth:
                begins.append(place["start"])
            depth += 1
        elif "End" in event:
            depth -= 1
    # The parser leaves the indentation of a block out, but it belongs to it.
    return source.rfind(b"\n", 0, begins[-1]) + 1 if len(begins) > 1 else 0


def _decided(source: bytes) -> bytes:
    """Without the last line, unless it has its end or stands alone and cannot belong to what was before."""
    last = source.rfind(b"\n") + 1
    line_before = source[source.rfind(b"\n", 0, max(last - 1, 0)) + 1 : last]
    if last == len(source) or (not line_before.strip() and not _UNDECIDED.fullmatch(source, last)):
        return source
    return source[:last]


def _may_have_ended(tail: str) -> bool:
    """A quick look that spares the parser most of the time: is there a line that is not one more of the same?"""
    opening = _OPENING.match(tail)
    if not opening:
        return _ANY_LINE.search(tail) is not None
    if fence := opening["fence"]:
        return re.compile(rf"\n {{0,3}}{fence}{fence[0]}*[ \t]*(?:\n|\Z)").search(tail, opening.end()) is not None
    sign = opening["bullet"] or opening["sign"] or "1"
    return _LINE_AFTER[sign].search(tail, opening.end()) is not None

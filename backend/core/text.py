"""Text from outside, made storable once, at the edge."""

import math
import re
import unicodedata

_JOINERS = "\u200c\u200d"
_INVISIBLE = frozenset({"Cc", "Cf"})
_MOST_DIGITS = 15
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """`text` without NUL (Postgres cannot hold it), with U+FFFD for lone surrogates (UTF-8 cannot) and LF line ends."""
    text = text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")
    return _SURROGATES.sub("\ufffd", text)


def one_line(text: str, limit: int) -> str:
    """`text` cleaned, white space folded to single spaces, cut at a word to at most `limit` characters.

    Without invisible characters: some of them turn the writing around them, and a line of nothing else looks empty.
    Only the joiners stay, which some scripts and emoji need; alone they count as nothing.
    """
    kept = "".join(c for c in clean(text) if c in _JOINERS or c.isspace() or unicodedata.category(c) not in _INVISIBLE)
    line = " ".join(kept.split())
    if not line.strip(_JOINERS):
        return ""
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    head, space, _tail = cut.rpartition(" ")
    return (head if space and len(head) > limit // 2 else cut).rstrip(" ,;:.–-") + "…"


def whole(text: str) -> int:
    """The number that was typed; -1, which none of our fields allows, for what is none."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else -1


def decimal(text: str) -> float:
    """The same with a point, or a comma as many people write it."""
    try:
        number = float(text.replace(",", "."))
    except ValueError:
        return -1
    return number if math.isfinite(number) else -1

"""Text from outside, made storable once, at the edge."""

import re
import unicodedata

_JOINERS = "\u200c\u200d"
_INVISIBLE = frozenset({"Cc", "Cf"})
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

"""Text from outside, made storable once, at the edge."""

import re

_SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """`text` without NUL (Postgres cannot hold it), with U+FFFD for lone surrogates (UTF-8 cannot) and LF line ends."""
    text = text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")
    return _SURROGATES.sub("\ufffd", text)


def one_line(text: str, limit: int) -> str:
    """`text` cleaned, white space folded to single spaces, cut at a word to at most `limit` characters."""
    line = " ".join(clean(text).split())
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    head, space, _tail = cut.rpartition(" ")
    return (head if space and len(head) > limit // 2 else cut).rstrip(" ,;:.–-") + "…"

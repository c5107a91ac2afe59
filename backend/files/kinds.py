"""What a file is, told from its first bytes: names and what a browser says can be anything."""

import codecs
import re
from typing import Literal

Sort = Literal["text", "pdf", "zip", "picture"]

HEAD = 4096

_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a")
# Everything below a space except tab, line ends, form feed and the escape of coloured logs.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_MOST_CONTROLS = 0.005
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def sort_of(head: bytes) -> Sort:
    """From the first `HEAD` bytes. What is nothing else may be text; `decode` finds out."""
    if head.startswith(_PICTURES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP"):
        return "picture"
    if b"%PDF-" in head[:1024]:  # as readers of PDF have it: anything may stand before it
        return "pdf"
    if head.startswith(b"PK\x03\x04"):
        return "zip"
    return "text"


def decode(content: bytes) -> str | None:
    """Text in UTF-8, in UTF-16, or in the Western alphabet of old Windows files; None for what is no text."""
    for bom, encoding in _BOMS:
        if content.startswith(bom):
            return _readable(content, encoding)
    if b"\0" not in content:
        return _readable(content, "utf-8") or _readable(content, "cp1252") or _readable(content, "latin-1")
    if len(content) % 2 == 0:
        # Without a mark UTF-16 shows itself by a NUL in every other byte, because spaces and digits are everywhere.
        low, high = content[1::2].count(0), content[::2].count(0)
        if max(low, high) > len(content) // 8 and min(low, high) <= len(content) // 200:
            return _readable(content, "utf-16-le" if low > high else "utf-16-be")
    return None


def _readable(content: bytes, encoding: str) -> str | None:
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        return None
    return text if len(_CONTROLS.findall(text)) <= len(text) * _MOST_CONTROLS else None

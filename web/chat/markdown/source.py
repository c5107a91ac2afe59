"""What happens to an answer before the Markdown parser sees it: formulas are taken out.

Only `$$…$$`, `\\(…\\)` and `\\[…\\]` are formulas, and only outside code: `$100K, $115K` is money. The parser would
read `_`, `*`, `\\` and `<` in a formula as Markdown, so a mark stands in for each of them. All positions are bytes of
the UTF-8 text, as the parser counts them.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import pyromark
from pyromark import Options

PARSER = pyromark.Markdown(
    options=Options.ENABLE_TABLES | Options.ENABLE_FOOTNOTES | Options.ENABLE_STRIKETHROUGH | Options.ENABLE_TASKLISTS
)

# A mark is written with two noncharacters of Unicode, which no text should hold. Should one do so all the same, that
# character gets a mark as well.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")

_DELIMITER = re.compile(rb"\\[^\n]|(?<!\$)\$\$(?!\$)|\n[ \t>]*(?=\n)")
_OPENER_OF = {b"\\)": b"\\(", b"\\]": b"\\[", b"$$": b"$$"}
_FENCE = re.compile(r"(`{3,}|~{3,})([^`\n]*)$", re.MULTILINE)
_BEFORE_FENCE = re.compile(r"[ \t>]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*")


Ranges: TypeAlias = Sequence[tuple[int, int]]


class Span(NamedTuple):
    start: int
    end: int
    opener: bytes
    closed: bool


@dataclass(frozen=True, slots=True)
class Formula:
    written: str
    latex: str
    display: bool
    closed: bool


@dataclass(frozen=True, slots=True)
class Source:
    """An answer as the parser gets it, with the formulas its marks stand for."""

    markdown: str
    formulas: Sequence[Formula] = ()

    def pieces(self, text: str) -> Iterator[str | Formula]:
        """Text and formulas in turn."""
        if not self.formulas or _OPEN not in text:
            yield text
            return
        for place, piece in enumerate(_MARK.split(text)):
            if place % 2:
                yield self.formulas[int(piece)]
            elif piece:
                yield piece

    def as_written(self, text: str) -> str:
        """For code and addresses, where a formula is no formula."""
        return "".join(piece if isinstance(piece, str) else piece.written for piece in self.pieces(text))


def read(text: str, *, growing: bool = False) -> Source:
    """Prepare a text for the parser. In a growing one, a formula without its end yet is kept whole as well."""
    if not _has_delimiters(text):
        return Source(text)
    source = text.encode()
    spans = list(formulas(source, _verbatim(source), growing=growing))
    spans = sorted([*spans, *_forged_marks(source, spans)])
    edits = [(span.start, span.end, f"{_OPEN}{number}{_CLOSE}".encode()) for number, span in enumerate(spans)]
    return Source(_edited(source, edits).decode(), [_formula(source, span) for span in spans])


def masked(text: str, *, growing: bool) -> bytes:
    """The text with every formula painted over by letters, so that it has no blocks inside and all positions stay."""
    source = text.encode()
    if not _has_delimiters(text):
        return source
    edits = [
        (span.start, span.end, b"x" * (span.end - span.start))
        for span in formulas(source, _verbatim(source), growing=growing)
    ]
    return _edited(source, edits)


def formulas(source: bytes, verbatim: Ranges, *, growing: bool) -> Iterator[Span]:
    """From left to right in one pass, so that what comes later never changes what was found before.

    A blank line ends a formula that was never closed, as it does in TeX.
    """
    opener: re.Match[bytes] | None = None
    for token in _DELIMITER.finditer(source):
        kind = token[0]
        if _inside(verbatim, token.start()):
            continue
        if opener and _OPENER_OF.get(kind) == opener[0]:
            yield Span(opener.start(), token.end(), opener[0], closed=True)
            opener = None
        elif kind.startswith(b"\n"):
            opener = None
        elif kind in (b"$$", b"\\[") or (kind == b"\\(" and (opener is None or opener[0] == kind)):
            opener = token
    if opener and growing:
        yield Span(opener.start(), len(source), opener[0], closed=False)


def ends_in_fence(text: str) -> bool:
    """Whether the text stops inside a code block. Good enough for colours; the parser decides what is code."""
    fence = ""
    for match in _FENCE.finditer(text):
        if not _BEFORE_FENCE.fullmatch(text, text.rfind("\n", 0, match.start()) + 1, match.start()):
            continue
        mark, rest = match.groups()
        if not fence:
            fence = mark
        elif mark.startswith(fence) and not rest.strip():
            fence = ""
    return bool(fence)


def _has_delimiters(text: str) -> bool:
    return "$$" in text or "\\(" in text or "\\[" in text


def _inside(ranges: Ranges | Sequence[Span], position: int) -> bool:
    before = bisect_right(ranges, position, key=itemgetter(0)) - 1
    return before >= 0 and position < ranges[before][1]


def _verbatim(source: bytes) -> list[tuple[int, int]]:
    """Where nothing is taken out: code, raw HTML (which is shown as text) and bare addresses."""
    if not any(sign in source for sign in (b"`", b"~~~", b"<", b"\t", b"    ")):
        return []
    ranges = []
    for event, place in PARSER.events_with_range(source.decode()):
        if not isinstance(event, str) and _is_verbatim(event):
            ranges.append((place["start"], place["end"]))
    return ranges


def _is_verbatim(event: Any) -> bool:
    if "Start" not in event:
        return "Code" in event or "InlineHtml" in event
    tag = event["Start"]
    return tag == "HtmlBlock" or "CodeBlock" in tag or ("Link" in tag and tag["Link"]["link_type"] == "Autolink")


def _forged_marks(source: bytes, spans: Sequence[Span]) -> Iterator[Span]:
    for character in re.finditer(_OPEN.encode(), source):
        if not _inside(spans, character.start()):
            yield Span(character.start(), character.end(), b"", closed=False)


def _edited(source: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    pieces, position = [], 0
    for start, end, replacement in edits:
        pieces += [source[position:start], replacement]
        position = end
    return b"".join([*pieces, source[position:]])


def _formula(source: bytes, span: Span) -> Formula:
    written = source[span.start : span.end].decode()
    latex = written[2:-2] if span.closed else written[2:]
    line = source[source.rfind(b"\n", 0, span.start) + 1 : span.start]
    if line.lstrip().startswith(b">"):
        latex = re.sub(r"\n[ \t]*>[> \t]*", "\n", latex)
    return Formula(written, latex.strip(), display=span.opener != b"\\(", closed=span.closed)

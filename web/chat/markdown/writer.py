"""The parser's events, written as HTML.

Nothing of an answer reaches the page as markup: text and raw HTML are escaped, images become links, an address is
judged by `links`, and nesting ends at 20. The sanitiser comes after this and should find nothing to do.
"""

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from backend.core.i18n import _
from web.chat.markdown import escaping, formulas, links
from web.chat.markdown.colours import coloured, language_of
from web.chat.markdown.source import PARSER, Formula, Source

DEEPEST = 20
# An ordinary answer holds far less than this; it bounds the time that formulas can take. Each counts for its length
# and a little more.
_MOST_LATEX, _FORMULA = 15_000, 20

_ITEM = '<li dir="auto">'
_PARAGRAPH = '<p dir="auto">'
_INLINE = {"Emphasis": "em", "Strong": "strong", "Strikethrough": "del"}
_LINE_BREAK = re.compile(r"<br\s{0,9}/?>", re.IGNORECASE)
# Left is where a cell is anyway.
ALIGNMENTS = {"Right": ' class="number"', "Center": ' align="center"', "Left": ""}
END_OF_TABLE = "</tbody></table></div>\n"


def table() -> str:
    label = escaping.attribute(_("Table"))
    return f'<div class="scroll" role="region" aria-label="{label}" tabindex="0"><table>'


class Writer:
    """Writes one text."""

    def __init__(self, source: Source, anchor: str, *, last_code_grows: bool = False) -> None:
        self.takes_addresses_or_markup = False
        self._source = source
        self._anchor = anchor
        self._last_code_grows = last_code_grows
        self._out: list[str] = []
        self._closers: list[str | Callable[[], None]] = []
        self._blocks = self._inlines = 0
        self._in_link = False
        self._alignments: tuple[str, ...] = ()
        self._column = 0
        self._cell = ""
        self._language = ""
        self._code: list[str] | None = None
        self._codes: list[tuple[list[str], int, str, str]] = []
        self._numbers: dict[str, int] = {}
        self._notes: dict[str, list[str]] = {}
        self._latex = 0
        self._handlers: dict[str, Callable[[Any], None]] = {
            "Text": self._text,
            "Code": self._code_span,
            "Html": self._raw,
            "InlineHtml": self._inline_html,
            "Start": self._start,
            "End": self._end,
            "TaskListMarker": self._task,
            "FootnoteReference": self._reference,
        }
        self._starts: dict[str, Callable[[Any], None]] = {
            "Paragraph": self._paragraph,
            "Heading": self._heading,
            "BlockQuote": self._quote,
            "List": self._list,
            "Item": self._item,
            "CodeBlock": self._code_block,
            "HtmlBlock": self._html_block,
            "Table": self._table,
            "TableHead": self._head,
            "TableRow": self._row,
            "TableCell": self._table_cell,
            "Link": self._link,
            "Image": self._image,
            "FootnoteDefinition": self._note,
        }

    def html(self) -> str:
        # An event is a string or a dictionary with one key; `pyromark.event` spells out all of them.
        events: Iterable[Any] = PARSER.events(self._source.markdown)
        for event in events:
            if event == "SoftBreak":
                self._out.append("\n")
            elif event == "HardBreak":
                self._out.append("<br>\n")
            elif event == "Rule":
                self._open("<hr>\n")
            else:
                [(kind, value)] = event.items()
                self._handlers[kind](value)
        self._colour_code()
        self._append_notes()
        return "".join(self._out)

    def _start(self, tag: Any) -> None:
        if not isinstance(tag, str):
            [(kind, value)] = tag.items()
            self._starts[kind](value)
        elif tag in _INLINE:
            self._inlines += 1
            self._inline(f"<{_INLINE[tag]}>", f"</{_INLINE[tag]}>")
        else:
            self._starts[tag](None)

    def _end(self, tag: Any) -> None:
        closer = self._closers.pop()
        if not isinstance(closer, str):
            closer()
        elif closer:
            self._out.append(closer)
        if isinstance(tag, str):
            self._inlines -= tag in _INLINE
        elif "Heading" not in tag:
            self._blocks -= 1

    def _open(self, opening: str, closer: str | Callable[[], None] | None = None) -> None:
        """A block begins on a line of its own; an item that begins with one leaves the direction to it."""
        out = self._out
        if out and out[-1] is _ITEM:
            out[-1] = "<li>"
        if out and not out[-1].endswith("\n"):
            out.append("\n")
        out.append(opening)
        if closer is not None:
            self._closers.append(closer)

    # Blocks

    def _paragraph(self, _value: None) -> None:
        self._open(_PARAGRAPH, self._end_paragraph)

    def _end_paragraph(self) -> None:
        if self._out[-2:-1] == [_PARAGRAPH] and self._out[-1].startswith(formulas.BLOCK):
            self._out[-2:] = [self._out[-1], "\n"]
        else:
            self._out.append("</p>\n")

    def _heading(self, heading: Any) -> None:
        """The page has its own h1, so the headings of an answer begin one level below."""
        level = min(int(heading["level"][1]) + 1, 6)
        self._open(f'<h{level} dir="auto">', f"</h{level}>\n")

    def _quote(self, _kind: None) -> None:
        self._nest("<blockquote>\n", "</blockquote>\n")

    def _list(self, first: int | None) -> None:
        opening = "<ul>\n" if first is None else "<ol>\n" if first == 1 else f'<ol start="{first}">\n'
        self._nest(opening, "</ul>\n" if first is None else "</ol>\n")

    def _nest(self, opening: str, closer: str) -> None:
        """Quotes and lists can be inside one another without end; too deep, only their content is kept."""
        self._blocks += 1
        if self._blocks <= DEEPEST:
            self._open(opening, closer)
        else:
            self._closers.append("\n")

    def _item(self, _value: None) -> None:
        if self._blocks <= DEEPEST:
            self._open(_ITEM, "</li>\n")
        else:
            self._closers.append("\n")

    def _task(self, done: bool) -> None:
        checked, label = (' checked=""', _("Done")) if done else ("", _("To do"))
        label = escaping.attribute(label)
        self._out.append(f'<input type="checkbox" disabled=""{checked} aria-label="{label}"> ')

    def _code_block(self, kind: Any) -> None:
        self._language = self._source.as_written(kind["Fenced"]) if isinstance(kind, dict) else ""
        self._code = []
        self._closers.append(self._end_code_block)

    def _end_code_block(self) -> None:
        code = self._source.as_written("".join(self._code or ())).removesuffix("\n")
        self._code = None
        key, name = language_of(self._language)
        label = escaping.attribute(_("%(language)s code") % {"language": name} if name else _("Code"))
        self._open(
            f'<figure class="code" dir="ltr"><figcaption>{escaping.text(name or _("Code"))}</figcaption>'
            f'<pre tabindex="0" aria-label="{label}"><code>'
        )
        self._codes.append((self._out, len(self._out), key, code))
        self._out += [escaping.text(code), "</code></pre></figure>\n"]

    def _colour_code(self) -> None:
        finished = self._codes[:-1] if self._last_code_grows else self._codes
        for out, place, key, code in finished:
            out[place] = coloured(key, code)

    def _html_block(self, _value: None) -> None:
        self._open('<p class="plain" dir="auto">', self._end_html_block)

    def _end_html_block(self) -> None:
        self._out[-1] = self._out[-1].removesuffix("\n")
        self._out.append("</p>\n")

    def _table(self, alignments: tuple[str, ...]) -> None:
        self._alignments = alignments
        self._open(table(), self._end_table)

    def _end_table(self) -> None:
        self._cell = ""
        self._out.append(END_OF_TABLE)

    def _head(self, _value: None) -> None:
        self._column, self._cell = 0, 'th scope="col"'
        self._out.append("<thead><tr>")
        self._closers.append("</tr></thead><tbody>\n")

    def _row(self, _value: None) -> None:
        self._column, self._cell = 0, "td"
        self._out.append("<tr>")
        self._closers.append("</tr>\n")

    def _table_cell(self, _value: None) -> None:
        alignment = ALIGNMENTS.get(self._alignments[self._column], "")
        self._column += 1
        self._out.append(f'<{self._cell} dir="auto"{alignment}>')
        self._closers.append(f"</{self._cell[:2]}>")

    # Inside a block

    def _text(self, text: str) -> None:
        if self._code is not None:
            self._code.append(text)
            return
        for piece in self._source.pieces(text):
            self._out.append(escaping.text(piece) if isinstance(piece, str) else self._formula(piece))

    def _formula(self, formula: Formula) -> str:
        """As MathML, or as it was written where it is unfinished, broken or too long."""
        mathml = None
        if formula.closed and self._latex <= _MOST_LATEX:
            self._latex += len(formula.latex) + _FORMULA
            mathml = formulas.mathml(formula.latex, display=formula.display)
        if mathml is None:
            return escaping.text(formula.written)
        self.takes_addresses_or_markup = True
        return mathml

    def _code_span(self, code: str) -> None:
        self._out.append(f"<code>{escaping.text(self._source.as_written(code))}</code>")

    def _raw(self, html: str) -> None:
        self.takes_addresses_or_markup = True
        self._out.append(escaping.text(self._source.as_written(html)))

    def _inline_html(self, html: str) -> None:
        """In a cell of a table, and only there, Markdown has no other way to begin a new line."""
        if self._cell and _LINE_BREAK.fullmatch(html):
            self._out.append("<br>")
        else:
            self._raw(html)

    def _inline(self, opening: str, closer: str) -> None:
        if self._inlines <= DEEPEST:
            self._out.append(opening)
            self._closers.append(closer)
        else:
            self._closers.append("")

    def _link(self, link: Any) -> None:
        address = self._source.as_written(link["dest_url"])
        if link["link_type"] == "Email":
            address = f"mailto:{address}"
        self._anchor_or_text(address, link["title"], otherwise="")

    def _image(self, image: Any) -> None:
        """A picture from elsewhere would tell its server what is read here, so there is only a link to it."""
        address = self._source.as_written(image["dest_url"])
        self._anchor_or_text(address, image["title"], otherwise="" if self._in_link else address)

    def _anchor_or_text(self, address: str, title: str, *, otherwise: str) -> None:
        """A link, or where the address is not one of ours to give, the text alone and `otherwise` in brackets."""
        self.takes_addresses_or_markup = True
        safe = None if self._in_link else links.safe(address)
        if safe:
            self._in_link = True
            hint = f' title="{escaping.attribute(self._source.as_written(title))}"' if title else ""
            self._out.append(f'<a href="{escaping.attribute(safe)}"{hint} rel="{links.REL}">')
        self._closers.append(partial(self._end_anchor_or_text, len(self._out), address, otherwise, is_link=bool(safe)))

    def _end_anchor_or_text(self, begins: int, address: str, otherwise: str, *, is_link: bool) -> None:
        empty = len(self._out) == begins
        if is_link:
            self._in_link = False
            self._out.append(f"{escaping.text(address)}</a>" if empty else "</a>")
        elif otherwise:
            self._out.append(escaping.text(otherwise if empty else f" ({otherwise})"))

    # Footnotes

    def _number(self, label: str) -> int:
        return self._numbers.setdefault(label, len(self._numbers) + 1)

    def _reference(self, label: str) -> None:
        self.takes_addresses_or_markup = True
        label = label.casefold()
        first = label not in self._numbers
        number = self._number(label)
        if self._in_link:
            self._out.append(f"<sup>{number}</sup>")
            return
        target = escaping.attribute(f"fn-{self._anchor}-{number}")
        back = f' id="{target}-ref"' if first else ""
        name = escaping.attribute(_("Footnote %(number)s") % {"number": number})
        self._out.append(f'<sup><a href="#{target}"{back} aria-label="{name}" rel="{links.REL}">{number}</a></sup>')

    def _note(self, label: str) -> None:
        self.takes_addresses_or_markup = True
        self._closers.append(partial(setattr, self, "_out", self._out))
        self._out = self._notes.setdefault(label.casefold(), [])

    def _append_notes(self) -> None:
        """At the end of the text, in the order in which they are referred to; one that never is comes last."""
        if not self._notes:
            return
        referred = set(self._numbers)
        self._open('<ol class="footnotes">\n')
        for label in sorted(self._notes, key=self._number):
            target = escaping.attribute(f"fn-{self._anchor}-{self._number(label)}")
            self._out.append(f'<li id="{target}">\n')
            self._out += self._notes[label]
            if label in referred:
                self._append_way_back(target)
            self._out.append("</li>\n")
        self._out.append("</ol>\n")

    def _append_way_back(self, target: str) -> None:
        name = escaping.attribute(_("Back to the text"))
        link = f'<a href="#{target}-ref" aria-label="{name}" rel="{links.REL}">↩</a>'
        if self._out[-1] == "</p>\n":
            self._out[-1] = f" {link}</p>\n"
        else:
            self._out.append(f"<p>{link}</p>\n")

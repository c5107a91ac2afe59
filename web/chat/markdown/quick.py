"""The short way for ordinary prose and lists, which is most of what a growing answer shows.

The parser's own HTML, written in Rust, is many times as fast as ours. It is taken where no sign of the text can lead
to a link, an image, raw HTML, a code block or a formula, and then brought into the form that `writer` gives it; a test
holds the two together.
"""

import re

from web.chat.markdown.source import PARSER
from web.chat.markdown.writer import ALIGNMENTS, DEEPEST, END_OF_TABLE, table

_SIGNS = ("<", "&", "[", "```", "\\(", "$$")
_BLOCKS = ("<ul>", "<ol", "<blockquote>")
_HEADING = re.compile(r"<(/?)h([1-6])>")
_INLINE = re.compile(r"<(/?)(?:em|strong|del)>")


def html(text: str) -> str | None:
    """None where the text needs the writer."""
    if any(sign in text for sign in _SIGNS):
        return None
    html = PARSER.html(text)
    if "<pre" in html or _nests_too_deeply(html):
        return None
    if "<table>" in html:
        html = _with_tables(html)
    html = html.replace("<p>", '<p dir="auto">').replace("\xa0", "&nbsp;")
    if "<li>" in html:
        html = html.replace("<li>", '<li dir="auto">').replace('<li dir="auto">\n<', "<li>\n<")
    if "<h" in html:
        html = _HEADING.sub(_heading, html).replace("<hr />", "<hr>")
    return html.replace("<br />", "<br>")


def _heading(tag: re.Match[str]) -> str:
    level = min(int(tag[2]) + 1, 6)
    return f"</h{level}>" if tag[1] else f'<h{level} dir="auto">'


def _with_tables(html: str) -> str:
    html = html.replace("<li><table>", "<li>\n<table>").replace("<table>", table())
    html = html.replace("</tbody></table>\n", END_OF_TABLE)
    for cell, written in (("th", 'th scope="col"'), ("td", "td")):
        html = html.replace(f"<{cell}>", f'<{written} dir="auto">')
        for side, alignment in ALIGNMENTS.items():
            aligned = f'<{cell} style="text-align: {side.lower()}">'
            html = html.replace(aligned, f'<{written} dir="auto"{alignment}>')
    return html


def _nests_too_deeply(html: str) -> bool:
    if sum(html.count(opening) for opening in _BLOCKS) > DEEPEST:
        return True
    if html.count("<em>") + html.count("<strong>") + html.count("<del>") <= DEEPEST:
        return False
    depth = 0
    for tag in _INLINE.finditer(html):
        depth += -1 if tag[1] else 1
        if depth > DEEPEST:
            return True
    return False

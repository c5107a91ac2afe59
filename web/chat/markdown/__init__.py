"""Text of models and of people becomes HTML here, and nowhere else.

A model's answer goes one straight line: formulas are taken out (`source`), pulldown-cmark reads the Markdown
(`pyromark`), its events are written as HTML by us (`writer`: raw HTML becomes text, images become links, code gets
colours), and the sanitiser sees the final HTML (`sanitiser`). While an answer grows, `finished_until` says which of
its blocks can no longer change; those are rendered once, and only the open block again and again by `render_open`.

Everything here is pure and takes text that has been through `backend.core.text.clean`.
"""

from markupsafe import Markup

from web.chat.markdown import questions, quick
from web.chat.markdown.blocks import finished_until, is_sum_of_its_blocks
from web.chat.markdown.sanitiser import clean
from web.chat.markdown.source import ends_in_fence, read
from web.chat.markdown.writer import Writer

_LONGEST = 100_000

__all__ = ["finished_until", "is_sum_of_its_blocks", "plain", "render", "render_open"]


def render(text: str, *, anchor: str) -> Markup:
    """A finished text. `anchor` keeps the footnotes of one page apart: their ids are `fn-<anchor>-<n>`."""
    text, rest = _bounded(text)
    html = quick.html(text)
    if html is None:
        html = Writer(read(text), anchor).html()
    return Markup(clean(html)) + rest


def render_open(text: str, *, anchor: str) -> Markup:
    """The block that still grows, rendered some 20 times a second and therefore as cheaply as it can be.

    Half a formula stays as it was written and a growing code block has no colours yet. The sanitiser, which costs
    more than everything else, is left out where nothing but our own tags and escaped text was written; whatever
    is left out here passes through it as soon as the block has finished.
    """
    text, rest = _bounded(text)
    html = quick.html(text)
    if html is not None:
        return Markup(html) + rest
    writer = Writer(read(text, growing=True), anchor, last_code_grows=ends_in_fence(text))
    html = writer.html()
    return Markup(clean(html) if writer.takes_addresses_or_markup else html) + rest


def _bounded(text: str) -> tuple[str, Markup]:
    """The part that is rendered, and what is beyond it as plain text.

    One call holds up everybody else of the process, and the dearest texts take some microseconds a character.
    """
    if len(text) <= _LONGEST:
        return text, Markup()
    end = text.rfind("\n", _LONGEST // 2, _LONGEST) + 1 or _LONGEST
    return text[:end], Markup('<div class="plain" dir="auto">{}</div>').format(text[end:])


def plain(text: str) -> Markup:
    """What a person wrote: nothing in it has a meaning, line breaks stay, and a long text is folded."""
    return Markup(questions.html(text))

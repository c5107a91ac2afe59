"""What people write is shown as they wrote it."""

from backend.core.i18n import _, ngettext
from web.chat.markdown import escaping

_SHOWN_LINES, _SHOWN_CHARACTERS = 12, 1_200
# Folding away the last few lines would hide them for nothing.
_MOST_LINES, _MOST_CHARACTERS = 16, 1_600


def html(text: str) -> str:
    """Paragraphs, and the rest of a long text in one piece behind a fold: 20,000 lines are four elements."""
    text = text.strip("\n")
    shown, rest = _split(text)
    paragraphs = "\n".join(_paragraph(part) for part in shown.split("\n\n") if part.strip())
    return f"{paragraphs}\n{_fold(rest)}" if rest else paragraphs


def _split(text: str) -> tuple[str, str]:
    lines = text.split("\n", _MOST_LINES)
    if len(lines) <= _MOST_LINES and len(text) <= _MOST_CHARACTERS:
        return text, ""
    end = len("\n".join(lines[:_SHOWN_LINES]))
    if end > _SHOWN_CHARACTERS:
        end = _last_gap(text, _SHOWN_CHARACTERS)
    return text[:end], text[end:]


def _last_gap(text: str, end: int) -> int:
    """The last line break before `end`, else the last space, else just there."""
    for gap in ("\n", " "):
        place = text.rfind(gap, end // 2, end)
        if place > 0:
            return place
    return end


def _fold(rest: str) -> str:
    within_line = not rest.startswith("\n")
    rest = rest.strip("\n")
    lines = rest.count("\n") + 1
    if within_line:
        more = _("Show the rest")
    else:
        more = ngettext("Show the other line", "Show the other %(lines)s lines", lines) % {"lines": f"{lines:,}"}
    return (
        f'<details class="more"><summary><span class="when-closed">{escaping.text(more)}</span>'
        f'<span class="when-open">{escaping.text(_("Show less"))}</span></summary>\n{_paragraph(rest)}\n</details>'
    )


def _paragraph(text: str) -> str:
    content = escaping.text(text.strip("\n"))
    return f'<p class="plain" dir="auto">{content}</p>'

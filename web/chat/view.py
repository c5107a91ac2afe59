"""What one reader of a running answer has seen, and the events that bring the page up to date.

An event holds `<hx-partial>` elements: finished blocks are appended once, only the open block is drawn again. The
cursor travels as the event's id, so that a reader who drops out comes back exactly where it was.
"""

from dataclasses import dataclass, replace
from typing import Self

from markupsafe import Markup, escape

from backend.conversations.live import LiveAnswer, Phase
from backend.engines.pool import Place
from web.chat import markdown


@dataclass(frozen=True)
class Cursor:
    """Where a reader stands: attempt, characters of reasoning, characters of finished blocks."""

    attempt: int = 0
    reasoning: int = 0
    text: int = 0

    @classmethod
    def parse(cls, value: str) -> Self:
        """From what a browser sent; garbage is the beginning, never an error."""
        parts = value.split(".")
        if len(parts) == 3 and all(part.isascii() and part.isdigit() and len(part) < 12 for part in parts):
            return cls(*map(int, parts))
        return cls()

    def __str__(self) -> str:
        return f"{self.attempt}.{self.reasoning}.{self.text}"

    def fits(self, live: LiveAnswer) -> bool:
        """Whether it can be continued: same attempt, and not beyond the text."""
        return self.attempt == live.attempt and self.reasoning <= len(live.reasoning) and self.text <= len(live.text)


@dataclass(frozen=True)
class Snapshot:
    """The answer as it is right now, for a page that is drawn while it is being written."""

    cursor: Cursor
    reasoning: str
    blocks: Markup
    open: Markup
    phase: Phase
    place: Place | None


def snapshot(answer_id: str, live: LiveAnswer) -> Snapshot:
    text, reasoning = live.text, live.reasoning
    end = markdown.finished_until(text, 0)
    return Snapshot(
        cursor=Cursor(live.attempt, len(reasoning), end),
        reasoning=reasoning,
        blocks=markdown.render(text[:end], anchor=answer_id) if end else Markup(),
        open=markdown.render_open(text[end:], anchor=answer_id),
        phase=live.phase,
        place=live.place,
    )


class AnswerView:
    """Turns the growing answer into events for one reader."""

    def __init__(self, answer_id: str, cursor: Cursor) -> None:
        self.cursor = cursor
        self._blocks: list[Markup] | None = None if cursor.text else []  # all that are finished
        self._id = answer_id
        self._status = Markup()

    def advance(self, live: LiveAnswer, status: Markup) -> str:
        """The HTML that leads from the cursor to the answer as it is now; `status` is the line below the text."""
        text, reasoning = live.text, live.reasoning
        parts = []
        if not self.cursor.fits(live):
            self.cursor = Cursor(live.attempt)
            self._blocks = []
            parts += [self._part(name, "innerHTML", Markup()) for name in ("blocks", "open", "reasoning-text")]
        if len(reasoning) > self.cursor.reasoning:
            parts.append(self._part("reasoning-text", "beforeend", escape(reasoning[self.cursor.reasoning :])))
        end = markdown.finished_until(text, self.cursor.text)
        if end > self.cursor.text:
            finished = markdown.render(text[self.cursor.text : end], anchor=self._id)
            if self._blocks is not None:
                self._blocks.append(finished)
            parts.append(self._part("blocks", "beforeend", finished))
        if text:
            parts.append(self._part("open", "innerMorph", markdown.render_open(text[end:], anchor=self._id)))
        if status != self._status:
            self._status = status
            parts.append(self._part("status", "innerMorph", status))
        self.cursor = replace(self.cursor, reasoning=len(reasoning), text=end)
        return "".join(parts)

    def whole(self, text: str) -> Markup | None:
        """The finished answer, where the blocks that were drawn already are all it takes; to draw a long one again
        would cost as much as all of its stream."""
        if self._blocks is None or not markdown.is_sum_of_its_blocks(text):
            return None
        rest = markdown.render(text[self.cursor.text :], anchor=self._id)
        return Markup().join([*self._blocks, rest])

    def _part(self, name: str, swap: str, content: Markup) -> str:
        return f'<hx-partial hx-target="#{name}-{self._id}" hx-swap="{swap}">{content}</hx-partial>'

"""A fragment of HTML, read by a parser that knows nothing of ours."""

from html.parser import HTMLParser
from typing import NamedTuple


class Tag(NamedTuple):
    name: str
    attributes: dict[str, str]


class Parsed(HTMLParser):
    """Tags in the order of their beginning, the text of the whole, and the text inside each kind of tag."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[Tag] = []
        self.text = ""
        self.comments: list[str] = []
        self._open: list[tuple[str, int]] = []
        self._inside: list[tuple[str, int, int]] = []
        self.feed(str(html))
        self.close()

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(Tag(name, {key: value or "" for key, value in attributes}))
        if name not in ("br", "hr", "input"):
            self._open.append((name, len(self.text)))

    def handle_endtag(self, name: str) -> None:
        opened, start = self._open.pop()
        assert opened == name, f"<{opened}> is closed by </{name}>"
        self._inside.append((name, start, len(self.text)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    @property
    def unclosed(self) -> list[str]:
        return [name for name, _ in self._open]

    def names(self) -> list[str]:
        return [tag.name for tag in self.tags]

    def all(self, name: str) -> list[Tag]:
        return [tag for tag in self.tags if tag.name == name]

    def inside(self, name: str) -> list[str]:
        """The text of each such element, in the order of their beginning."""
        return [self.text[start:end] for found, start, end in sorted(self._inside, key=lambda e: e[1]) if found == name]

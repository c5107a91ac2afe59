"""What one reader is sent: whatever happens to the connection, the page holds every character once."""

import re
from html import unescape

import pytest
from hypothesis import given, settings, strategies as st
from markupsafe import Markup, escape

from backend.conversations.live import LiveAnswer, Phase
from backend.engines.events import Delta, Reasoning
from web.chat import markdown
from web.chat.view import AnswerView, Cursor, snapshot

STATUS = Markup("<p>Writing</p>")


class Page:
    """The live element as a browser holds it, with the connection that fills it."""

    def __init__(self) -> None:
        self.parts = {"blocks": "", "open": "", "reasoning-text": "", "status": ""}
        self.cursor = ""
        self.view = AnswerView("7", Cursor())

    def load(self, live: LiveAnswer) -> None:
        """Drawn by the server in the middle of the answer; the stream goes on from the page's own cursor."""
        drawn = snapshot("7", live)
        self.parts = {
            "blocks": str(drawn.blocks),
            "open": str(drawn.open),
            "reasoning-text": str(escape(drawn.reasoning)),
            "status": "",
        }
        self.cursor = str(drawn.cursor)
        self.connect()

    def connect(self) -> None:
        self.view = AnswerView("7", Cursor.parse(self.cursor))

    def receive(self, live: LiveAnswer) -> None:
        for target, swap, content in re.findall(
            r'<hx-partial hx-target="#([a-z-]+)-7" hx-swap="(\w+)">(.*?)</hx-partial>',
            self.view.advance(live, STATUS),
            re.DOTALL,
        ):
            self.parts[target] = self.parts[target] + content if swap == "beforeend" else content
        self.cursor = str(self.view.cursor)

    def lose(self, live: LiveAnswer) -> None:
        """An event is sent and never arrives; the browser comes back with the last one that did."""
        self.view.advance(live, STATUS)
        self.connect()

    def text(self) -> str:
        return unescape(self.parts["blocks"] + self.parts["open"])

    def reasoning(self) -> str:
        return unescape(self.parts["reasoning-text"])


def written(*pieces: str, attempt: int = 1, thoughts: str = "") -> LiveAnswer:
    live = LiveAnswer(attempt)
    live.take([Reasoning(thoughts)] if thoughts else [])
    live.take([Delta(piece) for piece in pieces])
    return live


@pytest.fixture
def verbatim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks end where they do, but are shown as they were written: then a page can be compared with its text."""

    def as_written(text: str, *, anchor: str) -> Markup:
        return escape(text)

    monkeypatch.setattr(markdown, "render", as_written)
    monkeypatch.setattr(markdown, "render_open", as_written)


# Everything that decides where a block ends, cut anywhere.
MARKS = ["word ", "one. ", "\n", "\n\n", "- item\n", "2. two\n", "# Head\n", "```\n", "~~~~", "    x = 1\n",
         "| a | b |\n", "|---|---|\n", "> said\n", "$$", "\\[", "\\]", "[^1]: ", "***\n", "<a>", "&lt;"]  # fmt: skip
pieces = st.one_of(st.sampled_from(MARKS), st.text("ab \n-#`|$*", max_size=8))
steps = st.one_of(
    st.tuples(st.just("text"), pieces),
    st.tuples(st.just("thought"), pieces),
    st.tuples(st.sampled_from(["receive", "lose", "reload", "reconnect", "lie", "restart"]), st.just("")),
)
LIES = ["", "garbage", "1.0.99999", "1.99999.0", "9.0.0", "0.0.0", "1.-1.0", "1..", "²³.1.1", "1.0.0\n", "1.0.0.0"]


@pytest.mark.usefixtures("verbatim")
class TestEveryCharacterOnce:
    def test_a_reader_who_stays(self) -> None:
        live, page = LiveAnswer(1), Page()

        for number in range(30):
            live.take([Delta(f"Paragraph {number}.\n\n" if number % 3 == 2 else f"word{number} ")])
            page.receive(live)

        assert page.text() == live.text
        assert len(page.parts["blocks"]) > len(page.parts["open"]), "finished blocks are not sent again"

    @pytest.mark.parametrize("cuts", [(10, 50, 51), (1, 2, 3), (199,)])
    @pytest.mark.parametrize("by", ["lose", "reload", "reconnect"])
    def test_a_reader_who_drops_out(self, cuts: tuple[int, ...], by: str) -> None:
        """WEB-02: 200 tokens, cut after the 10th, 50th and 51st."""
        live, page = LiveAnswer(1), Page()

        for number in range(200):
            live.take([Delta(f"t{number} " + ("\n\n" if number % 7 == 0 else ""))])
            if number in cuts:
                page.load(live) if by == "reload" else page.lose(live) if by == "lose" else page.connect()
            else:
                page.receive(live)
        page.receive(live)

        assert page.text() == live.text

    @settings(deadline=None, max_examples=300)
    @given(st.lists(steps, max_size=60), st.sampled_from(LIES))
    def test_a_reader_to_whom_anything_may_happen(self, script: list[tuple[str, str]], lie: str) -> None:
        live, page = LiveAnswer(1), Page()

        for what, text in script:
            match what:
                case "text":
                    live.take([Delta(text)])
                case "thought":
                    live.take([Reasoning(text)])
                case "receive":
                    page.receive(live)
                case "lose":
                    page.lose(live)
                case "reload":
                    page.load(live)
                case "reconnect":
                    page.connect()
                case "lie":
                    _bring(page, live, lie)
                case "restart":  # the answer begins again: another attempt, another text
                    live = LiveAnswer(live.attempt + 1)
                    page.connect()
        page.receive(live)

        assert page.text() == live.text
        assert page.reasoning() == live.reasoning
        assert page.parts["status"] == STATUS


def _bring(page: Page, live: LiveAnswer, cursor: str) -> None:
    """A browser comes with a cursor that is not its own: whatever cannot be continued is replaced as a whole."""
    if Cursor.parse(cursor).fits(live):  # by chance it could be one; then only its own would be honest
        return
    page.cursor = cursor
    page.connect()
    page.receive(live)


# With the real rendering


DOCUMENT = [
    "| a | b |",
    "\n",
    "|---|---|",
    "\n\n",
    "###",
    " Title",
    "\n",
    "```py\n",
    "    x = 1",
    "\n",
    "```",
    "\n\nEnd *here*.",
]


def as_read(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html))


def test_white_space_and_structure_survive_the_stream() -> None:
    """WEB-01: live, each token by itself, and after a reload at any of them."""
    whole = as_read(markdown.render("".join(DOCUMENT), anchor="7"))
    for reload_at in range(len(DOCUMENT)):
        live, page = LiveAnswer(1), Page()
        for number, token in enumerate(DOCUMENT):
            live.take([Delta(token)])
            page.load(live) if number == reload_at else page.receive(live)

        html = page.parts["blocks"] + page.parts["open"]
        assert as_read(html).split() == whole.split()
        assert "    x = 1" in as_read(html)
        assert html.count("<table") == html.count("<h4") == html.count("<pre") == html.count("<em>") == 1


def test_what_a_model_thinks_is_text() -> None:
    live, page = written(thoughts="<b>let</b> me & "), Page()

    page.receive(live)
    live.take([Reasoning("see\n  </hx-partial>")])
    page.receive(live)

    assert page.parts["reasoning-text"] == "&lt;b&gt;let&lt;/b&gt; me &amp; see\n  &lt;/hx-partial&gt;"


def test_what_a_model_writes_cannot_leave_its_place() -> None:
    live = written('</hx-partial><hx-partial hx-target="body" hx-swap="innerHTML">gone</hx-partial>\n\nand so on')

    html = AnswerView("7", Cursor()).advance(live, STATUS)

    assert set(re.findall(r'<hx-partial hx-target="([^"]*)"', html)) <= {f"#{name}-7" for name in Page().parts}
    assert html.count("<hx-partial ") == html.count("</hx-partial>")


# What is sent, and what is not


def sent(html: str) -> list[tuple[str, str]]:
    return re.findall(r'<hx-partial hx-target="#([a-z-]+)-7" hx-swap="(\w+)">', html)


def test_a_finished_block_is_sent_once_and_the_open_one_again() -> None:
    live, view = written("One.\n\nTw"), AnswerView("7", Cursor())

    first = sent(view.advance(live, STATUS))
    live.take([Delta("o.")])
    second = sent(view.advance(live, STATUS))

    assert first == [("blocks", "innerHTML"), ("open", "innerHTML"), ("reasoning-text", "innerHTML"),
                     ("blocks", "beforeend"), ("open", "innerMorph"), ("status", "innerMorph")]  # fmt: skip
    assert second == [("open", "innerMorph")]


def test_the_status_is_sent_when_it_changes() -> None:
    live, view = LiveAnswer(1), AnswerView("7", Cursor(1))

    statuses = [Markup("<p>Waiting</p>"), Markup("<p>Waiting</p>"), Markup("<p>Writing</p>")]

    assert [sent(view.advance(live, status)) for status in statuses] == [
        [("status", "innerMorph")],
        [],
        [("status", "innerMorph")],
    ]


@pytest.mark.parametrize("cursor", ["2.0.0", "1.0.99", "1.99.0", "", "garbage"])
def test_a_cursor_that_cannot_be_continued_replaces_everything(cursor: str) -> None:
    live = written("One.\n\nTwo.", thoughts="hm")
    page = Page()
    page.parts = {"blocks": "stale", "open": "stale", "reasoning-text": "stale", "status": "stale"}
    page.cursor = cursor

    page.connect()
    page.receive(live)

    assert "stale" not in "".join(page.parts.values())
    assert as_read(page.text()).split() == ["One.", "Two."]
    assert page.reasoning() == "hm"


def test_it_does_so_also_where_nothing_was_written_yet() -> None:
    page = Page()
    page.parts = {"blocks": "stale", "open": "stale", "reasoning-text": "stale", "status": "stale"}

    page.receive(LiveAnswer(2))

    assert page.parts == {"blocks": "", "open": "", "reasoning-text": "", "status": STATUS}


def test_a_page_that_is_drawn_in_the_middle_goes_on_from_there() -> None:
    live = written("One.\n\nTwo.\n\nThr", thoughts="hm")

    drawn = snapshot("7", live)

    assert (drawn.cursor, drawn.reasoning, drawn.phase) == (Cursor(1, 2, 12), "hm", Phase.WRITING)
    assert as_read(drawn.blocks).split() == ["One.", "Two."]
    assert as_read(drawn.open).strip() == "Thr"


def test_a_page_that_is_drawn_before_the_first_word_is_empty() -> None:
    drawn = snapshot("7", LiveAnswer(4))

    assert (drawn.cursor, drawn.reasoning, drawn.blocks, drawn.open.strip()) == (Cursor(4, 0, 0), "", "", "")


# The cursor


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_cursor_comes_back_as_it_was_sent(attempt: int, reasoning: int, text: int) -> None:
    cursor = Cursor(attempt, reasoning, text)

    assert Cursor.parse(str(cursor)) == cursor


@settings(deadline=None)
@given(st.one_of(st.text(), st.from_regex(r"[-+0-9.\s²e_]{0,20}", fullmatch=True)))
def test_garbage_is_the_beginning_or_a_place_and_never_an_error(value: str) -> None:
    cursor = Cursor.parse(value)

    assert min(cursor.attempt, cursor.reasoning, cursor.text) >= 0
    assert cursor == Cursor() or re.fullmatch(r"[0-9]{1,11}(\.[0-9]{1,11}){2}", value)


@pytest.mark.parametrize(
    "value", [*LIES[:2], "1.2", "1.2.3.4", "-1.2.3", "1.2.x", "1.2. 3", "٣.1.1", "1" * 12 + ".1.1"]
)
def test_only_three_numbers_are_a_cursor(value: str) -> None:
    assert Cursor.parse(value) == Cursor()


@pytest.mark.parametrize(
    ("cursor", "fits"),
    [
        (Cursor(1, 0, 0), True),
        (Cursor(1, 2, 5), True),
        (Cursor(1, 3, 5), False),
        (Cursor(1, 2, 6), False),
        (Cursor(2, 0, 0), False),
        (Cursor(), False),
    ],
)
def test_a_cursor_fits_what_is_there(cursor: Cursor, fits: bool) -> None:
    assert cursor.fits(written("12345", thoughts="hm")) is fits

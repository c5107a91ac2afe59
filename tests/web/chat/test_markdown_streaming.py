"""An answer that grows: finished blocks are rendered once, the open one again and again, and both make the whole."""

import pytest
from hypothesis import given, settings, strategies as st

from tests.web.chat.parsed import Parsed
from web.chat.markdown import finished_until, is_sum_of_its_blocks, render, render_open


def pieces(text: str, steps: list[int]) -> list[str]:
    """The finished pieces and the open one, as a page gets them while the text grows by `steps`, again and again."""
    found, cursor, length, turn = [], 0, 0, 0
    while length < len(text):
        length = min(len(text), length + steps[turn % len(steps)])
        turn += 1
        end = finished_until(text[:length], cursor)
        assert cursor <= end <= length
        if end > cursor:
            found.append(text[cursor:end])
            cursor = end
    return [*found, text[cursor:]]


def shown(parts: list[str]) -> str:
    return "".join(render(part, anchor="m") for part in parts)


# WEB-01


def test_white_space_survives_the_way_to_the_page() -> None:
    tokens = ["| a | b |", "\n", "|---|---|", "\n\n", "###", " Title", "\n", "```py\n", "    x = 1", "\n", "```"]
    text, cursor, blocks, opened = "", 0, "", ""

    for token in tokens:
        text += token
        end = finished_until(text, cursor)
        if end > cursor:
            blocks += render(text[cursor:end], anchor="m")
            cursor = end
        opened = render_open(text[cursor:], anchor="m")

    page = Parsed(blocks + render(text[cursor:], anchor="m"))
    assert Parsed(blocks + opened).text == Parsed(render(text, anchor="m")).text == page.text
    assert [cell.strip() for cell in page.inside("th")] == ["a", "b"]
    assert page.inside("h4") == ["Title"]
    assert page.inside("code") == ["    x = 1"]


# Where a block ends


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("One", ""),
        ("One\n\n", ""),
        ("One\n\nTwo", "One\n\n"),
        ("One\nstill one", ""),
        ("One\n\n# Two\n\nThree", "One\n\n# Two\n\n"),
        ("# One\nTwo\n", "# One\n"),
        ("- a\n- b\n\n", ""),
        ("- a\n\n- b", ""),
        ("- a\n\n  b", ""),
        ("- a\n\nb", "- a\n\n"),
        ("- a\n\n   - b", ""),
        ("One\n\n   - a\n   - b\n", "One\n\n"),
        ("One\n\n    code\n\nTwo", "One\n\n    code\n\n"),
        ("> a\n\n> b", "> a\n\n"),
        ("```\na\n\nb\n", ""),
        ("```\na\n```\n", ""),
        ("```\na\n```\nb\n", "```\na\n```\n"),
        ("````\n```\n\na\n", ""),
        ("One\n\n```\na", "One\n\n"),
        ("| a |\n|---|\n| b |\n", ""),
        ("| a |\n|---|\n| b |\n\nc", "| a |\n|---|\n| b |\n\n"),
        ("<div>\na\n\nb\n", "<div>\na\n\n"),
        ("[^1]: note\n\n    more\n", ""),
        ("a[^1]\n\n[^1]: note\n\n    more\n", "a[^1]\n\n"),
        ("é😀\n\nzwei", "é😀\n\n"),
        ("a\n\n---\n\n***\n", "a\n\n---\n\n"),
    ],
)
def test_all_before_the_last_block_is_finished(text: str, finished: str) -> None:
    assert text[: finished_until(text, 0)] == finished


@pytest.mark.parametrize(
    ("decides_nothing", "continues"),
    [
        ("1. a\n\n2", "1. a\n\n2. b"),
        ("- a\n\n-", "- a\n\n- b"),
        ("- a\n\n- - -", "- a\n\n- - - b"),
        ("a\n<div", "a\n<divine> things"),
        ("a\n#", "a\n#hash"),
        ("a\n***", "a\n***bold***"),
        ("a\n```", "a\n```b``` c"),
        ("| a |\n|---|\n| b |\n#", "| a |\n|---|\n| b |\n#c"),
    ],
)
def test_a_line_without_its_end_can_still_become_something_else(decides_nothing: str, continues: str) -> None:
    assert finished_until(decides_nothing, 0) == 0
    assert finished_until(continues, 0) == 0


@pytest.mark.parametrize("formula", ["$$\na\n# b\n- c\n", "\\[\n1. a\n2. b\n", "\\(a\n> b\n"])
def test_no_block_ends_inside_half_a_formula(formula: str) -> None:
    closer = {"$": "$$", "[": "\\]", "(": "\\)"}[formula.lstrip("\\")[0]]

    assert finished_until(f"One\n\n{formula}", 0) == len("One\n\n")
    assert finished_until(f"One\n\n{formula}{closer}\n\nTwo", 0) == len(f"One\n\n{formula}{closer}\n\n")


def test_a_formula_that_was_never_closed_ends_with_its_paragraph() -> None:
    assert finished_until("It costs $$ or so.\n\nNext", 0) == len("It costs $$ or so.\n\n")


def test_the_search_begins_where_it_is_told() -> None:
    text = "One\n\nTwo\n\nThree"

    assert finished_until(text, len("One\n\n")) == len("One\n\nTwo\n\n")
    assert finished_until(text, len(text)) == len(text)


# Any text in any steps

PIECES = [
    *"a b** c_ * _ ` ``` ~~~ | # > - + 1. 2 10 2) [ ] ( ![a](https://a.example) < <b> <div> <!-- --> <br>".split(),
    *"& &lt; \\ \\( \\) \\[ \\] $$ $ --- === *** ~ é א 😀 \ufdd0 x^2 ' \" <https://a.example>".split(),
    *(" ", " ", "  ", "    ", "\t", "\n", "\n", "\n", "\n\n", "\u2028", "\\[\n", "\n\\]"),
    *("```py\n", "|a|b|\n|-|-|\n", "- a\n", "  - b\n", "1. c\n", "   d\n", "> e\n", "- [x] f\n", "    g\n", "h\n\n"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
steps = st.lists(st.integers(1, 30), min_size=1, max_size=5)


@settings(max_examples=250, deadline=None)
@given(text=texts | st.text(st.characters(exclude_characters="\r\x00", exclude_categories=["Cs"])), steps=steps)
def test_the_pieces_cover_the_text_and_never_go_back(text: str, steps: list[int]) -> None:
    assert "".join(pieces(text, steps)) == text


@settings(max_examples=300, deadline=None)
@given(text=texts.filter(is_sum_of_its_blocks), steps=steps)
def test_the_pieces_together_look_like_the_whole(text: str, steps: list[int]) -> None:
    assert shown(pieces(text, steps)) == render(text, anchor="m")


BLOCKS = [
    "# Heading",
    "A paragraph with **bold**, `code` and [a link](https://a.example).",
    "Two lines\nof one paragraph",
    "- one\n- two\n  - inner\n- three",
    "- loose\n\n- list\n\n  with more",
    "1. first\n2. second\n\n   ```sh\n   ls -l\n   ```\n\n3. third",
    "* star **bold**\n* other",
    "> quote\n> goes on\n>\n> - list",
    "```python\ndef f():\n\n    return 1\n```",
    "~~~~\n```\ninner\n```\n~~~~",
    "    indented\n\n    code",
    "| a | b |\n|---|--:|\n| 1 | 2 |\n| 3 | 4 |",
    "---",
    "$$\n\\begin{aligned}\na &= b \\\\\n- c &= d\n\\end{aligned}\n$$",
    "\\[\n# x\n\\] and \\(y\\)",
    "<div>\nraw *html*\n</div>",
    "- [ ] open\n- [x] done",
    "Setext\n======",
    "**Bold** begins\n\n**Bold** again",
    "2024 was a year",
    "عربي **نص**",
]


@settings(max_examples=300, deadline=None)
@given(
    blocks=st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=12),
    steps=steps,
    gap=st.sampled_from(["\n\n", "\n", "\n\n\n"]),
)
def test_a_document_looks_the_same_in_pieces_and_as_a_whole(blocks: list[str], steps: list[int], gap: str) -> None:
    text = gap.join(blocks)

    parts = pieces(text, steps)

    assert shown(parts) == render(text, anchor="m")


def test_a_long_answer_is_rendered_in_small_pieces() -> None:
    text = "\n\n".join(BLOCKS * 20)

    parts = pieces(text, [7])

    # Neighbouring lists may be one block, everything else goes out as soon as the next one begins.
    assert max(len(part) for part in parts) < 600

import pytest
from hypothesis import given, settings, strategies as st

from backend.engines.events import Delta, Reasoning
from backend.engines.thinking import ThinkingSplitter


def split(*pieces: str) -> tuple[str, str]:
    """Reasoning and answer of a text that comes in `pieces`."""
    splitter = ThinkingSplitter()
    events = [event for piece in pieces for event in splitter.feed(piece)] + splitter.close()
    reasoning = "".join(event.text for event in events if isinstance(event, Reasoning))
    return reasoning, "".join(event.text for event in events if isinstance(event, Delta))


def test_an_answer_that_begins_with_the_tag_thinks_first() -> None:
    assert split("<think>two and two</think>\n\nFour.") == ("two and two", "Four.")


def test_white_space_before_the_tag_does_not_hide_it() -> None:
    assert split("\n\n", " <th", "ink>hm</think>Yes.") == ("hm", "Yes.")


def test_thinking_that_never_ends_is_all_there_is() -> None:
    """SEM-01"""
    assert split("<thi", "nk>let me see", " 2+2") == ("let me see 2+2", "")


def test_a_closing_tag_cut_short_by_the_end_is_text_of_the_thinking() -> None:
    assert split("<think>so</thi") == ("so</thi", "")


@pytest.mark.parametrize(
    "text",
    [
        "The tag `<think>` opens it, `</think>` closes it.",
        "`<think>` opens it.",
        "<thinking> is not it",
        "<Think> is not it",
        "Well. <think>not this late</think>",
        "```xml\n<think>a</think>\n```",
        "  indented",
        "<",
        "<think",
        "   ",
        "",
    ],
)
def test_talking_about_the_tag_is_answer(text: str) -> None:
    """SEM-02"""
    assert split(text) == ("", text)
    assert split(*text) == ("", text)


def test_only_the_first_pair_of_tags_counts() -> None:
    """SEM-02"""
    reasoning, answer = split("<think>a</think>Write <think>b</think> yourself.")

    assert reasoning == "a"
    assert answer == "Write <think>b</think> yourself."


def test_nothing_but_a_possible_tag_is_held_back() -> None:
    splitter = ThinkingSplitter()

    assert splitter.feed("<think>a < b") == [Reasoning("a < b")]
    assert splitter.feed("</") == []
    assert splitter.feed("b>") == [Reasoning("</b>")]
    assert splitter.feed("</think>") == []
    assert splitter.feed("Yes") == [Delta("Yes")]
    assert splitter.settled


def test_an_indented_first_line_keeps_its_indentation() -> None:
    assert split("<think>x</think>\n\n", "\n    code") == ("x", "    code")


texts = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "</", "think", ">", " ", "\n", "a", "é", "<thinking>", "`"]),
    max_size=10,
).map("".join)


@settings(max_examples=1000, deadline=None)
@given(text=texts, cuts=st.lists(st.integers(0, 80), max_size=6))
def test_no_way_of_cutting_the_text_changes_the_split(text: str, cuts: list[int]) -> None:
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    pieces = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True) if start != end]

    reasoning, answer = split(*pieces)

    assert (reasoning, answer) == split(text)
    if not text.lstrip().startswith("<think>"):
        assert answer == text

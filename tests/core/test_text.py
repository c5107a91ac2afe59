"""Text from outside, made storable."""

import unicodedata

import pytest
from hypothesis import given, settings, strategies as st

from backend.core.text import clean, decimal, one_line, whole

# Everything a form or a JSON body can bring, with the awkward ones often.
awkward = st.text(st.one_of(st.sampled_from("\0\r\n\ud800\udfff \u2028\u00a0a"), st.characters(codec=None)))


@pytest.mark.parametrize(
    ("given_text", "stored"),
    [
        ("Plain text, 😀 and ümlaut", "Plain text, 😀 and ümlaut"),
        ("a\0b", "ab"),
        ("\0", ""),
        ("\ud800", "\ufffd"),
        ("x\udfffy", "x\ufffdy"),
        ("one\r\ntwo\rthree\nfour", "one\ntwo\nthree\nfour"),
        ("one\r\r\ntwo", "one\n\ntwo"),
        ("one\r\0\ntwo", "one\ntwo"),
        ("\ttabs and  spaces stay ", "\ttabs and  spaces stay "),
    ],
)
def test_text_becomes_storable(given_text: str, stored: str) -> None:
    """TXT-01, TXT-02: the rule for NUL and lone surrogates, in one place for everything that is stored."""
    assert clean(given_text) == stored


@settings(deadline=None)
@given(awkward)
def test_clean_text_is_utf8_without_nul_and_clean_already(text: str) -> None:
    cleaned = clean(text)

    assert cleaned.encode().decode() == cleaned
    assert "\0" not in cleaned
    assert "\r" not in cleaned
    assert clean(cleaned) == cleaned


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\r")))
def test_text_that_is_storable_is_not_touched(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [
        ("Short enough", 60, "Short enough"),
        ("  one\n\n two\tthree  ", 60, "one two three"),
        ("exactly ten", 11, "exactly ten"),
        ("cut at a word, please", 16, "cut at a word…"),
        ("Donaudampfschifffahrtsgesellschaft", 12, "Donaudampfs…"),
        ("a " + "b" * 40, 20, "a " + "b" * 17 + "…"),  # cutting at the only space would leave next to nothing
        ("", 60, ""),
        (" \n\u2003\0 ", 60, ""),
        ("日本語のとても長い題名です", 8, "日本語のとても…"),
    ],
)
def test_a_line_is_cut_at_a_word(text: str, limit: int, line: str) -> None:
    assert one_line(text, limit) == line


@settings(deadline=None)
@given(awkward, st.integers(1, 80))
def test_a_line_is_one_and_within_its_limit(text: str, limit: int) -> None:
    line = one_line(text, limit)

    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    assert line == clean(line).strip()
    assert "  " not in line


@settings(deadline=None)
@given(awkward, st.integers(1, 80))
def test_what_fits_is_kept_whole(text: str, limit: int) -> None:
    visible = "".join(c for c in clean(text) if c.isspace() or unicodedata.category(c) not in ("Cc", "Cf"))
    words = " ".join(visible.split())

    line = one_line(text, limit)

    assert line == words if len(words) <= limit else line.endswith("…")
    assert words.startswith(line.removesuffix("…"))


def test_a_number_is_read_as_people_type_it_and_what_is_none_is_below_every_field() -> None:
    assert [whole(text) for text in ("8", " 12 ", "007", "0")] == [8, 12, 7, 0]
    assert {whole(text) for text in ("", "-1", "1.5", "1e3", "²", "٣", "9" * 16, "x")} == {-1}
    assert [decimal(text) for text in ("0.7", " 0,7 ", "8")] == [0.7, 0.7, 8.0]
    assert {decimal(text) for text in ("", "nan", "inf", "-inf", "1e999", "1.2.3", "x")} == {-1}

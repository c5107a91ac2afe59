"""Code in answers: exactly what was written, named and coloured."""

import html
import re
import time

import pytest
from hypothesis import given, settings, strategies as st

from tests.web.chat.parsed import Parsed
from web.chat.markdown import render, render_open
from web.chat.markdown.colours import CLASSES, coloured, language_of
from web.chat.markdown.languages import ALIASES, LANGUAGES

LANGUAGE_KEYS = sorted(LANGUAGES)


def test_a_code_block_is_a_figure_with_its_language() -> None:
    shown = render('```python\nimport re\n\ndef find(a):\n    return "x"  # why\n```', anchor="m")

    assert shown == (
        '<figure class="code" dir="ltr"><figcaption>Python</figcaption>'
        '<pre tabindex="0" aria-label="Python code"><code>'
        '<span class="kn">import</span> re\n\n'
        '<span class="k">def</span> <span class="nf">find</span>(a):\n'
        '    <span class="k">return</span> <span class="s2">"x"</span>  <span class="c1"># why</span>'
        "</code></pre></figure>\n"
    )


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ("", "Code"),
        ("py", "Python"),
        ("PYTHON", "Python"),
        ("js title=x", "JavaScript"),
        ("c++", "C++"),
        ("{.rust}", "Rust"),
        ("text", "Text"),
        ("brainfuck", "brainfuck"),
        ('"><script>', "Code"),
        ("x" * 90, "x" * 30),
    ],
)
def test_the_caption_is_the_language_or_the_word_that_was_given(info: str, name: str) -> None:
    shown = Parsed(render(f"~~~{info}\na\n~~~", anchor="m"))

    assert shown.inside("figcaption") == [name]
    assert shown.all("pre")[0].attributes["aria-label"] == ("Code" if name == "Code" else f"{name} code")


def test_indented_code_has_no_language() -> None:
    shown = Parsed(render("    a <b>\n      c\n", anchor="m"))

    assert shown.inside("figcaption") == ["Code"]
    assert shown.inside("code") == ["a <b>\n  c"]


def test_an_unknown_language_is_not_guessed() -> None:
    assert "<span" not in render('```unheard\ndef f(): return "x"\n```', anchor="m")


codes = st.text("ab_1 \n\t\"'`<>&/*#\\\xa0") | st.text(
    st.characters(exclude_characters="\r\x00", exclude_categories=["Cs"])
)


@settings(max_examples=300, deadline=None)
@given(code=codes, key=st.sampled_from(LANGUAGE_KEYS))
def test_colours_never_change_the_text(code: str, key: str) -> None:
    shown = coloured(key, code)

    assert html.unescape(re.sub(r"<[^>]*>", "", shown)) == code


@settings(deadline=None)
@given(lines=st.lists(st.text("ab `~*_<>&$\\\"'#|-\t\xa0")), info=st.sampled_from(["", "py", "html", "none"]))
def test_the_code_of_a_block_is_exactly_what_stands_between_its_fences(lines: list[str], info: str) -> None:
    code = "\n".join(["first", *lines, "last"])
    fence = "~" * 99

    assert Parsed(render(f"{fence}{info}\n{code}\n{fence}\n", anchor="m")).inside("code") == [code]
    assert Parsed(render_open(f"{fence}{info}\n{code}", anchor="m")).inside("code") == [code]


@pytest.mark.parametrize("key", LANGUAGE_KEYS)
def test_every_language_compiles_and_uses_classes_the_sanitiser_knows(key: str) -> None:
    language = LANGUAGES[key]

    groups = set(re.compile(language.expression).groupindex) - {"word"}

    assert groups | set(language.words.values()) | set(language.names_after.values()) <= CLASSES


def test_every_alias_leads_to_its_language() -> None:
    assert {language_of(alias)[0] for alias in ALIASES} == set(LANGUAGES)


SAMPLES = {
    "python": ('@cache\nclass A:\n    """doc\n    more"""\n    x = not 0x1F', ["nd", "k", "nc", "sd", "ow", "m"]),
    "javascript": ("const f = async () => `a ${b}\n`; // c", ["k", "k", "sb", "c1"]),
    "go": ("func (s *S) f(t string) {}", ["k", "kt"]),
    "json": ('{"a": [1, true, "b"]}', ["nt", "m", "kc", "s2"]),
    "yaml": ("# c\na-b: 'it'\nc: yes", ["c1", "nt", "s1", "nt", "kc"]),
    "html": ('<!-- c --><a href="x">&lt;</a>', ["cm", "nt", "na", "s2", "nt", "kc", "nt", "nt"]),
    "css": ("a { color: #fff } /* c */", ["na", "m", "cm"]),
    "bash": ('if [ "$a" ]; then # c\necho $B\nfi', ["k", "s2", "k", "c1", "nb", "nv", "k"]),
    "sql": ("SELECT count(*) FROM a WHERE b = 'it''s' -- c", ["k", "nb", "k", "k", "s1", "s1", "c1"]),
    "c": ("#include <a.h>\nint main() { return 'a'; } /* c", ["kn", "kt", "k", "s1", "cm"]),
    "rust": ("fn f<'a>(x: &'a str) -> u8 { println!(\"x\") }", ["k", "nf", "kt", "kt", "nb", "s2"]),
    "vb": ("Sub Total() ' c\n  x = True", ["k", "nf", "c1", "kc"]),
    "diff": ("@@ -1 +1 @@\n-a\n+b\n c", ["gh", "gd", "gi"]),
}


@pytest.mark.parametrize("key", SAMPLES)
def test_what_matters_in_a_language_stands_out(key: str) -> None:
    code, classes = SAMPLES[key]

    assert re.findall(r'class="(\w+)"', coloured(key, code)) == classes


@pytest.mark.parametrize("key", LANGUAGE_KEYS)
def test_the_time_for_colours_is_linear_whatever_the_code_is(key: str) -> None:
    pieces = [
        "-",
        "a",
        "a-",
        "a:",
        "a.",
        "a=",
        " ",
        "\n",
        "a\n",
        "0",
        "'",
        '"',
        "\\",
        '"\\',
        "/*",
        "/",
        "<a ",
        "$",
        "[",
        "`",
        "@a",
        '"""',
        "_",
    ]
    pieces += ["--[[", "<!--", "{-", "%", "=", "&", "a b", "#", "'''", "((", "${"]
    started = time.process_time()

    for piece in pieces:
        coloured(key, piece * (20_000 // len(piece)))

    # Some 0.1 s; time that grows with the square is ten times as much for a single one of the pieces.
    assert time.process_time() - started < 2


def test_very_long_code_has_no_colours() -> None:
    assert "<span" in coloured("python", "def f(): pass\n" * 5_000)
    assert "<span" not in coloured("python", "def f(): pass\n" * 10_000)


def test_a_block_gets_its_colours_when_it_closes() -> None:
    grows = render_open("```python\ndef f():\n    pass", anchor="m")
    closed = render_open("```python\ndef f():\n    pass\n```", anchor="m")

    assert "<span" not in grows
    assert "<span" in closed


def test_only_the_block_that_grows_waits_for_its_colours() -> None:
    text = "1. First\n\n   ```python\n   def f(): pass\n   ```\n\n2. Second\n\n   ```python\n   def g(): pa"

    shown = render_open(text, anchor="m")

    assert '<span class="nf">f</span>' in shown
    assert "def g(): pa" in shown

"""Formulas: `$$…$$`, `\\(…\\)` and `\\[…\\]` become MathML, everything else stays what it was."""

import re
import time

import pytest
from hypothesis import given, settings, strategies as st

from tests.web.chat.parsed import Parsed
from web.chat.markdown import render, render_open
from web.chat.markdown.formulas import ATTRIBUTES, TAGS, mathml
from web.chat.markdown.sanitiser import clean


def test_a_formula_in_a_sentence() -> None:
    html = render(r"Mass \(E = mc^2\) **counts**.", anchor="m")

    assert html == (
        '<p dir="auto">Mass <math><mrow><mi>E</mi><mo>=</mo><mi>m</mi><msup><mi>c</mi><mn>2</mn></msup></mrow></math> '
        "<strong>counts</strong>.</p>\n"
    )


@pytest.mark.parametrize("text", ["$$x^2$$", "$$\nx^2\n$$", r"\[x^2\]", "\\[\n  x^2\n\\]"])
def test_a_formula_of_its_own(text: str) -> None:
    html = render(f"Before:\n\n{text}\n\nAfter.", anchor="m")

    formula = '<math display="block"><mrow><msup><mi>x</mi><mn>2</mn></msup></mrow></math>'
    assert html == f'<p dir="auto">Before:</p>\n{formula}\n<p dir="auto">After.</p>\n'


def test_a_formula_in_the_middle_of_a_paragraph_of_lines() -> None:
    shown = Parsed(render("Here\n$$\na_1 * b_1\n$$\nit *is*.", anchor="m"))

    assert shown.names()[:2] == ["p", "math"]
    assert shown.inside("em") == ["is"]


def test_formulas_in_lists_quotes_and_tables() -> None:
    text = "- item\n  \\[\n  a < b\n  \\]\n\n> $$\n> x_1\n> $$\n\n| a |\n|---|\n| \\(|x|\\) |\n"

    html = render(text, anchor="m")

    assert html.count("<math") == 3
    assert "<mo>&lt;</mo>" in html
    assert "<mo>&gt;</mo>" not in html
    assert len(Parsed(html).all("td")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "`\\(x\\)`",
        "`$$x$$`",
        "```\n$$x$$\n```",
        "    $$x$$",
        "~~~latex\n\\[x\\]\n~~~",
        "> ```\n> \\(x\\)\n> ```",
        "1. a\n\n       \\(x\\)",
    ],
)
def test_code_holds_no_formulas(text: str) -> None:
    shown = Parsed(render(text, anchor="m"))

    assert "math" not in shown.names()
    assert re.search(r"\\\(x\\\)|\$\$x\$\$|\\\[x\\\]", shown.inside("code")[0])


@pytest.mark.parametrize(
    "text",
    [
        "$x$ and $y$",
        "$100K, $115K",
        "a $$ b",
        "$$$x$$$",
        "\\\\(x\\\\)",
        "\\$$x\\$$",
        "\\(never closed",
        "$$a\n\nb$$",
        "x \\] y",
    ],
)
def test_what_is_no_formula_stays_text(text: str) -> None:
    assert "<math" not in render(text, anchor="m")


def test_an_address_keeps_what_looks_like_a_formula() -> None:
    html = render(r"[a](https://a.example/\(b\) '\(c\)') <https://a.example/\(d\)>", anchor="m")

    assert "<math" not in html.replace("<math><mrow>", "", 0)
    assert "https://a.example/" in html


@pytest.mark.parametrize(
    "latex", [r"\frac", r"x^", "{", r"\left(x", r"\begin{matrix} 1", r"\begin{unheard} 1 \end{unheard}", r"a_b_c"]
)
def test_a_broken_formula_is_shown_as_it_was_written(latex: str) -> None:
    shown = Parsed(render(f"Here \\({latex}\\) it is *fine*.", anchor="m"))

    assert f"\\({latex}\\)" in shown.text
    assert shown.inside("em") == ["fine"]


@pytest.mark.parametrize(
    "environment",
    ["aligned", "align", "align*", "gather*", "equation", "cases", "dcases", "pmatrix", "split", "eqnarray"],
)
def test_the_environments_that_models_use(environment: str) -> None:
    body = "a" if environment == "equation" else r"a &= b \\ c &= d \label{e} \nonumber"

    html = mathml(rf"\begin{{{environment}}} {body} \end{{{environment}}}", display=True)

    assert html is not None
    assert "&amp;" not in html
    assert "label" not in html
    assert environment == "equation" or html.count("<mtr>") == 2


def test_an_operator_keeps_what_is_inside() -> None:
    html = render(r"\(\mathop{\rm arg\,min}_x f, \arg\max_y\)", anchor="m")

    assert "a</mi>" in html
    assert "<mo>arg</mo>" in html


# While it grows


def test_half_a_formula_is_left_as_it_is() -> None:
    shown = Parsed(render_open("So \\(a_1 and *b_1* <b>", anchor="m"))

    assert shown.text.strip() == "So \\(a_1 and *b_1* <b>"
    assert shown.names() == ["p"]


# Hostile ones


@pytest.mark.parametrize(
    "latex",
    [
        r"\href{javascript:alert(1)}{x}",
        r"\href{https://evil.example}{x}",
        r"\style{position:fixed;inset:0}{x}",
        r"\class{button primary}{x}",
        r"\htmlId{composer}{x}",
        r"\cssId{main}{x}",
        r"\htmlData{hx-get=/logout}{x}",
        r"\includegraphics{https://evil.example/x.png}",
        r"\text{<img src=x onerror=alert(1)>}",
        r"\text{&lt;img src=x onerror=alert(1)&gt;}",
        r"\mbox{</math><script>alert(1)</script>}",
        r"\unicode{x3c}script\unicode{x3e}",
        r"\color{red;background:url(//evil.example)}{x}",
        r"\colorbox{javascript:x}{x}",
        r'\textcolor{"><img src=x>}{x}',
        r"\fcolorbox{red}{blue}{x}",
        r"\raise{900em}{x}",
        r"\hspace{9999em} x",
        r"\kern{-400em} x",
        r"\rule{900em}{900em}",
        r"\operatorname{<b>}",
        r"\verb|<script>|",
        r"\begin{array}{<svg onload=x>} 1 \end{array}",
        r"\tag{<b>}",
        r"\input{/etc/passwd}",
    ],
)
def test_a_hostile_formula_gets_nothing_through(latex: str) -> None:
    html = render(f"$${latex}$$", anchor="m")

    for tag in Parsed(html).tags:
        assert tag.name in TAGS | {"p"}
        for name, value in tag.attributes.items():
            assert name in ("display", "dir") or ATTRIBUTES[name].fullmatch(value)
            assert not re.search(r"[1-9]\d+(?:\.\d+)?(?:em|ex|px)", value)
    assert clean(html) == html


@pytest.mark.parametrize(
    "latex",
    [
        r"\newcommand{\a}{\b\b}\newcommand{\b}{\c\c}\newcommand{\c}{xxxx}\a",
        r"\def\a{\a\a}\a",
        r"\renewcommand{\x}{\x\x}\x",
        r"\DeclareMathOperator{\a}{b}\a",
        "{" * 100 + "x" + "}" * 100,
        "{" * 990 + "}" * 990,
        r"\sqrt" * 400,
        r"\left(" * 200 + r"\right)" * 200,
        "x^{" * 400 + "}" * 400,
        "x" * 5_000,
    ],
)
def test_a_formula_without_measure_is_shown_as_it_was_written(latex: str) -> None:
    assert mathml(latex, display=True) is None
    assert "$$" in render(f"$${latex}$$", anchor="m")


def test_many_formulas_take_a_bounded_time() -> None:
    text = " ".join(f"$${'-1' * 900}{number}$$" for number in range(60))
    started = time.process_time()

    html = render(text, anchor="m")

    assert time.process_time() - started < 5
    assert 3 < html.count("<math") < 12


def test_an_answer_full_of_short_formulas_shows_them_all() -> None:
    text = "\n\n".join(rf"Where \(x_{{{number}}}\) is \(n_{{{number}}}\)." for number in range(200))

    assert render(text, anchor="m").count("<math") == 400


PIECES = [
    *r"\frac \sqrt \left \right \begin{matrix} \end{matrix} \begin{cases} \end{cases} \text{a<b} \href{x}".split(),
    *r"\sum \limits \mathbf{x} \mathop \operatorname{f} \over \hbox{$x$} \class{a} \style{b} \raise \rule".split(),
    *r"\overbrace \xrightarrow \displaystyle \Large \big \substack \sideset \genfrac \phantom \cancel \boxed".split(),
    *r"\tag \not \mathrm \color{red}".split(),
    *r"{ } [ ] _ ^ & \\ ' | ( ) < > a 1 2.5em . , = + - \, \; \{ \} \| % # ~ é ∑".split(),
    " ",
]


@settings(max_examples=200, deadline=None)
@given(latex=st.lists(st.sampled_from(PIECES), max_size=30).map("".join), display=st.booleans())
def test_any_latex_gives_mathml_that_the_sanitiser_leaves_alone_or_nothing(latex: str, display: bool) -> None:
    html = mathml(latex, display=display)

    assert html is None or clean(html) == html

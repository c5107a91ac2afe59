"""Rules that hold for every template, read from the source: a page cannot break them only in a state no test shows."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import TemplateSyntaxError, meta

from web.rendering import STATIC, templates

WEB = Path(STATIC).parent
NAMES = sorted(str(path.relative_to(WEB)) for path in WEB.rglob("*.html"))

COMMENT = re.compile(r"{#.*?#}", re.DOTALL)
TRANSLATED = re.compile(r"{%-?\s*trans\b.*?{%-?\s*endtrans\s*-?%}", re.DOTALL)
JINJA = re.compile(r"{{.*?}}|{%.*?%}", re.DOTALL)

HTMX = {
    "hx-config", "hx-delete", "hx-disable", "hx-get", "hx-ignore", "hx-include", "hx-indicator", "hx-patch", "hx-post",
    "hx-put", "hx-sse:close", "hx-sse:connect", "hx-swap", "hx-sync", "hx-target", "hx-trigger", "hx-vals",
}  # fmt: skip
# Names, and the words on keys, are the same in every language.
UNTRANSLATED = {"Parley", "Alt", "Ctrl", "Enter", "Esc", "Shift"}


def source(name: str) -> str:
    return COMMENT.sub("", (WEB / name).read_text())


class Markup(HTMLParser):
    """The tags of a template, and the words in it, as if every condition were true."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(JINJA.sub("", TRANSLATED.sub("", source(name))))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.words += re.findall(r"[^\W\d_]{2,}", data)


def attributes(name: str) -> Iterator[tuple[str, str, str]]:
    for tag, found in Markup(name).tags:
        for key, value in found.items():
            yield tag, key, value


@pytest.mark.parametrize("name", NAMES)
def test_it_compiles_and_what_it_uses_exists(name: str) -> None:
    environment = templates()
    try:
        tree = environment.parse((WEB / name).read_text())
    except TemplateSyntaxError as error:
        pytest.fail(f"{name}:{error.lineno}: {error.message}")

    environment.get_template(name)
    assert [used for used in meta.find_referenced_templates(tree) if used and not (WEB / used).is_file()] == []


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_it_needs_inline_code_or_style(name: str) -> None:
    inline = [(tag, key) for tag, key, _ in attributes(name) if key == "style" or key.startswith(("on", "hx-on"))]
    evaluated = [value for _, _, value in attributes(name) if re.match(r"\s*(js|javascript|data):", value)]
    filters = [value for _, key, value in attributes(name) if key == "hx-trigger" and "[" in value]

    assert inline == []
    assert evaluated == []
    assert filters == []
    assert not re.search(r"<style\b", source(name))
    assert re.findall(r"<script\b(?![^>]*\bsrc=)|<script\b[^>]*>\s*[^\s<]", source(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_it_escapes_the_escaping(name: str) -> None:
    assert re.findall(r"\|\s*safe\b|autoescape\s+false|\bMarkup\(", source(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_from_our_own_site_only(name: str) -> None:
    addresses = [value for _, key, value in attributes(name) if key in ("src", "href", "action") or key in HTMX]

    assert [value for value in addresses if re.match(r"\s*(https?:)?//", value)] == []


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_this_htmx_understands(name: str) -> None:
    """Among those missing here: `hx-swap-oob`, which `static/security.js` refuses; replies say `<hx-partial>`."""
    assert {key for _, key, _ in attributes(name) if key.startswith(("hx-", "sse-", "ws-"))} <= HTMX


@pytest.mark.parametrize("name", NAMES)
def test_a_form_works_without_script(name: str) -> None:
    text = source(name)
    forms = re.findall(r"<form\b((?:{{.*?}}|{%.*?%}|[^>])*)>", text, re.DOTALL)

    for form in forms:
        posted = re.search(r'hx-post="(.*?)"(?=[\s>{]|$)', form, re.DOTALL)
        action = re.search(r'(?<!form)action="(.*?)"(?=[\s>{]|$)', form, re.DOTALL)
        assert 'method="dialog"' in form or action, form
        assert not posted or (action and action[1] == posted[1] and 'method="post"' in form), form


@pytest.mark.parametrize("name", NAMES)
def test_a_button_that_is_a_picture_has_a_name(name: str) -> None:
    pictures = [found for tag, found in Markup(name).tags if "icon-button" in found.get("class", "").split()]

    assert [found for found in pictures if "aria-label" not in found] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_word_can_be_translated(name: str) -> None:
    markup = Markup(name)
    named = [
        word
        for _, found in markup.tags
        for key in ("aria-label", "title", "placeholder", "alt")
        for word in re.findall(r"[^\W\d_]{2,}", found.get(key, ""))
    ]

    assert set(markup.words + named) - UNTRANSLATED == set()


@pytest.mark.parametrize("name", [name for name in NAMES if "{% extends" in source(name)])
def test_a_page_has_a_title(name: str) -> None:
    if "{% block page %}{% endblock %}" in source(name):
        return  # a frame for other pages, which have theirs

    title = re.search(r"{% block title %}(.+?){% endblock %}", source(name))

    assert title
    assert title[1].strip()


def test_every_picture_is_in_the_sprite() -> None:
    drawn = set(re.findall(r'<symbol id="([\w-]+)"', (STATIC / "icons.svg").read_text()))
    used = {name for template in NAMES for name in re.findall(r'\bicon\("([\w-]+)"', source(template))}

    assert used - drawn == set()
    assert used


def test_a_target_is_an_element_of_some_page() -> None:
    """A fixed id that a swap names is written down somewhere."""
    everything = "".join(source(name) for name in NAMES)
    named = set(re.findall(r'(?:hx-target="#|commandfor="|popovertarget="|href="#)([a-z][a-z-]*)"', everything))

    made = set(re.findall(r'(?:\bid="|\bdanger\(")([a-z][a-z-]*)"', everything))
    assert named - made == set()
    assert "composer" in named


def test_a_field_shows_its_error_and_names_what_describes_it() -> None:
    field = templates().from_string(
        '{% from "_field.html" import field %}{{ field("email", "Email", value=value, error=error, help="Yours.") }}'
    )

    wrong = InputOf(field.render(value='"a" <b>', error="There is one already."))
    right = InputOf(field.render(value="", error=None))

    assert wrong.found["value"] == '"a" <b>'
    assert wrong.found["aria-invalid"] == "true"
    assert wrong.found["aria-describedby"] == "email-help email-error"
    assert right.found.keys() == {"id", "name", "type", "autocomplete", "required", "dir", "aria-describedby"}
    assert right.found["aria-describedby"] == "email-help"


class InputOf(HTMLParser):
    """The attributes of the first input."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "input" and not self.found:
            self.found = {key: value or "" for key, value in attrs}

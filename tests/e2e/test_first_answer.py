"""The promise of the README, word for word: the real database, the real model, a real browser, and a restart."""

import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.chromium import ARGUMENTS, CHROMIUM
from tests.embedded.console import Console
from tests.site import free_port

PASSWORD = "correct horse battery"
LONG = "Write a long story about a ship that sails around the world."

expect.set_options(timeout=20_000)  # beside the model's work a page may be slow

pytestmark = [pytest.mark.whole, pytest.mark.xdist_group("whole"), pytest.mark.timeout(300), pytest.mark.long]


def test_install_sign_in_chat_with_a_real_model_find_it_again(tmp_path: Path) -> None:
    port = free_port()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        with Console("run", data_dir=tmp_path, port=port) as first:
            page = _sign_up(browser, first.link())
            _ask(page, "Say hello in one short sentence.")
            first_answer = page.locator("article.assistant .prose").inner_text()
            names = page.get_by_role("combobox", name="Model").locator("option").all_inner_texts()
            page.get_by_role("combobox", name="Model").select_option(index=1)
            _ask(page, "And goodbye?")
            _interrupt_in_every_way(page)
            address, cookies = page.url, page.context.cookies()
            first.stop()
        with Console("run", data_dir=tmp_path, port=port) as second:
            began = time.monotonic()
            second.link()
            seconds = time.monotonic() - began
            again = browser.new_context()
            again.add_cookies(cookies)  # type: ignore[arg-type]
            page = again.new_page()
            page.goto(address)

            expect(page.get_by_role("article", name="You").first).to_be_visible()
            expect(page.locator("article.assistant .prose").first).to_have_text(first_answer)
            speakers = [article.get_attribute("aria-label") for article in page.locator("article.assistant").all()]
            second.stop()
        browser.close()

    assert first_answer.strip()
    assert len(names) == 2
    assert speakers[0] != speakers[1]
    assert seconds < 20, "five seconds on a machine that does nothing else"


def _interrupt_in_every_way(page: Page) -> None:
    """Reload in mid-answer, a second tab, stop and continue, edit, another model: on the engine people get."""
    answer = page.locator("article.assistant").last
    page.get_by_role("combobox", name="Model").select_option(index=0)
    for _try in range(5):  # a small model may be brief all the same
        _send(page, LONG)
        expect(answer.locator(".prose").first).not_to_be_empty(timeout=60_000)
        page.reload()
        if answer.get_attribute("aria-busy"):
            break
    other = page.context.new_page()
    other.goto(page.url)
    expect(answer).to_have_attribute("aria-busy", "true")
    page.get_by_role("button", name="Stop").click()
    expect(answer).to_contain_text("You stopped this answer.")
    stopped = answer.locator(".prose").inner_text().strip()
    expect(other.locator("article.assistant").last).to_contain_text("You stopped this answer.")
    other.close()

    answer.get_by_role("button", name="Continue", exact=True).click()
    expect(answer).to_have_attribute("aria-busy", "true")
    _until_done(page, answer, enough=len(stopped) + 200)
    whole = answer.locator(".prose").inner_text()
    assert whole[: len(stopped) - 20] == stopped[:-20], "its text only grows"
    assert len(whole) > len(stopped)

    question = page.get_by_role("article", name="You").last
    question.get_by_role("button", name="Edit").click()
    question.get_by_role("textbox").fill("Say yes.")
    question.get_by_role("button", name="Send").click()
    expect(question).to_contain_text("2/2")
    _until_done(page, answer)
    answer.get_by_role("button", name="Answer in another way").click()
    page.locator("#answer-menu").get_by_role("button", name="brief").click()
    expect(answer).to_contain_text("2/2")
    _until_done(page, answer)
    page.get_by_role("button", name="Previous version").first.click()
    expect(answer).to_contain_text(whole[:40].strip())


def _sign_up(browser: Browser, link: str) -> Page:
    page = browser.new_context().new_page()
    page.goto(link)
    page.get_by_label("Your name").fill("Ines Duarte")
    page.get_by_label("Email").fill("ines@corp.example")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label(re.compile("Name of the company")).fill("Fernhill Works")
    page.get_by_role("button", name="Create account and open Parley").click()
    expect(page.get_by_text("What are you working on?")).to_be_visible()
    expect(page.get_by_role("combobox", name="Model")).to_be_visible()
    return page


def _ask(page: Page, text: str) -> None:
    answer = _send(page, text)
    _until_done(page, answer)
    expect(answer.locator(".prose")).not_to_be_empty()


def _until_done(page: Page, answer: Locator, enough: int = 1000) -> None:
    """Until it ends, or has so many characters: so small a model may repeat itself until its window is full."""
    deadline = time.monotonic() + 120
    while answer.get_attribute("aria-busy") and len(answer.inner_text()) < enough:
        assert time.monotonic() < deadline, answer.inner_text()
        page.wait_for_timeout(100)
    if answer.get_attribute("aria-busy"):
        page.keyboard.press("Escape")
    expect(answer).not_to_have_attribute("aria-busy", "true")


def _send(page: Page, text: str) -> Locator:
    before = page.locator("article.assistant").count()
    page.get_by_role("textbox", name="Message", exact=True).fill(text)
    page.keyboard.press("Enter")
    answer = page.locator("article.assistant").nth(before)
    expect(answer).to_be_visible()
    return answer

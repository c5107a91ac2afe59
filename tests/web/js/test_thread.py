"""Streams that come and go, scrolling, copying and keys, in a real browser."""

import time

import pytest
from playwright.sync_api import Page, expect

from tests.web.js.conftest import OpenTab
from tests.web.js.stage import BLOCKS, CHAT, CODE, RUNNING, Stage

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("js"), pytest.mark.long]

# A headless browser counts every page as visible, so pages are told.
CAN_HIDE = """
  Object.defineProperty(document, "hidden", {get: () => Boolean(window.isHidden)});
  window.hide = (hidden) => {
    window.isHidden = hidden;
    document.dispatchEvent(new Event("visibilitychange"));
  };
"""
TO_THE_END = "() => document.documentElement.scrollHeight - innerHeight - scrollY"


def finished(page: Page) -> None:
    expect(page.locator("#message-a1:not([aria-busy])")).to_be_visible()


def shown_once(page: Page) -> bool:
    found: list[str] = page.locator("#message-a1 .prose > p").all_inner_texts()
    return len(found) == len(set(found)) == sum(block.startswith("<p>") for block in BLOCKS)


def clipboard(page: Page) -> str:
    page.wait_for_timeout(100)
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def test_an_answer_streams_in_and_nothing_is_asked_afterwards(stage: Stage, tab: OpenTab) -> None:
    page = tab(RUNNING)

    finished(page)
    page.wait_for_timeout(1000)

    assert shown_once(page)
    assert len(stage.streams) == 1
    expect(page.locator("#announcer")).to_have_text("The answer is complete.")


@pytest.mark.parametrize("events", [1, 7])
def test_a_broken_stream_goes_on_where_it_broke_off(stage: Stage, tab: OpenTab, events: int) -> None:
    stage.break_after = events
    page = tab(RUNNING)

    finished(page)

    assert shown_once(page)
    assert [asked.headers.get("last-event-id") for asked in stage.streams] == [None, f"1.0.{events}"]
    expect(page.locator("#offline")).to_be_hidden()


def test_a_stream_without_a_session_is_tried_once_and_asks_to_sign_in(stage: Stage, tab: OpenTab) -> None:
    stage.refuse_streams = 401
    page = tab(RUNNING)

    expect(page.get_by_role("dialog", name="You were signed out")).to_be_visible()
    page.wait_for_timeout(1200)

    assert len(stage.streams) == 1


def test_a_session_that_ends_in_mid_answer_ends_the_tries_too(stage: Stage, tab: OpenTab) -> None:
    stage.break_after = 2
    stage.pause = 0.2
    page = tab(RUNNING)

    page.wait_for_selector("#blocks-a1 > p")
    stage.refuse_streams = 401
    expect(page.get_by_role("dialog", name="You were signed out")).to_be_visible()
    page.wait_for_timeout(1200)

    assert len(stage.streams) == 2


def test_a_server_that_is_away_is_tried_with_growing_gaps(stage: Stage, tab: OpenTab) -> None:
    stage.refuse_streams = 503
    page = tab("/")
    page.clock.install()
    page.goto(RUNNING)

    for _ in range(100):
        page.clock.run_for(3000)
    tries = len(stage.streams)
    expect(page.get_by_text("Connection lost.")).to_be_visible()
    expect(page.locator("#toasts")).to_be_empty()
    stage.refuse_streams = None
    page.get_by_role("button", name="Try now").click()
    finished(page)

    assert 5 <= tries <= 10
    expect(page.get_by_text("Connection lost.")).to_be_hidden()


def test_a_hidden_page_holds_no_stream_and_goes_on_when_it_is_looked_at(stage: Stage, tab: OpenTab) -> None:
    stage.pause = 0.05
    page = tab(RUNNING, before=CAN_HIDE)
    page.wait_for_selector("#blocks-a1 > figure")

    page.evaluate("hide(true)")
    page.wait_for_timeout(300)
    blocks = page.locator("#blocks-a1 > *").count()
    page.wait_for_timeout(700)
    still = page.locator("#blocks-a1 > *").count()
    page.evaluate("hide(false)")
    finished(page)

    assert blocks == still
    assert shown_once(page)
    assert len(stage.streams) == 2
    assert stage.streams[1].headers["last-event-id"] == f"1.0.{blocks}"


def test_a_page_that_opens_in_the_background_asks_for_no_stream(stage: Stage, tab: OpenTab) -> None:
    page = tab(RUNNING, before=f"window.isHidden = true;{CAN_HIDE}")
    page.wait_for_timeout(300)
    before = len(stage.streams)

    page.evaluate("hide(false)")
    finished(page)

    assert (before, len(stage.streams)) == (0, 1)


def test_a_hidden_page_learns_of_the_end_by_asking(stage: Stage, tab: OpenTab) -> None:
    page = tab("/", before=f"window.isHidden = true;{CAN_HIDE}")
    page.clock.install()
    page.goto(RUNNING)

    page.clock.run_for(21_000)
    finished(page)

    expect(page.get_by_text("The end, asked for.")).to_be_visible()
    assert stage.streams == []


def test_seven_windows_with_running_answers_leave_connections_for_others(stage: Stage, tab: OpenTab) -> None:
    stage.pause = 0.5
    pages = [tab(RUNNING) for _ in range(7)]
    pages[-1].wait_for_timeout(800)
    streams = len(stage.streams)

    start = time.perf_counter()
    tab(CHAT)
    took = time.perf_counter() - start
    for page in pages[:4]:
        page.close()
    pages[-1].wait_for_timeout(2500)

    assert streams == 4
    assert took < 8, "it had not to wait for a stream"
    assert len(stage.streams) == 7  # the others took their turn


def test_a_reader_who_scrolled_up_is_left_alone_and_one_at_the_end_stays_there(stage: Stage, tab: OpenTab) -> None:
    stage.pause = 0.1
    page = tab(RUNNING)
    page.wait_for_function("() => document.documentElement.scrollHeight > innerHeight + 400")
    at_the_end = page.evaluate(TO_THE_END)

    page.mouse.move(700, 300)
    page.mouse.wheel(0, -300)
    place = where_it_rests(page)
    page.wait_for_timeout(600)
    later = page.evaluate("scrollY")
    page.mouse.wheel(0, 5000)
    finished(page)

    assert at_the_end < 200
    assert place == later
    page.wait_for_function(f"() => ({TO_THE_END})() < 2")


def where_it_rests(page: Page) -> int:
    """Once the wheel has had its effect, which a browser spreads over some frames."""
    before, place = None, -1
    while before != place:
        before = place
        page.wait_for_timeout(250)
        place = page.evaluate("scrollY")
    return place


def test_escape_stops_the_answer_unless_something_is_open(stage: Stage, tab: OpenTab) -> None:
    stage.pause = 0.5
    page = tab(RUNNING)
    page.get_by_role("button", name="Alice Owner").click()

    page.keyboard.press("Escape")
    page.wait_for_timeout(200)
    before = stage.requests("POST", f"{CHAT}/messages/a1/stop")
    page.locator("#message").focus()
    page.keyboard.press("Escape")
    expect(page.get_by_text("You stopped this answer.")).to_be_visible()

    assert before == []
    assert len(stage.requests("POST", f"{CHAT}/messages/a1/stop")) == 1


def test_code_is_copied_exactly(tab: OpenTab) -> None:
    page = tab(RUNNING)
    finished(page)
    button = page.locator("#message-a1 figure").get_by_role("button")

    button.click()

    expect(button).to_have_text("Copied")
    assert clipboard(page) == CODE
    expect(page.locator("#announcer")).to_have_text("Copied")
    expect(button).to_have_text("Copy code")


def test_a_message_is_copied_as_one_reads_it(tab: OpenTab) -> None:
    page = tab(CHAT)

    page.locator("#message-a1").hover()
    page.locator("#message-a1").get_by_role("button", name="Copy", exact=True).click()

    text = clipboard(page)
    html = page.evaluate("navigator.clipboard.read().then(([item]) => item.getType('text/html')).then((b) => b.text())")
    assert text.split() == ["Two", "things.", "1.", "First.", "2.", "Second.", *CODE.split()]
    assert CODE.strip() in text
    assert "<ol>" in html
    assert "Copy code" not in html


def test_without_a_clipboard_of_its_own_a_page_copies_by_hand(tab: OpenTab) -> None:
    page = tab(CHAT, before="Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true})")

    page.locator("#message-a1 figure").get_by_role("button").click()
    expect(page.get_by_text("Copied").first).to_be_visible()
    page.locator("#message").focus()
    page.keyboard.press("Control+v")

    assert page.locator("#message").input_value() == CODE


def test_messages_are_walked_and_copied_with_keys(tab: OpenTab) -> None:
    page = tab(CHAT)
    page.locator("#message").focus()

    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("Alt+ArrowUp")
    expect(page.locator("#message-q1")).to_be_focused()
    page.keyboard.press("c")
    copied = clipboard(page)
    page.keyboard.press("Alt+ArrowDown")
    expect(page.locator("#message-a1")).to_be_focused()
    page.keyboard.press("Alt+ArrowDown")

    expect(page.locator("#message")).to_be_focused()
    assert copied == "Why?"

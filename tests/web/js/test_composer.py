"""The message box in a real browser."""

import time
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.web.js.conftest import OpenTab
from tests.web.js.stage import CHAT, Asked, Reply, Stage

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("js"), pytest.mark.long]

LINES = "\n".join("x" * 50 for _ in range(20_000))

# What input methods send: the Enter that ends a composition, before or after the end, and what came to be known since.
COMPOSE = """(box) => {
  const enter = {key: "Enter", bubbles: true, cancelable: true};
  const press = (more) => box.dispatchEvent(new KeyboardEvent("keydown", {...enter, ...more}));
  const compose = (name) => box.dispatchEvent(new CompositionEvent(name, {bubbles: true}));
  compose("compositionstart");
  press({isComposing: true});
  compose("compositionend");
  press({keyCode: 229});
  compose("compositionstart");
  compose("compositionend");
  press({});
}"""

TIME_KEYS = """() => {
  window.times = [];
  const measure = () => {
    const start = performance.now();
    requestAnimationFrame(() => setTimeout(() => window.times.push(performance.now() - start)));
  };
  addEventListener("keydown", measure, true);
  addEventListener("paste", measure, true);
}"""


def box(page: Page) -> str:
    return page.get_by_role("textbox", name="Message").input_value()


def write(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Message").fill(text)


def slowly(stage: Stage, seconds: float) -> Callable[[Asked], Reply]:
    def accept(asked: Asked) -> Reply:
        time.sleep(seconds)
        return stage.accept(asked)

    return accept


def test_enter_sends_and_shift_enter_makes_a_line(stage: Stage, tab: OpenTab) -> None:
    page = tab("/")
    write(page, "One")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")

    page.keyboard.press("Enter")

    expect(page.locator("#message-a2")).to_be_visible()
    expect(page).to_have_url(stage.url + CHAT)
    assert [asked.form["text"] for asked in stage.sent] == ["One\ntwo"]
    assert box(page) == ""
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()


def test_white_space_alone_is_not_sent_by_enter(stage: Stage, tab: OpenTab) -> None:
    page = tab(CHAT)
    write(page, " \n ")

    page.keyboard.press("Enter")
    page.wait_for_timeout(200)

    assert stage.sent == []


def test_an_enter_that_confirms_a_composition_sends_nothing(stage: Stage, tab: OpenTab) -> None:
    page = tab(CHAT)
    write(page, "にほん")

    page.locator("#message").evaluate(COMPOSE)
    page.wait_for_timeout(200)
    before = len(stage.sent)
    page.keyboard.press("Enter")
    expect(page.locator("#message-a2")).to_be_visible()

    assert before == 0
    assert len(stage.sent) == 1


def test_an_enter_that_confirms_a_composition_renames_nothing(stage: Stage, tab: OpenTab) -> None:
    page = tab(CHAT)
    page.get_by_role("button", name="More").first.click()
    page.get_by_role("button", name="Rename").click()

    kept = page.locator("#new-title").evaluate(
        """(box) => {
          box.dispatchEvent(new CompositionEvent("compositionend", {bubbles: true}));
          const late = new KeyboardEvent("keydown", {key: "Enter", keyCode: 229, bubbles: true, cancelable: true});
          const plain = new KeyboardEvent("keydown", {key: "Enter", keyCode: 13, bubbles: true, cancelable: true});
          return [box.dispatchEvent(late), box.dispatchEvent(plain)];
        }"""
    )

    assert kept == [False, True]  # the first one is held back, the next plain one is not


def test_on_a_touch_screen_enter_is_a_new_line(stage: Stage, tab: OpenTab) -> None:
    page = tab(CHAT, touch=True)
    page.locator("#message").tap()

    page.keyboard.type("One")
    page.keyboard.press("Enter")

    assert box(page) == "One\n"
    assert stage.sent == []


def test_three_clicks_send_once(stage: Stage, tab: OpenTab) -> None:
    stage.send = slowly(stage, 0.3)
    page = tab(CHAT)
    write(page, "Once")

    page.evaluate("() => { for (let i = 0; i < 3; i += 1) document.querySelector('.send').click(); }")
    expect(page.locator("#message-a2")).to_be_visible()
    page.wait_for_timeout(500)

    assert len(stage.sent) == 1
    assert box(page) == ""


def test_what_is_typed_while_a_send_is_under_way_stays(stage: Stage, tab: OpenTab) -> None:
    stage.send = slowly(stage, 0.5)
    page = tab(CHAT)
    write(page, "First")

    page.keyboard.press("Enter")
    page.keyboard.type(" and then")
    expect(page.locator("#message-a2")).to_be_visible()

    assert [asked.form["text"] for asked in stage.sent] == ["First"]
    assert box(page) == "and then"


def test_a_draft_survives_a_reload_until_it_is_discarded(tab: OpenTab) -> None:
    page = tab(CHAT)
    write(page, "Half a thought")

    page.reload()
    kept = box(page)
    expect(page.get_by_text("Your draft from")).to_be_visible()
    page.get_by_role("button", name="Discard draft").click()
    after = box(page)
    page.reload()

    assert (kept, after, box(page)) == ("Half a thought", "", "")
    expect(page.get_by_text("Your draft from")).to_have_count(0)


def test_a_draft_tells_when_it_was_written(tab: OpenTab) -> None:
    page = tab("/")
    page.clock.install(time="2026-11-30T11:42:10Z")
    page.goto(CHAT)
    write(page, "Half a thought")

    page.clock.fast_forward("02:00:00")
    page.reload()
    page.reload()

    expect(page.get_by_text("Your draft from 11:42 is still here.")).to_be_visible()


def test_a_draft_belongs_to_its_conversation(tab: OpenTab) -> None:
    page = tab(CHAT)
    write(page, "For this one")

    page.get_by_role("link", name="New chat").click()
    elsewhere = box(page)
    page.goto(CHAT)

    assert elsewhere == ""
    assert box(page) == "For this one"


def test_a_sent_text_is_no_draft_any_more(tab: OpenTab) -> None:
    page = tab("/")
    write(page, "Sent")
    page.keyboard.press("Enter")
    expect(page.locator("#message-a2")).to_be_visible()

    page.goto("/")

    assert box(page) == ""


def test_a_lost_session_keeps_the_text_and_leads_back_to_it(stage: Stage, tab: OpenTab) -> None:
    stage.send = lambda asked: Reply("", 401, {"HX-Reswap": "none", "HX-Trigger": "parley:signed-out"})
    page = tab(CHAT)
    write(page, "Not lost")

    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="You were signed out")
    expect(dialog).to_be_visible()
    kept = box(page)
    dialog.get_by_label("Password").fill("correct horse battery")
    dialog.get_by_role("button", name="Sign in").click()
    expect(dialog).to_have_count(0)

    assert kept == "Not lost"
    assert page.url == stage.url + CHAT
    assert box(page) == "Not lost"
    (signed_in,) = stage.requests("POST", "/login")
    assert signed_in.form["next"] == CHAT
    assert signed_in.form["time_zone"]


def test_another_person_finds_no_draft(stage: Stage, tab: OpenTab) -> None:
    page = tab(CHAT)
    write(page, "Alice's secret")

    stage.person = "bob"
    page.reload()

    assert box(page) == ""
    assert "secret" not in page.evaluate("JSON.stringify(sessionStorage)")


def test_signing_out_forgets_every_draft(tab: OpenTab) -> None:
    page = tab(CHAT)
    write(page, "Alice's secret")

    page.get_by_role("button", name="Alice Owner").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible()

    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize(
    ("status", "sentence"),
    [(409, "An answer is being written."), (500, "An answer is being written."), (502, "The server could not do that")],
)
def test_a_failed_send_keeps_the_text(stage: Stage, tab: OpenTab, status: int, sentence: str) -> None:
    proxy = Reply("<html><body><h1>Bad gateway</h1></body></html>", 502)
    stage.send = lambda asked: proxy if status == 502 else stage.toast(status)
    page = tab(CHAT)
    write(page, "Keep me")

    page.keyboard.press("Enter")

    expect(page.locator("#toasts")).to_contain_text(sentence)
    assert box(page) == "Keep me"
    expect(page.get_by_text("Bad gateway")).to_have_count(0)


def test_without_a_connection_the_text_is_kept(stage: Stage, tab: OpenTab) -> None:
    page = tab(CHAT)
    write(page, "Keep me")

    page.context.set_offline(True)
    page.keyboard.press("Enter")
    expect(page.locator("#toasts")).to_contain_text("Not sent. The connection is gone; your text is kept.")
    kept = box(page)
    page.context.set_offline(False)
    page.keyboard.press("Enter")
    expect(page.locator("#message-a2")).to_be_visible()

    assert kept == "Keep me"
    assert len(stage.sent) == 1
    expect(page.locator("#toasts")).to_be_empty()  # it is not true any more


def test_the_same_text_goes_with_the_same_key_and_another_text_with_another(stage: Stage, tab: OpenTab) -> None:
    stage.send = lambda asked: stage.toast(500)
    page = tab(CHAT)
    write(page, "Try")

    for more in ("", "", "!"):
        page.keyboard.type(more)
        with page.expect_response(f"**{CHAT}/messages"):
            page.keyboard.press("Enter")
        page.wait_for_selector("#composer:not(.htmx-request)")

    first, second, third = (asked.form["key"] for asked in stage.sent)
    assert first == second
    assert third != first


def test_twenty_thousand_pasted_lines_leave_the_box_quick(stage: Stage, tab: OpenTab) -> None:
    page = tab(CHAT)
    page.evaluate("(text) => navigator.clipboard.writeText(text)", LINES)
    page.evaluate(TIME_KEYS)
    write(page, "Sum this up:")
    before = typing(page)

    page.keyboard.press("Control+v")
    expect(page.locator("#composer").get_by_text("Pasted text")).to_be_visible()
    expect(page.locator("#composer").get_by_text("20,000 lines")).to_be_visible()
    page.wait_for_function("() => window.times.length >= 2")
    pasted = page.evaluate("window.times.splice(0)")
    after = typing(page)

    assert max(pasted) < max(300, 20 * before)
    assert after < max(50, 3 * before)  # as quick as without them, however slow the machine is


def typing(page: Page) -> float:
    """What a key takes, in milliseconds: the middle of fifteen."""
    page.evaluate("window.times.splice(0)")
    for _ in range(15):
        page.keyboard.press("a")
        page.wait_for_timeout(40)
    page.wait_for_function("() => window.times.length >= 15")
    times: list[float] = sorted(page.evaluate("window.times.splice(0)"))
    return times[len(times) // 2]


def test_a_large_paste_is_sent_whole_below_the_text(stage: Stage, tab: OpenTab) -> None:
    page = tab(CHAT)
    page.evaluate("(text) => navigator.clipboard.writeText(text)", LINES)
    write(page, "Sum this up:")
    page.keyboard.press("Control+v")
    page.reload()  # it is part of the draft

    page.get_by_role("button", name="Send").click()
    expect(page.locator("#message-a2")).to_be_visible()

    assert [asked.form["text"] for asked in stage.sent] == [f"Sum this up:\n\n{LINES}"]
    expect(page.locator("#composer").get_by_text("Pasted text")).to_have_count(0)


def test_a_large_paste_alone_is_sent_as_it_is_or_taken_out_again(stage: Stage, tab: OpenTab) -> None:
    page = tab(CHAT)
    page.evaluate("(text) => navigator.clipboard.writeText(text)", LINES)
    page.locator("#message").focus()
    page.keyboard.press("Control+v")
    page.get_by_role("button", name="Remove the pasted text").click()
    page.keyboard.press("Enter")
    before = len(stage.sent)

    page.keyboard.press("Control+v")
    page.keyboard.press("Enter")
    expect(page.locator("#message-a2")).to_be_visible()

    assert before == 0
    assert [asked.form["text"] for asked in stage.sent] == [LINES]

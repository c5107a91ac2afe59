"""Versions of messages in a real browser: focus, place, streams, the editor, and how much fits."""

import pytest
from playwright.sync_api import Page, expect

from tests.web.js.conftest import OpenTab
from tests.web.js.stage import BLOCKS, CHAT, RUNNING, Stage, answer, question, siblings

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("js"), pytest.mark.long]

LONG = "".join(BLOCKS)
FIRST, SECOND = siblings(1, None, "a2"), siblings(2, "a1", None)


def announced(page: Page) -> str:
    return page.locator("#announcer").inner_text().strip()


def test_a_step_leaves_focus_and_place_where_they_were(stage: Stage, tab: OpenTab) -> None:
    """By button, then by the arrow keys of a message that has the focus."""
    follow_up = [question("More?", "q2"), answer(LONG, id="a3")]
    stage.branch = [question(), answer(LONG, siblings=FIRST), *follow_up]
    page = tab(CHAT)
    button = page.get_by_role("button", name="Next version")
    button.scroll_into_view_if_needed()
    before = button.bounding_box()

    stage.branch, stage.about = [question(), answer("<p>Short.</p>", id="a2", siblings=SECOND), *follow_up], "a2"
    button.click()
    expect(page.locator("#message-a2 [data-step=before]")).to_be_focused()  # the only one of the two that leads on
    back = page.get_by_role("button", name="Previous version")
    after = back.bounding_box()
    said = announced(page)
    stage.branch, stage.about = [question(), answer(LONG, siblings=FIRST), *follow_up], "a1"
    page.locator("#message-a2").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#message-a1")).to_be_visible()

    expect(page.locator("#message-a1")).to_be_focused()
    assert before
    assert after
    assert abs(before["y"] - after["y"]) < 2 or page.evaluate("scrollY") == 0
    assert said == "Version 2 of 2."
    asked = [one.path for one in stage.asked if one.path.endswith("/show")]
    assert asked == [f"{CHAT}/messages/a2/show", f"{CHAT}/messages/a1/show"]


def test_leaving_a_branch_closes_its_stream_and_coming_back_opens_one(stage: Stage, tab: OpenTab) -> None:
    stage.pause = 0.2
    stage.branch = [question(siblings=siblings(1, None, "q2")), answer(running=True)]
    page = tab(CHAT)
    page.wait_for_selector("#blocks-a1 > p")

    stage.branch = [question("Other", "q2", siblings=siblings(2, "q1", None)), answer(id="a9")]
    page.get_by_role("button", name="Next version").click()
    expect(page.locator("#message-a9")).to_be_visible()
    page.wait_for_timeout(700)
    left = stage.open_streams
    stage.branch = [question(siblings=siblings(1, None, "q2")), answer(running=True)]
    page.get_by_role("button", name="Previous version").click()
    page.wait_for_selector("#blocks-a1 > p")
    page.wait_for_timeout(300)

    assert left == 0
    assert stage.open_streams == 1
    assert len(stage.streams) == 2


def test_an_edit_is_sent_with_the_chosen_model_and_escape_takes_it_back(stage: Stage, tab: OpenTab) -> None:
    stage.send = lambda asked: stage.toast(409)
    page = tab(CHAT)
    editor = page.get_by_role("textbox", name="Edit this question")
    page.locator("#message-q1").focus()

    page.keyboard.press("e")
    expect(editor).to_be_focused()
    page.keyboard.type(" Really")
    page.keyboard.press("Escape")
    expect(editor).to_have_count(0)
    expect(page.locator("#message-q1 [data-edit]")).to_be_focused()
    expect(page.locator("#message-q1 .bubble")).to_be_visible()
    page.locator("#message").focus()
    page.keyboard.press("ArrowUp")
    expect(editor).to_be_focused()
    page.keyboard.type(" Really?")
    page.get_by_role("combobox", name="Model").select_option("m2")
    editor.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#toasts")).to_contain_text("An answer is being written.")

    (sent,) = stage.sent
    assert sent.form["text"] == "Why? Really?"
    assert (sent.form["edits"], sent.form["model"]) == ("q1", "m2")
    expect(editor).to_have_value("Why? Really?")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#message-q1 .bubble")).to_be_visible()


def test_menus_act_on_the_message_they_were_opened_for(stage: Stage, tab: OpenTab) -> None:
    stage.branch = [question(), answer(), question("More?", "q2"), answer(id="a2")]
    page = tab(CHAT)
    menu = page.locator("#answer-menu")

    page.locator("#message-a1").get_by_role("button", name="Answer in another way").click()
    expect(menu.get_by_role("button", name="Fake 8B")).to_have_count(0)  # it has answered already
    menu.get_by_role("button", name="Fake 70B").click()
    page.wait_for_timeout(200)
    page.locator("#message-a2").focus()
    page.keyboard.press("r")
    page.wait_for_timeout(200)
    page.locator("#message-a1").get_by_role("button", name="Answer in another way").click()
    page.get_by_role("textbox", name="What should be different?").fill("In verse")
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)
    page.locator("#message-q2").get_by_role("button", name="More actions").click()
    page.get_by_role("button", name="Delete message").click()
    expect(page.get_by_role("button", name="Keep it")).to_be_focused()
    stage.branch = [question(), answer()]
    page.get_by_role("button", name="Delete message").click()
    expect(page.locator("#message-q2")).to_have_count(0)
    expect(page.get_by_role("dialog")).to_have_count(0)

    expect(page.locator("#message-a1")).to_be_focused()
    asked = [(one.path.removeprefix(f"{CHAT}/messages/"), one.form) for one in stage.asked if one.method == "POST"]
    assert asked == [
        ("a1/regenerate", {"model": "m2"}),
        ("a2/regenerate", {}),
        ("a1/regenerate", {"instruction": "In verse"}),
        ("q2/delete", {}),
    ]


def test_the_gauge_is_quiet_until_three_fifths_and_says_what_cannot_fit(stage: Stage, tab: OpenTab) -> None:
    page = tab(CHAT)
    gauge, words = page.locator(".gauge"), page.locator(".gauge > span")
    note = page.get_by_text("This text alone is about")
    box = page.locator("#message")

    quiet = words.bounding_box()
    box.fill("x" * 7000)
    expect(words).to_have_text("3,000 of 4,000 tokens")
    loud = words.bounding_box()
    expect(note).to_be_hidden()
    box.fill("x" * 14000)
    expect(note).to_have_text(
        "This text alone is about 1,000 tokens too long for this model. Shorten it, or choose another model."
    )
    page.get_by_role("combobox", name="Model").select_option("m2")
    expect(gauge).to_be_hidden()  # nobody knows how much that one can read
    expect(note).to_be_hidden()
    box.fill("")
    page.get_by_role("combobox", name="Model").select_option("m1")
    expect(words).to_have_text("1,000 of 4,000 tokens")
    stage.pause = 0.1
    box.fill("Next")
    page.keyboard.press("Enter")
    expect(words).to_have_text("2,000 of 4,000 tokens")  # what was there, and what this turn adds

    assert quiet
    assert loud
    assert quiet["width"] <= 1 < loud["width"]


@pytest.mark.parametrize("meanwhile", ["", "Something else"])
def test_a_text_that_was_too_long_comes_back_into_an_empty_box(stage: Stage, tab: OpenTab, meanwhile: str) -> None:
    stage.ends = {"status": "failed", "provenance": {"failure": "overflow"}, "way_on": "regenerate"}
    stage.may_end.clear()
    page = tab(CHAT)
    page.locator("#message").fill("Far too long")

    page.keyboard.press("Enter")
    expect(page.locator("#message-a2")).to_be_visible()
    page.locator("#message").fill(meanwhile)
    stage.may_end.set()
    expect(page.locator("#message-a2 [data-too-long]")).to_be_visible()

    expect(page.locator("#message")).to_have_value(meanwhile or "Far too long")
    assert ("Your text is back in the message box." in announced(page)) == (not meanwhile)


def test_a_text_whose_files_went_with_it_stays_where_it_is(stage: Stage, tab: OpenTab) -> None:
    """They cannot come back, and without them it would be another question."""
    stage.ends = {"status": "failed", "provenance": {"failure": "overflow"}, "way_on": "regenerate"}
    stage.may_end.clear()
    page = tab(CHAT)
    page.locator("#message").fill("What do you see?")
    page.keyboard.press("Enter")
    expect(page.locator("#message-a2")).to_be_visible()
    page.evaluate("document.getElementById('message-q2').appendChild(document.createElement('a')).className = 'chip'")

    stage.may_end.set()
    expect(page.locator("#message-a2 [data-too-long]")).to_be_visible()

    expect(page.locator("#message")).to_have_value("")


def test_old_ways_on_are_gone_once_the_conversation_went_on(stage: Stage, tab: OpenTab) -> None:
    stage.branch = [question(), answer("Half", status="stopped")]
    page = tab(CHAT)
    expect(page.get_by_role("button", name="Continue", exact=True)).to_be_visible()

    page.locator("#message").fill("Next")
    page.keyboard.press("Enter")
    expect(page.locator("#message-a2")).to_be_visible()

    expect(page.get_by_role("button", name="Continue", exact=True)).to_have_count(0)
    assert RUNNING not in page.url

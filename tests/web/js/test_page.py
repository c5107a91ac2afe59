"""What every page does, in a real browser."""

import pytest
from playwright.sync_api import expect

from tests.web.js.conftest import OpenTab
from tests.web.js.stage import CHAT, Reply, Stage

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("js"), pytest.mark.long]


def test_the_sign_in_form_tells_the_time_zone(stage: Stage, tab: OpenTab) -> None:
    page = tab("/login")

    page.get_by_label("Email").fill("alice@corp.example")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/")

    (asked,) = stage.requests("POST", "/login")
    assert asked.form["time_zone"] == page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")


def test_the_theme_changes_at_once_and_the_server_is_told(stage: Stage, tab: OpenTab) -> None:
    page = tab(CHAT)
    page.get_by_role("button", name="Alice Owner").click()

    with page.expect_response("**/settings/theme"):
        page.get_by_role("button", name="Dark theme").click()

    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    assert [asked.form["theme"] for asked in stage.requests("POST", "/settings/theme")] == ["dark"]
    expect(page.get_by_role("button", name="Light theme")).to_be_visible()


def test_a_question_mark_shows_the_shortcuts_unless_one_is_typing(tab: OpenTab) -> None:
    page = tab(CHAT)
    shortcuts = page.get_by_role("dialog", name="Keyboard shortcuts")

    page.locator("#message").press("?")
    typed = page.locator("#message").input_value()
    expect(shortcuts).to_be_hidden()
    page.locator("#message").blur()
    page.keyboard.press("?")

    assert typed == "?"
    expect(shortcuts).to_be_visible()


def test_control_shift_o_begins_a_new_chat(stage: Stage, tab: OpenTab) -> None:
    page = tab(CHAT)

    page.keyboard.press("Control+Shift+O")

    expect(page).to_have_url(f"{stage.url}/")


def test_a_notice_can_be_closed_and_there_are_never_more_than_three(stage: Stage, tab: OpenTab) -> None:
    stage.send = lambda asked: stage.toast(409)
    page = tab(CHAT)
    page.locator("#message").fill("Again and again")

    for _ in range(5):
        with page.expect_response(f"**{CHAT}/messages"):
            page.keyboard.press("Enter")
        page.wait_for_selector("#composer:not(.htmx-request)")
    shown = page.locator("#toasts > *").count()
    page.locator("#toasts").get_by_role("button", name="Close").first.click()

    assert shown == 3
    expect(page.locator("#toasts > *")).to_have_count(2)


def test_a_dialog_closes_when_its_form_was_accepted(stage: Stage, tab: OpenTab) -> None:
    page = tab(CHAT)
    page.get_by_role("button", name="More").first.click()
    page.get_by_role("button", name="Rename").click()
    dialog = page.get_by_role("dialog", name="Rename this conversation")

    page.route(f"**{CHAT}/title", lambda route: route.fulfill(status=200, content_type="text/html", body=""))
    dialog.get_by_label("Title").fill("Because")
    page.keyboard.press("Enter")

    expect(dialog).to_be_hidden()


@pytest.mark.parametrize(
    "smuggled",
    [
        '<p id="announcer" hx-swap-oob="true">smuggled</p>',
        '<p id="x" hx-swap-oob="innerHTML:#announcer">smuggled</p>',
        "<script>document.getElementById('announcer').textContent = 'smuggled'</script>",
        '<b hx-get="/" hx-trigger="load" hx-vals="js:{a: announcer.append(`smuggled`)}"></b>',
    ],
)
def test_a_reply_cannot_smuggle_in_code_or_swaps(stage: Stage, tab: OpenTab, smuggled: str) -> None:
    stage.send = lambda asked: Reply(f"<article>{smuggled}</article>")
    page = tab(CHAT)
    page.locator("#message").fill("Try")

    with page.expect_response(f"**{CHAT}/messages"):
        page.keyboard.press("Enter")
    page.wait_for_timeout(200)

    assert page.locator("#announcer").inner_text() == ""

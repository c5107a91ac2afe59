"""A working day in the chat."""

import asyncio
import re

from playwright.async_api import expect

from backend.accounts.models import User
from tests.e2e.conftest import Desk, OpenPage, Watch
from tests.fakes.engine import FakeEngine, refusal


async def test_a_question_is_answered_live_and_found_again(desk: Desk) -> None:
    go_on = asyncio.Event()
    desk.engine.script = ("The capital ", "is ", go_on, "**Paris**.")

    await desk.send("What is the capital of France?")
    await expect(desk.answers).to_contain_text("The capital is")
    await expect(desk.answers).to_have_attribute("aria-busy", "true")
    await expect(desk.page).to_have_url(re.compile("/chat/"))
    await expect(desk.box).to_be_focused()
    go_on.set()
    await expect(desk.answers).to_contain_text("The capital is Paris.")
    await expect(desk.page.locator("#announcer")).to_have_text("The answer is complete.")
    await desk.page.reload()

    await expect(desk.answers).to_contain_text("The capital is Paris.")
    await expect(desk.page.get_by_role("article", name="You")).to_contain_text("What is the capital of France?")
    await expect(desk.page.get_by_role("navigation", name="Conversations")).to_contain_text("What is the capital")


async def test_the_model_can_change_between_messages(desk: Desk) -> None:
    await desk.ask("Hello")
    await desk.page.get_by_role("combobox", name="Model").select_option(str(desk.models["fake-70b"]))
    await desk.ask("Hello again")

    names = [await answer.get_attribute("aria-label") for answer in await desk.answers.all()]
    assert names == ["fake-8b", "fake-70b"]
    await desk.page.reload()
    await expect(desk.page.get_by_role("combobox", name="Model")).to_have_value(str(desk.models["fake-70b"]))


async def test_escape_stops_the_answer(desk: Desk) -> None:
    desk.engine.script = ("Well, ", asyncio.Event())
    await desk.send("Tell me everything")
    await expect(desk.answers).to_contain_text("Well,")

    await desk.page.keyboard.press("Escape")

    await expect(desk.answers).to_contain_text("You stopped this answer.")
    await expect(desk.answers).to_contain_text("Well,")
    await desk.engine.until(lambda fake: fake.running == 0)


async def test_a_second_question_waits_in_the_box(desk: Desk, watch: Watch) -> None:
    desk.engine.hold()
    await desk.send("One?")
    await expect(desk.answers).to_have_count(1)

    await desk.send("Two?")

    await expect(desk.page.locator("#toasts")).to_contain_text("An answer is still being written here.")
    await expect(desk.box).to_have_value("Two?")
    desk.engine.release()
    await expect(desk.answers).not_to_have_attribute("aria-busy", "true")
    watch.expect("409")


async def test_a_failure_says_what_to_do_and_trying_again_works(desk: Desk) -> None:
    desk.engine.plan(refusal(500, "EngineCore encountered an issue."), ("Here I am.",))
    answer = await desk.ask("Hello")
    await expect(answer).to_contain_text("No answer.")

    await answer.get_by_role("button", name="Regenerate", exact=True).click()

    await expect(desk.answers).to_have_count(1)
    await expect(desk.answers).to_contain_text("Here I am.")


async def test_a_draft_survives_a_reload(desk: Desk) -> None:
    await desk.box.fill("A long thought")
    await desk.page.wait_for_timeout(600)
    await desk.page.reload()

    await expect(desk.box).to_have_value("A long thought")
    await expect(desk.page.locator("#draft")).to_contain_text("is still here")
    await desk.page.get_by_role("button", name="Discard draft").click()
    await expect(desk.box).to_have_value("")


async def test_a_lost_session_asks_to_sign_in_and_keeps_the_text(desk: Desk, watch: Watch, alice: User) -> None:
    """LIFE-08, WEB-06"""
    await desk.ask("Hello")
    await desk.page.context.clear_cookies()

    await desk.send("Something I would hate to lose")

    dialog = desk.page.get_by_role("dialog", name="You were signed out")
    await expect(dialog).to_be_visible()
    await dialog.get_by_label("Email").fill(alice.email)
    await dialog.get_by_label("Password").fill("correct horse battery")
    await dialog.get_by_label("Password").press("Enter")
    await expect(desk.box).to_have_value("Something I would hate to lose")
    await expect(desk.page).to_have_url(re.compile("/chat/"))
    watch.expect("401")


async def test_drafts_go_when_somebody_else_signs_in(desk: Desk, bob: User) -> None:
    await desk.box.fill("Alice's secret")
    await desk.page.wait_for_timeout(600)
    await desk.page.get_by_role("button", name="Alice Owner").click()
    await desk.page.get_by_role("button", name="Sign out").click()

    await desk.page.get_by_label("Email").fill(bob.email)
    await desk.page.get_by_label("Password").fill("correct horse battery")
    await desk.page.get_by_role("button", name="Sign in").click()

    await expect(desk.box).to_have_value("")
    stored = await desk.page.evaluate("JSON.stringify(sessionStorage) + JSON.stringify(localStorage)")
    assert "secret" not in stored


async def test_renaming_and_deleting(desk: Desk) -> None:
    await desk.ask("Hello")
    sidebar = desk.page.get_by_role("navigation", name="Conversations")

    await desk.page.get_by_role("button", name="More", exact=True).click()
    await desk.page.get_by_role("button", name="Rename").first.click()
    await desk.page.get_by_role("textbox", name="Title").fill("Greetings")
    await desk.page.get_by_role("textbox", name="Title").press("Enter")
    await expect(sidebar).to_contain_text("Greetings")
    await expect(desk.page.get_by_role("heading", name="Greetings")).to_be_visible()
    await expect(desk.page).to_have_title("Greetings · Parley")

    await desk.page.get_by_role("button", name="More", exact=True).click()
    await desk.page.get_by_role("button", name="Delete", exact=True).click()
    dialog = desk.page.get_by_role("dialog", name="Delete this conversation?")
    await expect(dialog.get_by_role("button", name="Keep it")).to_be_focused()
    await expect(dialog).to_contain_text("Greetings")
    await dialog.get_by_role("button", name="Delete conversation").click()
    await expect(desk.page).to_have_url(re.compile("/$"))
    await expect(sidebar).not_to_contain_text("Greetings")


async def test_copying_code_gives_exactly_the_code(desk: Desk) -> None:
    """REN-03"""
    code = "def f():\n    return 1  # ```\n\n\tx\n"
    desk.engine.script = (f"Here:\n\n````python\n{code}````\n",)
    answer = await desk.ask("Code please")

    await answer.get_by_role("button", name="Copy code").click()

    assert await desk.page.evaluate("navigator.clipboard.readText()") == code.rstrip("\n")


async def test_back_after_sign_out_shows_no_chat(desk: Desk) -> None:
    """WEB-11"""
    await desk.ask("A private matter")
    await desk.page.goto("/")
    await desk.page.go_back()
    await expect(desk.page.get_by_role("navigation", name="Conversations")).to_be_visible()
    await desk.page.get_by_role("button", name="Alice Owner").click()
    await desk.page.get_by_role("button", name="Sign out").click()
    await expect(desk.page.get_by_label("Email")).to_be_visible()

    for _press in range(2):
        await desk.page.go_back()
        await expect(desk.page.get_by_label("Email")).to_be_visible()
        await expect(desk.page.locator("body")).not_to_contain_text("A private matter")


async def test_an_administrator_sees_what_members_do_not(open_page: OpenPage, alice: User, carol: User) -> None:
    member, admin = await open_page(alice), await open_page(carol)

    await member.get_by_role("button", name="Alice Owner").click()
    await admin.get_by_role("button", name="Carol Admin").click()

    await expect(member.get_by_role("link", name="Administration")).to_have_count(0)
    await admin.get_by_role("link", name="Administration").click()
    await expect(admin.get_by_role("heading", name="People")).to_be_visible()


async def test_it_works_on_a_phone(open_page: OpenPage, alice: User, engine: FakeEngine) -> None:
    page = await open_page(alice, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    box = page.get_by_role("textbox", name="Message", exact=True)
    await box.fill("Hello")
    await box.press("Enter")
    await box.press_sequentially("from the train")
    assert await box.input_value() == "Hello\nfrom the train"

    await page.get_by_role("button", name="Send").click()

    await expect(page.locator("article.assistant")).to_contain_text("from the train")
    await page.get_by_role("button", name="Open sidebar").click()
    await expect(page.get_by_role("navigation", name="Conversations")).to_be_visible()
    wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not wide


async def test_enter_in_a_dialog_does_what_the_dialog_is_for(open_page: OpenPage, carol: User) -> None:
    page = await open_page(carol, "/admin/people")
    await page.get_by_role("button", name="Add person").first.click()
    dialog = page.get_by_role("dialog", name="Add a person")
    await dialog.get_by_label("Name").fill("Dora New")
    await dialog.get_by_label("Email").fill("dora@corp.example")

    await dialog.get_by_label("Email").press("Enter")

    await expect(page.get_by_text("A link for Dora New.")).to_be_visible()

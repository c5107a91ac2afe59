"""The tree of a conversation, from the first version to a fork."""

import asyncio
import re

import pytest
from playwright.async_api import expect

from tests.e2e.conftest import Desk, Watch
from tests.fakes.engine import FakeEngine, refusal

pytestmark = pytest.mark.long


async def test_versions_of_questions_and_answers(desk: Desk, engine: FakeEngine) -> None:
    """Edit, step back and forward, another model, all by keyboard; then delete and fork."""
    page = desk.page
    engine.plan(("Paris.",), ("Rome.",), ("Roma.",), ("Rome is old.",))
    await desk.ask("Capital of France?")

    await desk.box.press("ArrowUp")  # an empty box: the last question
    await expect(page.locator(".editor textarea")).to_be_focused()
    await page.keyboard.press("Control+a")
    await page.keyboard.type("Capital of Italy?")
    await page.keyboard.press("Enter")
    await expect(desk.answers).to_contain_text("Rome.")
    await expect(page.get_by_role("article", name="You")).to_contain_text("2/2")
    await expect(desk.answers).to_be_focused()

    await page.keyboard.press("Alt+ArrowUp")
    await page.keyboard.press("ArrowLeft")
    await expect(desk.answers).to_contain_text("Paris.")
    await expect(page.locator("#announcer")).to_have_text("Version 1 of 2.")
    await expect(page.get_by_role("article", name="You")).to_be_focused()
    await page.keyboard.press("ArrowRight")
    await expect(desk.answers).to_contain_text("Rome.")

    await desk.answers.get_by_role("button", name="Answer in another way").press("Enter")
    await page.locator("#answer-menu").get_by_role("button", name="fake-70b").press("Enter")
    await expect(page.get_by_role("article", name="fake-70b")).to_contain_text("Roma.")
    await expect(desk.answers).to_contain_text("2/2")
    await expect(page.locator("#announcer")).to_have_text("The answer is complete.")

    await desk.ask("Is it old?")
    await page.get_by_role("article", name="fake-70b").get_by_role("button", name="Previous version").click()
    await expect(desk.answers).to_have_count(1)  # that version was never followed by a question
    await page.get_by_role("button", name="Next version").last.click()
    await expect(desk.answers).to_have_count(2)

    await page.get_by_role("article", name="You").last.get_by_role("button", name="More actions").click()
    await page.get_by_role("button", name="Continue in a new chat").click()
    await expect(desk.answers).to_have_count(1)
    await expect(desk.box).to_be_visible()
    await page.go_back()
    await expect(desk.answers).to_have_count(2)
    await desk.answers.last.get_by_role("button", name="More actions").click()
    await page.get_by_role("button", name="Delete message").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete message").click()
    await expect(desk.answers).to_have_count(1)
    await page.reload()
    await expect(desk.page.locator("#thread")).not_to_contain_text("Rome is old.")


async def test_an_answer_goes_on_and_one_in_another_branch_is_not_disturbed(
    desk: Desk, engine: FakeEngine, watch: Watch
) -> None:
    page = desk.page
    async with asyncio.timeout(5):
        while not all(each.continues for offer in desk.site.registry.offers for each in offer.endpoints):
            await asyncio.sleep(0.01)
    go_on = asyncio.Event()
    engine.plan(("One, ", asyncio.Event()), ("One, two, three.",), ("Slowly ", go_on, "done."))
    await desk.send("Count")
    await expect(desk.answers).to_contain_text("One,")
    await desk.answers.get_by_role("button", name="Stop").press("Enter")
    await expect(desk.answers).to_contain_text("You stopped this answer.")
    await expect(desk.answers).to_be_focused()
    await desk.answers.get_by_role("button", name="Continue", exact=True).click()
    await expect(desk.answers).to_contain_text("One, two, three.")
    await expect(desk.answers).not_to_have_attribute("aria-busy", "true")
    await expect(desk.answers).to_have_count(1)
    await desk.answers.get_by_text("in 2 parts").click()
    await expect(desk.answers).to_contain_text("Continued when asked")

    await desk.answers.get_by_role("button", name="Regenerate", exact=True).click()
    await expect(desk.answers).to_contain_text("Slowly")
    await page.get_by_role("button", name="Previous version").click()
    await expect(desk.answers).to_contain_text("One, two, three.")
    await desk.answers.get_by_role("button", name="Regenerate", exact=True).click()
    await expect(page.locator("#toasts")).to_contain_text("An answer is still being written here.")
    assert desk.site.open_streams == 0
    assert engine.running == 1
    await page.get_by_role("button", name="Next version").click()
    await expect(desk.answers).to_contain_text("Slowly")
    go_on.set()
    await expect(desk.answers).to_contain_text("Slowly done.")
    await expect(desk.answers).to_contain_text("2/2")
    watch.expect("409")


async def test_what_no_model_can_read_comes_back(desk: Desk, engine: FakeEngine) -> None:
    engine.plan(refusal(400, "This model's maximum context length is 1000 tokens. However, you requested 1200 tokens."))

    answer = await desk.ask("Far too long")

    await expect(answer).to_contain_text("No answer.")
    await expect(desk.box).to_have_value("Far too long")
    await expect(desk.page.locator("#announcer")).to_contain_text(re.compile("Your text is back in the message box"))

"""Files in a real browser: picked, dropped and pasted, refused in words, sent, seen again, saved."""

import asyncio
import base64
from pathlib import Path

import pytest
from playwright.async_api import FilePayload, Locator, Page, Route, expect

from backend.engines.snapshot import Offer
from tests.e2e.conftest import Desk, Watch
from tests.e2e.test_accessibility import findings
from tests.files.samples import pdf, picture

pytestmark = pytest.mark.long

CSV = FilePayload(name="measurements.csv", mimeType="text/csv", buffer=b"ring,mm\n1,0.004\n")
PAPER = FilePayload(name="minutes.pdf", mimeType="application/pdf", buffer=pdf("We decided nothing."))
PHOTO = FilePayload(name="photo.png", mimeType="image/png", buffer=picture("PNG", (600, 300)))
BINARY = FilePayload(name="setup.exe", mimeType="application/octet-stream", buffer=bytes(range(256)) * 9)

CARRY = """([name, type, content]) => {
  const carried = new DataTransfer();
  carried.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], name, {type}));
  return carried;
}"""
PASTE = """(box, carried) => box.dispatchEvent(
  new ClipboardEvent("paste", {clipboardData: carried, bubbles: true, cancelable: true}))"""


async def drop(page: Page, file: FilePayload) -> None:
    content = base64.b64encode(file["buffer"]).decode()
    carried = await page.evaluate_handle(CARRY, [file["name"], file["mimeType"], content])
    await page.dispatch_event("#thread", "dragover", {"dataTransfer": carried})
    await expect(page.get_by_text("Drop files here to attach them.")).to_be_visible()
    await page.dispatch_event("#thread", "drop", {"dataTransfer": carried})
    await expect(page.get_by_text("Drop files here to attach them.")).to_be_hidden()


async def paste(page: Page, box: Locator, file: FilePayload) -> None:
    content = base64.b64encode(file["buffer"]).decode()
    carried = await page.evaluate_handle(CARRY, [file["name"], file["mimeType"], content])
    await box.evaluate(PASTE, carried)


async def pick(page: Page, *files: FilePayload) -> None:
    async with page.expect_file_chooser() as chooser:
        await page.get_by_role("button", name="Attach files").press("Enter")
    await (await chooser.value).set_files(list(files))


@pytest.mark.timeout(180)
async def test_files_go_with_a_message_and_can_be_seen_again(
    desk: Desk, watch: Watch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Offer, "sees", property(lambda offer: offer.name == "fake-70b"))
    page, chips = desk.page, desk.page.locator("#composer .chip")
    await desk.box.fill("What do they say?")

    # Picked, with the keyboard; one of them cannot be read, and says so beside those that can.
    await pick(page, CSV, BINARY, PHOTO)
    await expect(chips).to_have_text([r"measurements.csv 16 bytes"], use_inner_text=True)
    notices = page.locator("#composer .notice")
    await expect(notices).to_have_count(2)
    await expect(notices.first).to_contain_text("“setup.exe” cannot be read here.")
    await expect(notices.last).to_contain_text("“fake-8b” cannot see pictures. Choose “fake-70b” for them.")
    assert await desk.box.input_value() == "What do they say?"
    assert await findings(page) == []
    await notices.first.get_by_role("button", name="Close").click()
    await expect(notices).to_have_count(1)

    # Dropped on the thread, pasted into the box, and one taken away again.
    await page.get_by_role("combobox", name="Model").select_option(str(desk.models["fake-70b"]))
    await drop(page, PAPER)
    await paste(page, desk.box, PHOTO)
    await paste(page, desk.box, CSV)
    await expect(chips).to_have_count(4)
    await expect(page.get_by_label("Uploading")).to_have_count(0)
    await chips.last.get_by_role("button", name="Remove measurements.csv").click()
    await expect(chips).to_have_count(3)
    await expect(desk.box).to_be_focused()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    # Sent, and part of the question.
    answer = desk.page.locator("article.assistant")
    await desk.box.press("Enter")
    await expect(answer).not_to_have_attribute("aria-busy", "true")
    question = page.get_by_role("article", name="You")
    await expect(question.get_by_role("link", name="measurements.csv")).to_be_visible()
    await expect(chips).to_have_count(0)
    await expect(notices).to_have_count(0)  # what was refused is over, too
    sent = desk.engine.questions[-1].body["messages"][-1]["content"]
    assert [part["type"] for part in sent] == ["image_url", "text"]
    assert sent[0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert sent[1]["text"] == (
        '<file-1 name="measurements.csv">\nring,mm\n1,0.004\n\n</file-1>\n\n'
        '<file-1 name="minutes.pdf">\nWe decided nothing.\n</file-1>\n\nWhat do they say?'
    )

    # Still there after a reload, and saved as it was.
    await page.reload()
    shown = question.get_by_role("img", name="photo.png")
    assert await shown.evaluate("picture => picture.decode().then(() => picture.naturalWidth)") == 600
    assert await shown.evaluate("picture => [picture.width, picture.height]") == [240, 120]
    async with page.expect_download() as download:
        await question.get_by_role("link", name="minutes.pdf").click()
    saved = await download.value
    assert saved.suggested_filename == "minutes.pdf"
    await saved.save_as(tmp_path / "minutes.pdf")
    assert (tmp_path / "minutes.pdf").read_bytes() == PAPER["buffer"]
    assert await findings(page) == []
    watch.expect("422")


async def test_send_waits_for_an_upload_and_a_file_alone_is_a_message(desk: Desk, watch: Watch) -> None:
    page = desk.page
    await page.route("**/files", _later)

    # Without a word of text.
    await pick(page, CSV)
    await desk.box.press("Enter")

    await expect(page.locator("[data-waiting]")).to_have_text("Your message is sent as soon as the files are uploaded.")
    await expect(desk.answers).not_to_have_attribute("aria-busy", "true")
    await expect(page.get_by_role("article", name="You").get_by_role("link", name="measurements.csv")).to_be_visible()

    # The connection goes: the text stays, nothing is sent, and the file is named.
    await page.unroute("**/files")
    await page.route("**/files", lambda route: route.abort())
    await desk.box.fill("And this one?")
    await pick(page, PAPER)
    await expect(page.locator("#composer .notice")).to_contain_text("“minutes.pdf” was not uploaded.")
    assert await desk.box.input_value() == "And this one?"
    await expect(desk.answers).to_have_count(1)

    # Far too large: told without sending it, and without the server.
    await page.evaluate("document.getElementById('composer').dataset.fileBytes = 10")
    await pick(page, CSV)
    await expect(page.locator("#composer .notice").last).to_contain_text("“measurements.csv” has")
    watch.expect("ERR_FAILED")


async def _later(route: Route) -> None:
    await asyncio.sleep(0.7)
    await route.continue_()


async def test_a_draft_says_that_its_files_are_not_kept(desk: Desk) -> None:
    await pick(desk.page, CSV)
    await expect(desk.page.locator("#composer [data-file]")).to_have_count(1)
    await desk.box.fill("What does it say?")

    await desk.page.reload()

    await expect(desk.box).to_have_value("What does it say?")
    await expect(desk.page.locator("#draft")).to_contain_text("Files are not kept with it: attach them again.")

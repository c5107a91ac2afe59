"""An API key in a browser: made, copied, used and revoked by keyboard."""

import httpx
from playwright.async_api import expect

from backend.accounts.models import User
from tests.e2e.conftest import OpenPage
from tests.e2e.test_accessibility import findings
from tests.site import Site


async def test_a_key_is_made_copied_used_and_revoked_by_keyboard(open_page: OpenPage, alice: User, site: Site) -> None:
    page = await open_page(alice, "/settings/keys")
    assert await findings(page) == []

    await page.get_by_role("button", name="New key").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("textbox", name="Name")).to_be_visible()
    await page.keyboard.type("Editor on the laptop")
    assert await findings(page) == []
    await page.keyboard.press("Enter")
    secret = await page.locator("#new-secret").inner_text()
    assert await findings(page) == []
    await page.get_by_role("button", name="Copy key").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#announcer")).to_contain_text("Copied")

    async with httpx.AsyncClient(verify=False, headers={"authorization": f"Bearer {secret}"}) as program:
        assert (await program.get(f"{site.settings.origin}/v1/models")).status_code == 200
        await page.goto(f"{site.settings.origin}/settings/keys")
        await expect(page.locator("body")).not_to_contain_text(secret)
        await expect(page.get_by_role("row", name="Editor on the laptop").locator("time")).to_have_count(2)
        await page.get_by_role("button", name="Revoke Editor on the laptop").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Keep it")).to_be_focused()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator("main")).to_contain_text("You have no keys.")
        assert (await program.get(f"{site.settings.origin}/v1/models")).status_code == 401

"""A passkey and an authenticator app, with Chromium's virtual authenticator in place of a telephone."""

import pytest
from playwright.async_api import CDPSession, Page, expect
from sqlalchemy import select

from backend.accounts.models import Passkey, User
from backend.core.db import Sessions
from backend.core.settings import Settings
from tests.conftest import PASSWORD
from tests.e2e.conftest import OpenPage, Watch
from tests.e2e.test_accessibility import findings
from tests.second_factor import code_now
from tests.sessions import grow_old
from tests.site import Site

pytestmark = pytest.mark.long


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Browsers give no passkeys to an address like 127.0.0.1."""
    return settings.model_copy(update={"public_url": f"http://localhost:{settings.port}"})


async def test_a_passkey_is_added_and_signs_in_and_confirms(
    open_page: OpenPage, site: Site, alice: User, db: Sessions, watch: Watch
) -> None:
    page = await open_page(alice, "/settings/sign-in")
    device = await _device(page)
    await page.get_by_role("textbox", name="Name of a new passkey").fill("Telephone")
    await page.get_by_role("button", name="Add a passkey").click()
    await expect(page.get_by_role("rowheader", name="Telephone")).to_be_visible()
    assert await findings(page) == []

    # It has one already, so it makes no second.
    await page.get_by_role("button", name="Add a passkey").click()
    await expect(page.get_by_text("No passkey was made")).to_be_visible()

    # A whole way in, with nothing typed.
    await page.context.clear_cookies()
    await page.goto("/login?next=/settings/sessions")
    assert await findings(page) == []
    await page.get_by_role("button", name="Sign in with a passkey").click()
    await expect(page.get_by_role("heading", name="Signed-in browsers")).to_be_visible()
    assert await findings(page) == []

    # A quarter of an hour later a dangerous page asks once more.
    await grow_old(site.sessions, alice)
    await page.goto("/settings/sign-in")
    await expect(page.get_by_role("heading", name="Confirm that it is you")).to_be_visible()
    assert await findings(page) == []
    await page.get_by_role("button", name="Sign in with a passkey").click()
    await expect(page.get_by_role("heading", name="Ways to sign in")).to_be_visible()
    async with db.begin() as session:
        key = (await session.scalars(select(Passkey))).one()
    assert (key.name, key.sign_count > 1, key.last_used_at is not None) == ("Telephone", True, True)

    # Removed here, it opens nothing, although the device still has it.
    await page.get_by_role("button", name="Remove Telephone").click()
    await page.get_by_role("button", name="Remove passkey").click()
    await page.context.clear_cookies()
    await page.goto("/login")
    await page.get_by_role("button", name="Sign in with a passkey").click()
    await expect(page.get_by_text("This passkey does not open anything here")).to_be_visible()
    await device.detach()
    watch.expect("401")


async def test_an_app_is_set_up_by_its_key_and_asked_for(
    open_page: OpenPage, alice: User, db: Sessions, watch: Watch
) -> None:
    page = await open_page(alice, "/settings/sign-in")
    secret = (await page.locator("#app-secret").inner_text()).replace(" ", "")
    await expect(page.get_by_role("img", name="A picture for the camera")).to_be_visible()
    await page.get_by_role("textbox", name="Code").fill("000000")
    await page.get_by_role("button", name="Turn on").click()
    await expect(page.get_by_text("This is not the code")).to_be_visible()
    assert await findings(page) == []
    await page.get_by_role("textbox", name="Code").fill(await code_now(db, secret))
    await page.get_by_role("button", name="Turn on").click()
    await expect(page.locator("#recovery-codes li")).to_have_count(10)
    assert await findings(page) == []
    code = await page.locator("#recovery-codes li").first.inner_text()
    await page.get_by_role("link", name="I have kept them").click()
    await expect(page.get_by_text("10 recovery codes are left")).to_be_visible()

    await page.context.clear_cookies()
    await page.goto("/login?next=/settings")
    await page.get_by_role("textbox", name="Email").fill(alice.email)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await expect(page.get_by_role("heading", name="Enter your code")).to_be_visible()
    assert await findings(page) == []
    await page.get_by_role("textbox", name="Code").fill(code)
    await page.get_by_role("button", name="Go on").click()
    await expect(page.get_by_role("heading", name="Settings")).to_be_visible()
    watch.expect("422")


async def _device(page: Page) -> CDPSession:
    """A telephone that knows its owner, and keeps passkeys."""
    session = await page.context.new_cdp_session(page)
    await session.send("WebAuthn.enable")
    kind = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
    options = kind | {"isUserVerified": True, "automaticPresenceSimulation": True}
    await session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    return session

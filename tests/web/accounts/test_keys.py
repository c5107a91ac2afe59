"""One's own API keys, on their page."""

import re

import httpx

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.keys import service
from tests.conftest import OpenBrowser
from tests.site import Browser, Site
from tests.web.accounts.conftest import submit, text_of

FOR_CHAT = {"scope-models": "1", "scope-chat": "1", "models": "all"}


def secret_on(reply: httpx.Response) -> str:
    found = re.search(r'<code id="new-secret">([^<]+)</code>', reply.text)
    assert found, text_of(reply)
    return found[1]


async def make(page: Browser, name: str = "Notebook", days: str = "90") -> str:
    return secret_on(await submit(page, "/settings/keys", name=name, days=days, **FOR_CHAT))


async def works(site: Site, secret: str) -> bool:
    async with httpx.AsyncClient(verify=False) as client:
        address = f"http://127.0.0.1:{site.settings.port}/v1/models"
        return (await client.get(address, headers={"authorization": f"Bearer {secret}"})).status_code == 200


async def test_a_key_is_shown_once_used_and_revoked(browser: OpenBrowser, site: Site, alice: User) -> None:
    page = await browser(alice)
    assert "You have no keys." in text_of(await page.get("/settings/keys"))

    made = await submit(page, "/settings/keys", name="Editor", days="30", **FOR_CHAT)
    secret = secret_on(made)
    shown = await page.get("/settings/keys")
    used = await works(site, secret)
    after = await page.get("/settings/keys")
    address = re.search(r'action="(/settings/keys/[^"]+/revoke)"', after.text)
    assert address
    gone = await page.get((await submit(page, address[1])).headers["location"])

    assert made.status_code == 200
    assert used
    assert secret not in shown.text
    assert f"{service.PREFIX}…{secret[-4:]}" in text_of(shown)
    assert text_of(shown).count("never") == 2  # not used yet, and a choice of the form
    assert text_of(after).count("never") == 1
    assert re.search(r'<time datetime="[^"]+\+00:00">[^<]*:\d\d</time></td>', after.text)
    assert "The key is revoked." in text_of(gone)
    assert "You have no keys." in text_of(gone)
    assert not await works(site, secret)


async def test_when_it_was_used_is_told_in_the_viewers_time_zone(
    browser: OpenBrowser, site: Site, alice: User, db: Sessions
) -> None:
    page = await browser(alice)
    await submit(page, "/settings", name="Alice", time_zone="Asia/Kathmandu")
    secret = await make(page, days="")
    await works(site, secret)

    shown = await page.get("/settings/keys")

    utc, local = re.findall(
        r'<time datetime="\d+-\d+-\d+T(\d\d:\d\d):\d\d\+00:00">[^<]* (\d\d:\d\d)</time>', shown.text
    )[-1]
    minutes = [60 * int(moment[:2]) + int(moment[3:]) for moment in (utc, local)]
    assert (minutes[1] - minutes[0]) % 1440 == 5 * 60 + 45


async def test_what_cannot_be_made_is_told(browser: OpenBrowser, alice: User, db: Sessions) -> None:
    page = await browser(alice)

    nameless = await submit(page, "/settings/keys", name=" ", days="90", **FOR_CHAT)
    endless = await submit(page, "/settings/keys", name="x", days="9999999", **FOR_CHAT)
    async with db.as_person(alice.id) as session:
        for number in range(service.MOST):
            await service.make(session, alice.id, f"Key {number}", None)
    one_more = await submit(page, "/settings/keys", name="x", days="", **FOR_CHAT)

    assert (nameless.status_code, endless.status_code, one_more.status_code) == (422, 422, 409)
    assert "Please enter a name." in text_of(nameless)
    assert "You have 20 keys" in text_of(one_more)
    assert "new-secret" not in nameless.text + endless.text + one_more.text


async def test_a_stranger_cannot_see_or_revoke_it(browser: OpenBrowser, site: Site, alice: User, bob: User) -> None:
    page, strangers = await browser(alice), await browser(bob)
    secret = await make(page, "<b>Secret plan</b>")
    shown = await page.get("/settings/keys")
    address = re.search(r'action="(/settings/keys/[^"]+/revoke)"', shown.text)
    assert address

    refused = await submit(strangers, address[1])

    assert refused.status_code == 404
    assert "Secret plan" not in (await strangers.get("/settings/keys")).text
    assert await works(site, secret)
    assert "<b>Secret plan" not in shown.text

"""Administration of company sign-ins: added, tested without changing anything, switched on, changed, removed."""

import re

import psycopg
from sqlalchemy import select

from backend.accounts.models import User
from backend.core.db import Sessions
from backend.core.settings import ProviderSetting, Settings
from backend.identity.models import IdentityProvider
from backend.identity.rules import Groups
from tests.conftest import OpenBrowser, sign_in
from tests.fakes.identity import CLIENT_ID, SECRET, FakeProvider
from tests.site import Browser, Site, free_port
from tests.web.accounts.conftest import submit, text_of
from tests.web.identity.conftest import SetUp, come_in

LIST = "/admin/sign-in/providers"


def typed(provider: FakeProvider, **changes: str) -> dict[str, str]:
    return {
        "name": "Corp",
        "slug": "corp",
        "issuer": provider.issuer,
        "client_id": CLIENT_ID,
        "secret": SECRET,
        "scopes": "openid profile email",
        "unknown": "create",
        "name_claim": "name",
        "email_claim": "email",
        "groups": "create",
        "groups_claim": "groups",
        "blocked_groups": "*-admins",
    } | changes


async def everything(owner_url: str) -> list[list[tuple[object, ...]]]:
    tables = ("users", "groups", "group_members", "identities", "identity_providers", "identity_sessions")
    with psycopg.connect(owner_url) as connection:
        return [connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in tables]


async def test_a_provider_is_added_tested_and_switched_on(
    browser: OpenBrowser, provider: FakeProvider, carol: User, owner_url: str
) -> None:
    page = await browser(carol)
    added = await submit(page, LIST, **typed(provider))
    address = added.headers["location"].partition("?")[0]
    shown = await page.get(address)
    assert "/login/callback/corp" in text_of(shown)
    assert SECRET not in shown.text
    assert "/login/with/corp" not in (await page.get("/login")).text, "it is off"
    before = await everything(owner_url)

    provider.claims |= {"groups": ["Research", "it-admins"]}
    trial = await come_in(page, f"{address}/test")

    told = text_of(trial)
    assert "They would come in. As somebody new" in told
    assert "Would join Research Would be made Research" in told
    assert "it-admins" in told, "as a claim"
    assert await everything(owner_url) == before
    assert (await (await browser(None)).get("/login/with/corp")).status_code == 404

    await submit(page, f"{address}/enable")
    assert (await come_in(await browser(None))).status_code == 303
    provider.claims |= {"groups": ["Sales"]}
    again = text_of(await come_in(page, f"{address}/test"))
    assert "As Alice Owner, who is known by this provider already." in again
    assert "Would leave Research" in again


async def test_a_test_says_why_somebody_would_not_come_in_and_what_is_missing(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, carol: User
) -> None:
    added = await set_up(
        enabled=False, groups=Groups.MAPPED, group_map=(("x", "Nowhere"),), role_claim="roles", admin_values=("x",)
    )
    page = await browser(carol)
    provider.claims |= {"email": "carol@corp.example", "_claim_names": {"groups": "src1"}, "odd": "<script>"}

    told = await come_in(page, f"{LIST}/{added.id}/test")

    assert "They would not come in." in text_of(told)
    assert "because this person is in too many" in text_of(told)
    assert "makes nobody an administrator here" in text_of(told)
    assert "<script>alert" not in told.text and "&lt;script&gt;" in told.text


async def test_each_field_that_cannot_be_taken_has_its_sentence_and_nothing_is_kept(
    browser: OpenBrowser, provider: FakeProvider, carol: User, db: Sessions
) -> None:
    page = await browser(carol)
    bad = {
        "name": "",
        "slug": "No Slug",
        "issuer": "http://sso.corp.example",
        "client_id": " ",
        "scopes": "profile",
        "email_claim": "",
        "role_claim": "a claim with spaces",
        "group_map": "no equals sign",
    }
    for field, value in bad.items():
        reply = await submit(page, LIST, **typed(provider, **{field: value}))
        assert reply.status_code == 422, field
        assert f'id="{field}-error"' in reply.text, field
    async with db.begin() as session:
        assert list(await session.scalars(select(IdentityProvider))) == []


async def test_a_secret_stays_with_the_issuer_it_was_entered_for(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, carol: User
) -> None:
    added = await set_up()
    page = await browser(carol)
    elsewhere = typed(provider, secret="", issuer="https://evil.example")
    elsewhere.pop("slug")

    refused = await submit(page, f"{LIST}/{added.id}", **elsewhere)
    renamed = await submit(page, f"{LIST}/{added.id}", **typed(provider, name="Staff", secret=""))

    assert "Enter it again" in text_of(refused)
    assert renamed.status_code == 303
    assert "Sign in with Staff" in (await (await browser(None)).get("/login")).text
    assert (await come_in(await browser(None))).status_code == 303


async def test_a_provider_is_removed_and_members_see_none_of_it(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, carol: User, bob: User
) -> None:
    added = await set_up()
    page, stranger = await browser(carol), await browser(bob)

    for path in (LIST, f"{LIST}/new", f"{LIST}/{added.id}", f"{LIST}/{added.id}/test"):
        assert (await stranger.get(path)).status_code == 404
    assert (await submit(stranger, f"{LIST}/{added.id}/remove")).status_code == 404
    assert (await submit(page, f"{LIST}/{added.id}/remove")).status_code == 303

    assert "No provider yet" in text_of(await page.get(LIST))
    assert "/login/with/" not in (await (await browser(None)).get("/login")).text


async def test_what_the_deployment_names_is_shown_and_not_changed_here(
    settings: Settings, provider: FakeProvider, carol: User, db: Sessions, browser: OpenBrowser
) -> None:
    setting = ProviderSetting.model_validate(
        {
            "slug": "corp",
            "name": "Corp",
            "issuer": provider.issuer,
            "client_id": CLIENT_ID,
            "client_secret": SECRET,
            "unknown": "create",
        }
    )
    configured = settings.model_copy(update={"oidc": (setting,), "port": free_port()})
    async with Site(configured) as site, Browser(site) as nobody, Browser(site, token=await sign_in(db, carol)) as page:
        assert (await come_in(nobody)).status_code == 303
        rows = await page.get(LIST)
        link = re.search(rf'href="({LIST}/[0-9a-f-]+)"', rows.text)
        assert link
        refused = await submit(page, link[1], **typed(provider, name="Mine"))

        assert "the environment" in text_of(rows)
        assert refused.status_code == 409
        assert "PARLEY_OIDC" in text_of(refused)
    async with Site(settings.model_copy(update={"port": free_port()})) as site, Browser(site) as nobody:
        assert (await nobody.get("/login/with/corp")).status_code == 404, "it is named no more"

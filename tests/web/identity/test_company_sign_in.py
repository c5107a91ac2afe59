"""Signing in with the company: a link there, a link back, and who one is then."""

import asyncio
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import func, select

from backend.accounts.models import LoginSession, Role, User
from backend.core.db import Sessions
from backend.groups import service as groups
from backend.groups.models import Group, GroupMember
from backend.identity.models import Identity
from backend.identity.rules import Groups
from tests.conftest import AddPerson, OpenBrowser
from tests.fakes.identity import FakeProvider
from tests.site import Browser, Site
from tests.web.accounts.conftest import submit, text_of
from tests.web.identity.conftest import SetUp, come_back, come_in, doors, leave


async def people(db: Sessions) -> list[User]:
    async with db.begin() as session:
        return list(await session.scalars(select(User).order_by(User.email)))


async def memberships(db: Sessions, person: User) -> set[str]:
    async with db.begin() as session:
        mine = select(Group.name).join(GroupMember).where(GroupMember.user_id == person.id)
        return set(await session.scalars(mine))


async def who(page: Browser) -> str | None:
    """Whose page it is."""
    reply = await page.get("/settings")
    found = re.search(r'<input id="email" type="email" value="([^"]+)"', reply.text)
    return found[1] if found else None


async def test_somebody_new_comes_in_by_a_link_and_lands_where_they_wanted(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions, site: Site
) -> None:
    await set_up()
    provider.redirect_uris = {f"{site.settings.origin}/login/callback/corp"}  # SSO-08: exactly, whatever Host says
    page = await browser(None)

    door = await page.get("/login?next=/settings")
    link = re.search(r'href="(/login/with/corp[^"]*)"', door.text)
    assert link
    reply = await come_in(page, link[1].replace("&amp;", "&"))

    assert reply.headers["location"] == "/settings"
    assert "no-store" in reply.headers["cache-control"]
    assert await who(page) == "alice@corp.example"
    [alice] = await people(db)
    assert (alice.name, alice.role, alice.password_hash) == ("Alice Owner", Role.MEMBER, None)


async def test_the_same_person_comes_back_as_the_same_however_the_address_is_written(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions, alice: User
) -> None:
    """SSO-01, and by issuer and subject alone once they are known."""
    await set_up(link_by_email=True)
    seen = []
    for address in ("Alice@Corp.Example", "ALICE@CORP.EXAMPLE", "alice.married@corp.example"):
        provider.claims |= {"email": address}
        page = await browser(None)
        await come_in(page)
        seen.append(await who(page))

    assert seen == ["alice@corp.example"] * 3
    assert len(await people(db)) == 1


@pytest.mark.parametrize("email", [{"email": ""}, {"email": None}, {}])
async def test_without_an_address_the_missing_claim_is_named(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions, email: dict[str, object]
) -> None:
    """SSO-02."""
    await set_up()
    provider.claims = {"sub": "7", "preferred_username": "pat"} | email

    reply = await come_in(await browser(None))

    assert reply.status_code == 403
    assert "the claim “email”" in text_of(reply)
    assert re.search(r"<code>[a-z0-9]{4}-[a-z0-9]{4}</code>", reply.text), "the support id"
    assert await people(db) == []


async def test_another_claim_may_hold_the_address_and_userinfo_what_the_token_lacks(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions
) -> None:
    """SSO-02, SSO-03."""
    await set_up(email_claim="upn")
    provider.in_userinfo = provider.claims | {"upn": "alice@corp.example", "email": None}

    page = await browser(None)
    await come_in(page)

    assert await who(page) == "alice@corp.example"
    assert (await people(db))[0].name == "Alice Owner"


async def test_userinfo_about_somebody_else_or_away_lets_nobody_in(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions, site: Site
) -> None:
    """SSO-03. The five seconds are scaled down."""
    await set_up()
    page = await browser(None)
    provider.in_userinfo = provider.claims | {"sub": "mallory"}
    other = await come_in(page)
    provider.in_userinfo = provider.claims
    provider.faults["/userinfo"] = 500
    broken = await come_in(page)
    doors(site).oidc._asking.seconds = 0.2
    provider.faults["/userinfo"] = 10.0
    slow = await come_in(page)

    assert [reply.status_code for reply in (other, broken, slow)] == [400, 503, 503]
    assert "does not answer properly" in text_of(slow)
    assert await people(db) == []


@pytest.mark.parametrize("verified", [False, "false", "true", None, 1])
async def test_an_address_that_is_not_verified_takes_over_nobody(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions, alice: User, verified: object
) -> None:
    """SSO-04."""
    await set_up(link_by_email=True)
    provider.claims |= {"email_verified": verified}
    page = await browser(None)

    reply = await come_in(page)

    assert reply.status_code == 403
    assert "connect it with the company sign-in in your settings" in text_of(reply)
    assert await who(page) is None


async def test_linking_by_address_has_to_be_allowed_and_never_reaches_an_administrator(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions, alice: User, carol: User
) -> None:
    """SSO-04, SSO-11."""
    await set_up(link_by_email=False)
    stranger = await come_in(await browser(None))
    await set_up("linking", link_by_email=True)
    provider.claims |= {"sub": "carol-at-corp", "email": "carol@corp.example"}
    admin = await come_in(await browser(None), "/login/with/linking")

    assert (stranger.status_code, admin.status_code) == (403, 403)
    async with db.begin() as session:
        assert await session.scalar(select(func.count()).select_from(Identity)) == 0


async def test_an_administrator_connects_by_being_signed_in_on_both_sides_and_stays_administrator(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions, carol: User
) -> None:
    """SSO-11: whatever the claim of the role says, or does not say."""
    await set_up(role_claim="roles", admin_values=("parley-admin",))
    page = await browser(carol)
    provider.claims = {"sub": "carol-at-corp", "roles": ["nothing"]}

    connected = await come_in(page, "/settings/company/corp/connect")
    fresh = await browser(None)
    await come_in(fresh)

    assert connected.headers["location"] == "/settings/company?connected=1"
    assert await who(fresh) == "carol@corp.example"
    assert (await fresh.get("/admin/people")).status_code == 200
    assert (await submit(page, "/settings/company/corp/disconnect")).status_code == 303
    assert (await come_in(await browser(None))).status_code == 403


async def test_a_role_in_the_claims_makes_an_administrator_where_that_is_wanted(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions
) -> None:
    await set_up(role_claim="realm_access.roles", admin_values=("parley-admin",))
    provider.claims |= {"realm_access": {"roles": ["x", "parley-admin"]}}

    await come_in(await browser(None))

    assert [person.role for person in await people(db)] == [Role.ADMIN]


async def test_two_tabs_and_sixty_abandoned_starts_do_not_spoil_each_other(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp
) -> None:
    """SSO-06, SSO-07."""
    await set_up()
    page = await browser(None)
    sizes = [len((await page.get("/login/with/corp")).headers["set-cookie"]) for _ in range(60)]

    first, second = await leave(page, "/login/with/corp?next=/settings"), await leave(page)
    targets = [(await come_back(page, address)).headers["location"] for address in (first, second)]

    assert max(sizes) < 4096
    assert targets == ["/settings", "/"]
    assert await who(page) == "alice@corp.example"


async def test_a_callback_by_hand_twice_elsewhere_or_with_an_error_is_told_and_ends_no_session(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions
) -> None:
    """SSO-10."""
    await set_up()
    page, mallory = await browser(None), await browser(None)
    address = await leave(page)
    query = parse_qs(urlsplit(address).query)
    cookie = page.http.cookies["oidc"]

    of_mallory = await come_back(page, await leave(mallory))
    by_hand = await page.get("/login/callback/corp")
    elsewhere = await come_back(mallory, address)
    await come_back(page, address)
    again = await come_back(page, address)
    page.http.cookies.set("oidc", cookie, domain="127.0.0.1")  # the Back button, and a cookie that came back with it
    replayed = await come_back(page, address)
    denied_at = parse_qs(urlsplit(await leave(page)).query)["state"][0]
    denied = await page.get(f"/login/callback/corp?error=access_denied&state={denied_at}")

    refused = (of_mallory, by_hand, elsewhere, again, replayed, denied)
    assert {reply.status_code for reply in refused} == {400}
    assert all('href="/login/with/corp"' in reply.text for reply in refused)
    assert query["code"][0] not in "".join(reply.text for reply in refused)
    assert await who(page) == "alice@corp.example"
    assert await who(mallory) is None


@pytest.mark.long
async def test_fifty_first_sign_ins_at_once_make_one_account(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions, site: Site
) -> None:
    await set_up(groups=Groups.CREATE)
    provider.claims |= {"groups": ["Research"]}
    pages = [await browser(None) for _ in range(4)]
    for number in range(50):
        provider.claims |= {"sub": f"person-{number}", "email": f"person{number}@corp.example"}
        ready = await asyncio.gather(*(leave(page) for page in pages))
        replies = await asyncio.gather(*(come_back(page, address) for page, address in zip(pages, ready, strict=True)))
        assert {reply.status_code for reply in replies} == {303}

    assert len(await people(db)) == 50
    async with db.begin() as session:
        assert await session.scalar(select(func.count()).select_from(Identity)) == 50
        assert await session.scalar(select(func.count()).select_from(Group)) == 1
        assert await session.scalar(select(func.count()).select_from(GroupMember)) == 50


async def test_groups_are_made_mapped_blocked_and_left_again(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions
) -> None:
    async with db.begin() as session:
        for name in ("Board", "Lawyers", "By hand"):
            await groups.create(session, name)
    await set_up(
        groups=Groups.CREATE, group_map=(("cn=law", "Lawyers"), ("cn=gone", "Nowhere")), blocked_groups=("*-admins",)
    )
    provider.claims |= {"groups": ["Research", "cn=law", "cn=gone", "it-admins", "Board"]}
    await come_in(await browser(None))
    [alice] = await people(db)
    async with db.begin() as session:
        by_hand = await session.scalar(select(Group).where(Group.name == "By hand"))
        assert by_hand
        await groups.add_member(session, by_hand, alice)
    first = await memberships(db, alice)

    provider.claims |= {"groups": ["Sales"]}
    await come_in(await browser(None))

    assert first == {"Research", "Lawyers", "By hand"}  # "Board" is an administrator's, and named by no rule
    assert await memberships(db, alice) == {"Sales", "By hand"}


@pytest.mark.parametrize(
    "overage",
    [
        {"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "http://127.0.0.1:1/"}}},
        {"hasgroups": True},
        {},
    ],
)
async def test_a_list_of_groups_that_could_not_be_had_takes_nothing_away(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions, overage: dict[str, object]
) -> None:
    """SSO-05."""
    await set_up(groups=Groups.CREATE)
    provider.claims |= {"groups": ["Research"]}
    await come_in(await browser(None))
    del provider.claims["groups"]
    provider.claims |= overage

    reply = await come_in(await browser(None))

    assert reply.status_code == 303
    assert await memberships(db, (await people(db))[0]) == {"Research"}


async def test_who_is_deactivated_or_not_wanted_stays_outside(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions, carol: User
) -> None:
    await set_up()
    await come_in(await browser(None))
    alice = next(person for person in await people(db) if person.email == "alice@corp.example")
    assert "alice@corp.example Member Active" in text_of(await (await browser(carol)).get("/admin/people"))
    await submit(await browser(carol), f"/admin/people/{alice.id}/disable")

    reply = await come_in(await browser(None))

    assert "deactivated" in text_of(reply)
    assert (await (await browser(None)).get("/login/with/nowhere")).status_code == 404


async def test_the_provider_ends_sessions_at_once_with_a_signed_token_that_works_once(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions, alice: User
) -> None:
    await set_up(link_by_email=True)
    provider.claims |= {"sid": "one"}
    page = await browser(None)
    await come_in(page)
    provider.claims |= {"sid": "two"}
    other = await browser(None)
    await come_in(other)
    by_password = await browser(alice)

    async def end(token: str) -> int:
        stranger = await browser(None)
        stranger.http.headers.pop("sec-fetch-site")  # the provider's server is no browser
        return (await submit(stranger, "/login/backchannel/corp", logout_token=token)).status_code

    token = provider.logout_token(sid="one")
    refused = [
        provider.logout_token(nonce="n"),
        provider.logout_token(events={}),
        provider.logout_token(aud="others"),
        provider.logout_token(iss="https://elsewhere.example"),
        provider.logout_token(jti=None),
        provider.logout_token(sub=None),
        provider.logout_token(iat=1),
        provider.logout_token()[:-4] + "AAAA",
        "",
    ]
    assert [await end(bad) for bad in refused] == [400] * len(refused)
    assert (await who(page), await who(other)) == ("alice@corp.example",) * 2

    assert await end(token) == 200
    assert (await who(page), await who(other)) == (None, "alice@corp.example")
    assert await end(token) == 400, "once"
    assert await end(provider.logout_token()) == 200
    assert await who(other) is None
    assert await who(by_password) == "alice@corp.example", "who came in by password the provider does not know"


async def test_signing_out_offers_the_providers_own_sign_out_by_a_link(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, site: Site
) -> None:
    await set_up(logout=True)
    page = await browser(None)
    await come_in(page)

    left = await submit(page, "/logout")
    door = await page.get(left.headers["location"])
    there = await page.get("/logout/at/corp")

    assert 'href="/logout/at/corp"' in door.text
    query = parse_qs(urlsplit(there.headers["location"]).query)
    assert there.headers["location"].startswith(f"{provider.issuer}/end?")
    assert query["post_logout_redirect_uri"] == [f"{site.settings.origin}/login"]
    assert await who(page) is None


async def test_the_session_remembers_nothing_of_the_tokens(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, db: Sessions, owner_url: str
) -> None:
    await set_up()
    page = await browser(None)
    reply = await come_in(page)

    async with db.begin() as session:
        assert await session.scalar(select(func.count()).select_from(LoginSession)) == 1
    assert provider.last_token not in str(reply.headers) + reply.text
    assert "oidc" not in page.http.cookies, "nothing is pending any more"


async def test_a_stranger_cannot_end_what_another_began(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, alice: User, bob: User, add_person: AddPerson
) -> None:
    """Somebody who signs in as another person in mid-flow connects nothing with that other account."""
    await set_up()
    page = await browser(alice)
    address = await leave(page, "/settings/company/corp/connect")
    as_bob = await browser(bob)
    as_bob.http.cookies.set("oidc", page.http.cookies["oidc"], domain="127.0.0.1")

    assert (await come_back(as_bob, address)).status_code == 400
    assert "Not connected" in (await as_bob.get("/settings/company")).text

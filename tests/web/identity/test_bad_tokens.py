"""Thirty tokens that are not what they should be, and what else a provider may get wrong: nobody comes in, and the log
says why, without the token."""

import base64
import hmac
import json
import logging
import time
from typing import Any

import pytest
from joserfc.jwk import RSAKey

from tests.conftest import OpenBrowser
from tests.fakes.identity import CLIENT_ID, SECRET, Claims, FakeProvider
from tests.site import Site
from tests.web.identity.conftest import SetUp, come_back, come_in, doors, leave

STRANGER = RSAKey.generate_key(2048, {"kid": "rsa-0"})  # takes the name of the provider's own key
NAMELESS = RSAKey.generate_key(2048, {"kid": "nobody"})


def _part(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _unsigned(claims: Claims, **header: object) -> str:
    return f"{_part(json.dumps({'alg': 'none', **header}).encode())}.{_part(json.dumps(claims).encode())}."


def _by_secret(claims: Claims, secret: bytes) -> str:
    """HS256 by hand: the library refuses to take a public key for a secret, as we have to."""
    text = _unsigned(claims, alg="HS256", kid="rsa-0").removesuffix(".")
    return f"{text}.{_part(hmac.digest(secret, text.encode(), 'sha256'))}"


def without(claims: Claims, name: str) -> Claims:
    return {key: value for key, value in claims.items() if key != name}


FORGERIES: dict[str, tuple[Any, str]] = {
    "unsigned": (lambda m, c, p: _unsigned(c), "(alg)"),
    "unsigned, in other letters": (lambda m, c, p: _unsigned(c, alg="nOnE"), "(alg)"),
    "signed with the public key as a secret": (lambda m, c, p: _by_secret(c, p.keys[0].as_pem(private=False)), "(alg)"),
    "signed with the client's secret": (lambda m, c, p: _by_secret(c, SECRET.encode()), "(alg)"),
    "signed with an algorithm that is not on the list": (lambda m, c, p: m(c, alg="RS512"), "(alg)"),
    "signed by a stranger under a known name": (lambda m, c, p: m(c, key=STRANGER), "BadSignature"),
    "signed by a key nobody knows": (lambda m, c, p: m(c, key=NAMELESS), "InvalidKeyId"),
    "signed by a key it brings along": (lambda m, c, p: m(c, {"jwk": STRANGER.as_dict()}, key=STRANGER), "BadSig"),
    "signed by a key at an address it names": (lambda m, c, p: m(c, {"jku": "http://x"}, key=STRANGER), "BadSig"),
    "with its claims changed": (lambda m, c, p: _changed(m(c)), "BadSignature"),
    "with its signature cut off": (lambda m, c, p: m(c).rpartition(".")[0] + ".", "BadSignature"),
    "with an extension that is not known": (lambda m, c, p: m(c, {"crit": ["x"], "x": 1}), "(crit)"),
    "with b64 as an extension": (lambda m, c, p: m(c, {"crit": ["b64"], "b64": True}), "(crit)"),
    "huge": (lambda m, c, p: m(c | {"x": "x" * 20_000}), "more than 16384"),
    "no token": (lambda m, c, p: "hello", "no signed token"),
    "nothing": (lambda m, c, p: None, "no signed token"),
    "a list": (lambda m, c, p: [m(c)], "no signed token"),
    "encrypted, it seems": (lambda m, c, p: m(c) + ".a.b", "no signed token"),
    "for another client": (lambda m, c, p: m(c | {"aud": "others"}), "'aud'"),
    "for nobody": (lambda m, c, p: m(without(c, "aud")), "'aud'"),
    "for us and others, asked for by nobody": (lambda m, c, p: m(c | {"aud": [CLIENT_ID, "others"]}), "azp"),
    "asked for by another client": (lambda m, c, p: m(c | {"azp": "others"}), "'azp'"),
    "of another issuer": (lambda m, c, p: m(c | {"iss": "https://evil.example"}), "'iss'"),
    "of our issuer, nearly": (lambda m, c, p: m(c | {"iss": c["iss"] + "/"}), "'iss'"),
    "for another sign-in": (lambda m, c, p: m(c | {"nonce": "n"}), "'nonce'"),
    "for no sign-in": (lambda m, c, p: m(without(c, "nonce")), "'nonce'"),
    "expired": (lambda m, c, p: m(c | {"exp": int(time.time()) - 180}), "check the clock"),
    "without an end": (lambda m, c, p: m(without(c, "exp")), "'exp'"),
    "with an end that is no number": (lambda m, c, p: m(c | {"exp": "tomorrow"}), "exp"),
    "with an end that never comes": (lambda m, c, p: m(c | {"exp": float("nan")}), "exp"),
    "from the future": (lambda m, c, p: m(c | {"iat": int(time.time()) + 180}), "check the clock"),
    "not valid yet": (lambda m, c, p: m(c | {"nbf": int(time.time()) + 180}), "check the clock"),
    "of nobody": (lambda m, c, p: m(without(c, "sub")), "'sub'"),
    "of an empty person": (lambda m, c, p: m(c | {"sub": ""}), "(sub)"),
    "of a number": (lambda m, c, p: m(c | {"sub": 42}), "sub"),
    "for another access token": (lambda m, c, p: m(c | {"at_hash": "x"}), "'at_hash'"),
}


def _changed(token: str) -> str:
    header, payload, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    forged = base64.urlsafe_b64encode(json.dumps(claims | {"sub": "admin"}).encode()).rstrip(b"=").decode()
    return f"{header}.{forged}.{signature}"


async def test_a_good_token_lets_in_whatever_allowed_way_it_is_signed(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp
) -> None:
    """Otherwise the refusals below would prove nothing. SSO-09: clocks may differ by a minute."""
    await set_up()
    moment = int(time.time())
    ways: list[Any] = [
        lambda make, claims: make(claims),
        lambda make, claims: make(claims, alg="PS256"),
        lambda make, claims: make(claims, alg="ES256"),
        lambda make, claims: make(claims | {"aud": [CLIENT_ID]}),
        lambda make, claims: make(claims | {"aud": [CLIENT_ID, "others"], "azp": CLIENT_ID}),
        lambda make, claims: make(claims | {"iat": moment + 30}),
        lambda make, claims: make(claims | {"iat": moment + 55, "nbf": moment + 55}),
        lambda make, claims: make(claims | {"exp": moment - 20}),
        lambda make, claims: make(claims, {"x5t": "x" * 40, "odd": "but not critical"}),
    ]
    statuses = []
    for way in ways:
        provider.forge = way
        statuses.append((await come_in(await browser(None))).status_code)

    assert statuses == [303] * len(ways)


async def test_thirty_bad_tokens_are_refused_each_with_its_reason_in_the_log(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, caplog: pytest.LogCaptureFixture
) -> None:
    await set_up()
    page = await browser(None)
    caplog.set_level(logging.INFO)
    wrong = {}
    for what, (forge, reason) in FORGERIES.items():
        caplog.clear()
        provider.forge = lambda make, claims, forge=forge: forge(make, claims, provider)
        reply = await come_in(page)
        logged = caplog.text
        parts = [part for part in provider.last_token.split(".") if len(part) > 20]
        if reply.status_code != 400 or reason not in logged or "sid" in page.http.cookies:
            wrong[what] = (reply.status_code, [line for line in logged.splitlines() if "refused" in line])
        assert not any(part in logged or part in reply.text for part in parts), what

    assert len(FORGERIES) >= 30
    assert wrong == {}


async def test_a_new_key_is_found_at_once_and_made_up_ones_are_not_asked_for_again_and_again(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp
) -> None:
    await set_up()
    await come_in(await browser(None))
    provider.rotate()

    fresh = await come_in(await browser(None))
    provider.asked.clear()
    provider.forge = lambda make, claims: make(claims, key=NAMELESS)
    flood = [(await come_in(await browser(None))).status_code for _ in range(4)]

    assert fresh.status_code == 303
    assert flood == [400] * 4
    assert provider.asked.count("/jwks") == 0, "it was asked a moment ago"


async def test_the_provider_itself_may_be_wrong_or_away(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, site: Site
) -> None:
    await set_up()
    found = {}
    lies: dict[str, Claims] = {
        "another issuer": {"issuer": "https://evil.example"},
        "no keys": {"jwks_uri": None},
        "a token endpoint in the clear": {"token_endpoint": "http://sso.example/token"},
        "a file": {"jwks_uri": "file:///etc/passwd"},
        "the metadata service": {"token_endpoint": "https://169.254.169.254/token"},
        "Parley itself": {"token_endpoint": f"{site.settings.origin}/token"},
    }
    for what, metadata in lies.items():
        provider.metadata = metadata
        doors(site).oidc.discovery.forget(provider.issuer)
        page = await browser(None)
        reply = await page.get("/login/with/corp")
        found[what] = reply.status_code if reply.status_code == 503 else (await come_in(page)).status_code
    provider.metadata = {}
    for path, fault in (("/.well-known/openid-configuration", 500), ("/.well-known/openid-configuration", 302)):
        provider.faults = {path: fault}
        doors(site).oidc.discovery.forget(provider.issuer)
        found[f"{path} {fault}"] = (await (await browser(None)).get("/login/with/corp")).status_code

    assert set(found.values()) == {503}, found


async def test_a_reply_of_another_provider_is_refused(
    browser: OpenBrowser, provider: FakeProvider, set_up: SetUp, caplog: pytest.LogCaptureFixture
) -> None:
    """The mix-up attack: `iss` beside the code (RFC 9207), and a state that belongs to another provider."""
    await set_up()
    await set_up("other")
    page = await browser(None)
    mixed = await come_back(page, (await leave(page)).replace("/callback/corp", "/callback/other"))
    of_another = await come_back(page, await leave(page) + "&iss=https%3A%2F%2Fevil.example")

    assert (mixed.status_code, of_another.status_code) == (400, 400)
    assert "(iss)" in caplog.text

"""OpenID Connect, the code flow with PKCE: to the provider with a link, back with a code, and what it says of a person.

    address = await oidc.authorization(client, pending)      the browser goes there
    claims = await oidc.claims(client, pending, code)        of a person, proved

No token reaches the browser, and none is kept. Redirect addresses are built from the settings of the deployment.
"""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from authlib.common.urls import add_params_to_uri
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from backend.core.text import one_line
from backend.identity import tokens
from backend.identity.asking import Asking
from backend.identity.discovery import Discovery, Endpoints
from backend.identity.facts import find
from backend.identity.pending import Pending
from backend.identity.problems import ProviderAway, ReplyRefused
from backend.identity.rules import Groups, Rules

LEEWAY: Final = 60
"""Seconds by which the clocks of two machines may differ."""

_ABOUT_THE_TOKEN: Final = frozenset({"iss", "aud", "exp", "iat", "nbf", "nonce", "azp", "at_hash", "sid", "jti"})


@dataclass(frozen=True, slots=True)
class Client:
    """Parley, as one provider knows it."""

    slug: str
    issuer: str
    client_id: str
    secret: str
    rules: Rules
    origin: str  # of Parley

    @property
    def redirect_uri(self) -> str:
        return f"{self.origin}/login/callback/{self.slug}"


class Oidc:
    """Of one process."""

    def __init__(self, asking: Asking, *, leeway: int = LEEWAY) -> None:
        self._asking = asking
        self.discovery = Discovery(asking)
        self._leeway = leeway

    async def authorization(self, client: Client, pending: Pending) -> str:
        """Where the browser is to go. Raises ProviderAway."""
        endpoints = await self.discovery.endpoints(client.issuer)
        address: str = prepare_grant_uri(
            endpoints.authorization,
            client_id=client.client_id,
            response_type="code",
            redirect_uri=client.redirect_uri,
            scope=client.rules.scopes,
            state=pending.state,
            nonce=pending.nonce,
            code_challenge=create_s256_code_challenge(pending.verifier),
            code_challenge_method="S256",
        )
        return address

    async def claims(self, client: Client, pending: Pending, code: str, iss: str | None) -> dict[str, Any]:
        """Of the ID token, and of userinfo where that says more. Raises ReplyRefused, ProviderAway."""
        endpoints = await self.discovery.endpoints(client.issuer)
        if (iss is not None or endpoints.names_itself) and iss != endpoints.issuer:
            raise ReplyRefused("the reply is of another provider (iss)")
        reply = await self._redeem(client, endpoints, pending, code)
        access_token = reply["access_token"] if isinstance(reply.get("access_token"), str) else ""
        claims = await tokens.read_id_token(
            reply.get("id_token", ""),
            discovery=self.discovery,
            endpoints=endpoints,
            client_id=client.client_id,
            nonce=pending.nonce,
            access_token=access_token,
            leeway=self._leeway,
        )
        if endpoints.userinfo and access_token and _is_thin(claims, client.rules):
            more = await self._userinfo(endpoints, access_token, claims["sub"])
            if "email" in more:  # whether it was verified is said beside the address itself, or not at all
                claims.pop("email_verified", None)
            return claims | more
        return claims

    async def logout_claims(self, client: Client, token: str) -> dict[str, Any]:
        endpoints = await self.discovery.endpoints(client.issuer)
        return await tokens.read_logout_token(
            token, discovery=self.discovery, endpoints=endpoints, client_id=client.client_id, leeway=self._leeway
        )

    async def sign_out_address(self, client: Client) -> str | None:
        """Where a browser signs out at the provider, which sends it back; None where it cannot be."""
        try:
            endpoints = await self.discovery.endpoints(client.issuer)
        except ProviderAway:
            return None
        if not endpoints.end_session:
            return None
        back = [("client_id", client.client_id), ("post_logout_redirect_uri", f"{client.origin}/login")]
        address: str = add_params_to_uri(endpoints.end_session, back)
        return address

    async def _redeem(self, client: Client, endpoints: Endpoints, pending: Pending, code: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": client.redirect_uri,
            "code_verifier": pending.verifier,
        }
        basic = None
        if client.secret and endpoints.takes_basic:
            basic = quote(client.client_id, safe=""), quote(client.secret, safe="")  # RFC 6749, section 2.3.1
        else:
            form |= {"client_id": client.client_id} | ({"client_secret": client.secret} if client.secret else {})
        status, reply = await self._asking.post(endpoints.token, form, basic=basic)
        if status >= 500:
            raise ProviderAway(f"{endpoints.token} answered {status}")
        if status != 200:
            raise ReplyRefused(f"the code was not taken: {_word(reply.get('error'))} ({status})")
        return reply

    async def _userinfo(self, endpoints: Endpoints, access_token: str, subject: str) -> dict[str, Any]:
        found = await self._asking.get(endpoints.userinfo, bearer=access_token)
        if found.get("sub") != subject:
            raise ReplyRefused("userinfo is about somebody else than the token (sub)")
        return {name: value for name, value in found.items() if name not in _ABOUT_THE_TOKEN}


def _is_thin(claims: dict[str, Any], rules: Rules) -> bool:
    """Whether a claim that the rules ask for is not in the token. A list that is elsewhere is not here either."""
    wanted = [rules.name_claim, rules.email_claim, rules.role_claim]
    if rules.groups is not Groups.IGNORE:
        wanted.append(rules.groups_claim)
    return any(find(claims, name) in (None, "") for name in wanted if name)


def _word(value: object) -> str:
    """An error code of OAuth, for the log."""
    return one_line(value, 60) if isinstance(value, str) else "no reason given"

"""Tokens that a provider signed: whole, from it, for us, for now; or refused, with what was wrong for the log.

Three algorithms, named here and not by the token. What is symmetric, unsigned or unknown is refused before a key is
looked for, so a public key can never be taken for a shared secret.
"""

from collections.abc import Mapping
from typing import Any, Final

from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import ExpiredTokenError, InvalidClaimError, JoseError, MissingClaimError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry
from joserfc.util import json_b64decode

from backend.core.clock import now
from backend.identity.discovery import Discovery, Endpoints
from backend.identity.problems import ReplyRefused

ALGORITHMS: Final = ("RS256", "ES256", "PS256")
MAX_BYTES: Final = 16 * 1024
MAX_SUBJECT: Final = 255

LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"
_OLDEST_LOGOUT: Final = 600  # seconds since a logout token was made


class _Registry(JWSRegistry):
    """Some providers send their certificate along."""

    max_header_length = 8 * 1024


_REGISTRY: Final = _Registry(algorithms=ALGORITHMS, strict_check_header=False)


async def read_id_token(
    token: str,
    *,
    discovery: Discovery,
    endpoints: Endpoints,
    client_id: str,
    nonce: str,
    access_token: str,
    leeway: int,
) -> dict[str, Any]:
    """The claims. Raises ReplyRefused."""
    claims, header = await _verified(token, discovery, endpoints)
    checked = CodeIDToken(
        claims,
        header,
        {"iss": {"essential": True, "value": endpoints.issuer}, "aud": {"essential": True, "value": client_id}},
        {"nonce": nonce, "client_id": client_id, "access_token": access_token},
    )
    _validate(checked, leeway)
    if _audiences(claims) - {client_id} and "azp" not in claims:
        raise ReplyRefused("the token is also for others, and does not say who asked for it (azp)")
    _check_subject(claims)
    return claims


async def read_logout_token(
    token: str, *, discovery: Discovery, endpoints: Endpoints, client_id: str, leeway: int
) -> dict[str, Any]:
    """The claims of OpenID Connect Back-Channel Logout 1.0, section 2.6. Raises ReplyRefused.

    That it is used once is up to the caller, who has a database.
    """
    claims, header = await _verified(token, discovery, endpoints)
    checked = CodeIDToken(
        {"exp": int(now().timestamp()) + 1, "sub": "", **claims},  # newer ones have both; the age is looked at below
        header,
        {"iss": {"essential": True, "value": endpoints.issuer}, "aud": {"essential": True, "value": client_id}},
        {},
    )
    _validate(checked, leeway)
    events = claims.get("events")
    if not isinstance(events, Mapping) or not isinstance(events.get(LOGOUT_EVENT), Mapping):
        raise ReplyRefused("it is no logout token: events")
    if "nonce" in claims:
        raise ReplyRefused("it is no logout token: it has a nonce")
    if claims["iat"] < now().timestamp() - _OLDEST_LOGOUT - leeway:
        raise ReplyRefused("the logout token is old")
    if not isinstance(claims.get("jti"), str) or not claims["jti"]:
        raise ReplyRefused("the logout token has no jti")
    named = [claims[name] for name in ("sub", "sid") if name in claims]
    if not named or not all(isinstance(each, str) and 0 < len(each) <= MAX_SUBJECT for each in named):
        raise ReplyRefused("the logout token names neither a person nor a session")
    return claims


async def _verified(token: object, discovery: Discovery, endpoints: Endpoints) -> tuple[dict[str, Any], dict[str, Any]]:
    """Its claims and header, once its signature is proved."""
    if not isinstance(token, str) or not token.isascii() or token.count(".") != 2:
        raise ReplyRefused("there is no signed token")
    if len(token) > MAX_BYTES:
        raise ReplyRefused(f"the token has more than {MAX_BYTES} bytes")
    header = _header(token)
    if header.get("alg") not in ALGORITHMS:
        raise ReplyRefused("the token is signed in a way that is not allowed (alg)")
    if "crit" in header:
        raise ReplyRefused("the token asks for an extension that is not known (crit)")
    keys: KeySet = await discovery.keys(endpoints, header.get("kid"))
    try:
        read = jwt.decode(token, keys, registry=_REGISTRY)
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        raise ReplyRefused(f"the signature of the token is not the provider's: {type(error).__name__}") from None
    return read.claims, read.header


def _header(token: str) -> dict[str, Any]:
    try:
        header = json_b64decode(token.partition(".")[0].encode())
    except (ValueError, TypeError, RecursionError):
        raise ReplyRefused("the token cannot be read") from None
    if not isinstance(header, dict):
        raise ReplyRefused("the token cannot be read")
    return header


def _validate(claims: CodeIDToken, leeway: int) -> None:
    moment = int(now().timestamp())
    try:
        claims.validate(now=moment, leeway=leeway)
    except ExpiredTokenError:
        raise ReplyRefused("the token has expired; check the clock of this machine and the provider's") from None
    except MissingClaimError as error:
        raise ReplyRefused(f"the token lacks a claim: {error.description}") from None
    except InvalidClaimError as error:
        late = claims.get("iat"), claims.get("nbf")
        future = any(isinstance(each, int | float) and each > moment + leeway for each in late)
        clock = "; it is from the future: check the clock of this machine and the provider's" if future else ""
        raise ReplyRefused(f"a claim of the token is not right: {error.description}{clock}") from None
    except (JoseError, ValueError, TypeError, OverflowError) as error:
        raise ReplyRefused(f"a claim of the token cannot be read: {type(error).__name__}") from None


def _audiences(claims: Mapping[str, Any]) -> set[str]:
    aud = claims.get("aud")
    return set(aud) if isinstance(aud, list) else {str(aud)}


def _check_subject(claims: Mapping[str, Any]) -> None:
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT or "\0" in subject:
        raise ReplyRefused("the token does not say of whom it is (sub)")

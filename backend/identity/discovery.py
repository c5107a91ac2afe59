"""Where a provider's endpoints are and which keys it signs with, both remembered for ten minutes.

A key that is not among them is looked for once more at the provider, at most once in half a minute: it may be new, and
whoever makes up key ids must not make us ask for each of them.
"""

from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from authlib.oidc.discovery import get_well_known_url
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from backend.identity.asking import Asking, wrong_address
from backend.identity.problems import ProviderAway

KEEP_SECONDS: Final = 600.0
AGAIN_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Endpoints:
    issuer: str
    authorization: str
    token: str
    keys: str
    userinfo: str = ""
    end_session: str = ""
    takes_basic: bool = True  # how the client shows its secret
    names_itself: bool = False  # sends `iss` with every reply (RFC 9207)


class Discovery:
    """Of all providers, for one process."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._endpoints: dict[str, tuple[float, Endpoints]] = {}
        self._keys: dict[str, _Kept] = {}

    async def endpoints(self, issuer: str) -> Endpoints:
        known = self._endpoints.get(issuer)
        if known is None or known[0] < monotonic() - KEEP_SECONDS:
            found = _read(await self._asking.get(get_well_known_url(issuer, external=True)), issuer)
            self._endpoints[issuer] = known = (monotonic(), found)
        return known[1]

    async def keys(self, endpoints: Endpoints, kid: object) -> KeySet:
        """The provider's keys; asked for again where none is called `kid`."""
        known = self._keys.get(endpoints.keys)
        if known is None or known.is_old:
            known = self._keys[endpoints.keys] = _Kept(await self._fetch(endpoints))
        elif not _has(known.keys, kid) and known.may_ask_again():
            known.keys = await self._fetch(endpoints)
        return known.keys

    def forget(self, issuer: str) -> None:
        """After its settings were changed, or for a test that is to see the provider as it is now."""
        known = self._endpoints.pop(issuer, None)
        if known is not None:
            self._keys.pop(known[1].keys, None)

    async def _fetch(self, endpoints: Endpoints) -> KeySet:
        return _key_set(await self._asking.get(endpoints.keys), endpoints)


class _Kept:
    def __init__(self, keys: KeySet) -> None:
        self.keys = keys
        self._since = monotonic()
        self._asked_again = -AGAIN_SECONDS

    @property
    def is_old(self) -> bool:
        return monotonic() - self._since > KEEP_SECONDS

    def may_ask_again(self) -> bool:
        may = monotonic() - self._asked_again >= AGAIN_SECONDS
        if may:
            self._asked_again = monotonic()
        return may


def _has(keys: KeySet, kid: object) -> bool:
    return any(key.kid == kid for key in keys.keys) or (kid is None and len(keys.keys) == 1)


def _key_set(found: dict[str, Any], endpoints: Endpoints) -> KeySet:
    """Only public keys of signatures: a symmetric one has no business in a public list."""
    listed = found.get("keys")
    keys = [key for key in listed if isinstance(key, dict)] if isinstance(listed, list) else []
    asymmetric = [key for key in keys if key.get("kty") in ("RSA", "EC") and key.get("use", "sig") == "sig"]
    try:
        return KeySet.import_key_set({"keys": asymmetric})
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise ProviderAway(f"{endpoints.keys} has no usable keys: {type(error).__name__}") from None


def _read(found: dict[str, Any], issuer: str) -> Endpoints:
    if found.get("issuer") != issuer:
        raise ProviderAway("the discovery document names another issuer")
    methods = found.get("token_endpoint_auth_methods_supported")
    return Endpoints(
        issuer=issuer,
        authorization=_address(found, "authorization_endpoint"),
        token=_address(found, "token_endpoint"),
        keys=_address(found, "jwks_uri"),
        userinfo=_address(found, "userinfo_endpoint", required=False),
        end_session=_address(found, "end_session_endpoint", required=False),
        takes_basic=not isinstance(methods, list) or "client_secret_basic" in methods,
        names_itself=found.get("authorization_response_iss_parameter_supported") is True,
    )


def _address(found: dict[str, Any], name: str, *, required: bool = True) -> str:
    value = found.get(name)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or wrong_address(value):
        raise ProviderAway(f"the discovery document has no usable {name}")
    return value

"""A double of an OpenID provider behind a real uvicorn on a loopback port: it signs what it is told to, also lies.

    with FakeProvider() as provider:
        provider.claims = {"sub": "42", "email": "alice@corp.example", "email_verified": True}
        provider.forge = lambda make, claims: make(claims | {"aud": "others"})    # the next ID tokens
        provider.rotate()                       # a new key
        provider.faults["/userinfo"] = 500      # or seconds of silence, as a float

It checks what a client owes it: the exact redirect address, its secret, PKCE, and that a code is used once.
"""

import asyncio
import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey
from joserfc.jws import JWSRegistry

from tests.fakes.serving import Receive, Send, Serving, read_body

CLIENT_ID, SECRET = "parley: web", "s3cret/+ of the client"

Claims = dict[str, Any]
Make = Callable[..., str]
Forge = Callable[[Make, Claims], object]

_RSA = [RSAKey.generate_key(2048, {"kid": f"rsa-{number}", "use": "sig"}) for number in range(2)]
_EC = ECKey.generate_key("P-256", {"kid": "ec-1", "use": "sig"})


class _Everything(JWSRegistry):
    """A liar signs with whatever it likes."""

    max_header_length = 100_000
    max_payload_length = 1_000_000

    def check_header(self, header: dict[str, Any]) -> None:
        pass


class FakeProvider(Serving):
    def __init__(self) -> None:
        super().__init__(port=0, keep_alive=5)
        self.claims: Claims = {
            "sub": "alice-at-corp",
            "name": "Alice Owner",
            "email": "alice@corp.example",
            "email_verified": True,
        }
        self.in_userinfo: Claims | None = None  # what is said there, in place of the ID token
        self.forge: Forge | None = None
        self.faults: dict[str, int | float] = {}
        self.metadata: Claims = {}
        self.redirect_uris: set[str] | None = None  # None: any
        self.asked: list[str] = []
        self.keys: list[RSAKey | ECKey] = [_RSA[0], _EC]
        self.last_token = ""
        self._codes: dict[str, Claims] = {}

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def rotate(self) -> None:
        """Sign with a key that nobody has seen; the old one is gone."""
        self.keys = [_RSA[1]]

    def make(self, claims: Claims, header: Claims | None = None, *, key: Any = None, alg: str = "RS256") -> str:
        """A token signed as told; by default as it should be."""
        key = key or (_EC if alg.startswith("ES") else self.keys[0])
        kid = {"kid": key.kid} if key.kid else {}
        registry = _Everything(algorithms=list(JWSRegistry.algorithms))
        return jwt.encode({"alg": alg, **kid, **(header or {})}, claims, key, registry=registry)

    def logout_token(self, client_id: str = CLIENT_ID, **changes: object) -> str:
        moment = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": client_id,
            "iat": moment,
            "exp": moment + 120,
            "jti": secrets.token_hex(8),
            "sub": self.claims["sub"],
            "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
        } | changes
        return self.make({name: value for name, value in claims.items() if value is not None}, {"typ": "logout+jwt"})

    async def app(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        self.asked.append(path)
        fault = self.faults.get(path, 200)
        if isinstance(fault, float):
            await asyncio.sleep(fault)
        elif fault != 200:
            await _reply(send, fault, {"error": "server_error"})
            return
        query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
        match path:
            case "/.well-known/openid-configuration":
                await _reply(send, 200, self._metadata() | self.metadata)
            case "/authorize":
                await self._authorize(send, query)
            case "/token":
                await self._token(scope, receive, send)
            case "/jwks":
                await _reply(send, 200, KeySet(list(self.keys)).as_dict(private=False))
            case "/userinfo":
                await _reply(send, 200, self.in_userinfo or self.claims)
            case _:
                await _reply(send, 404, {})

    def _metadata(self) -> Claims:
        of = {
            "authorization_endpoint": "/authorize",
            "token_endpoint": "/token",
            "jwks_uri": "/jwks",
            "userinfo_endpoint": "/userinfo",
            "end_session_endpoint": "/end",
        }
        return {"issuer": self.issuer} | {name: self.issuer + path for name, path in of.items()}

    async def _authorize(self, send: Send, query: Claims) -> None:
        """Nobody is asked for a password here."""
        assert query["response_type"] == "code" and query["code_challenge_method"] == "S256"
        if self.redirect_uris is not None and query["redirect_uri"] not in self.redirect_uris:
            await _reply(send, 400, {"error": "invalid_redirect_uri"})
            return
        code = secrets.token_urlsafe()
        self._codes[code] = query
        target = f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"
        await _reply(send, 303, {}, ("location", target))

    async def _token(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        form = {name: values[0] for name, values in parse_qs((await read_body(receive)).decode()).items()}
        asked = self._codes.pop(form.get("code", ""), None)
        if asked is None or asked["redirect_uri"] != form["redirect_uri"]:
            await _reply(send, 400, {"error": "invalid_grant"})
            return
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest())
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        shown = base64.b64decode(headers.get("authorization", "").partition(" ")[2]).decode().split(":")
        if challenge.rstrip(b"=").decode() != asked["code_challenge"] or [unquote(s) for s in shown] != [
            CLIENT_ID,
            SECRET,
        ]:
            await _reply(send, 401, {"error": "invalid_client"})
            return
        await _reply(send, 200, {"access_token": "at", "token_type": "Bearer", "id_token": self._id_token(asked)})

    def _id_token(self, asked: Claims) -> object:
        moment = int(time.time())
        told = self.claims if self.in_userinfo is None else {"sub": self.claims["sub"]}
        claims = told | {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "iat": moment,
            "exp": moment + 300,
            "nonce": asked["nonce"],
        }
        made = self.forge(self.make, claims) if self.forge else self.make(claims)
        self.last_token = str(made)
        return made


async def _reply(send: Send, status: int, body: object, *headers: tuple[str, str]) -> None:
    every = [("content-type", "application/json"), *headers]
    raw = [(name.encode(), value.encode()) for name, value in every]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})

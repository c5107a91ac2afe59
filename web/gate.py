"""What every request passes first, whatever route it is for. Plain ASGI: a wrapper that buffers would hold streams up.

In order: a support id, where an unsafe request comes from, how large it is, the headers of the reply, and the last
resort for an exception nobody expected.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.core.errors import AppError, Forbidden, TooLarge
from backend.core.i18n import _
from backend.core.telemetry import new_support_id, support_id
from web.api import errors as api

log = logging.getLogger(__name__)

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_SIGNED: Final = "/login/backchannel/"

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; object-src 'none'; "
    "require-trusted-types-for 'script'; trusted-types htmx; report-uri /csp-report; report-to csp"
)

_HEADERS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "reporting-endpoints": 'csp="/csp-report"',
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=(), clipboard-write=(self), "
    "publickey-credentials-get=(self), publickey-credentials-create=(self)",
}

_RAW_HEADERS: Final = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]

ErrorPage = Callable[[Scope, AppError | None], ASGIApp]


class Gate:
    """`error_page` draws the reply for an AppError, or for a fault of ours (None).

    `max_body` is in bytes; `uploads` are the few paths that take more, each with its own.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        origin: str,
        max_body: int,
        error_page: ErrorPage,
        uploads: Mapping[str, int] | None = None,
    ) -> None:
        self._app = app
        self._origin = origin
        self._max_body = max_body
        self._uploads = uploads or {}
        self._error_page = error_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = new_support_id()
        scope.setdefault("state", {})["support_id"] = request_id
        token = support_id.set(request_id)
        try:
            await self._serve(scope, receive, send)
        finally:
            support_id.reset(token)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(scope, message)
                if api.is_for(scope):
                    message["headers"].append((b"x-request-id", scope["state"]["support_id"].encode()))
            await send(message)

        try:
            self._refuse_foreign(scope)
            self._refuse_large(scope)
            await self._app(scope, self._counting(scope, receive), send_with_headers)
        except AppError as error:
            await self._error_page(scope, error)(scope, receive, send_with_headers)
        except Exception:
            # The outermost place of a request: one bad request never ends the process, and is never silent.
            log.exception("%s %s failed", scope["method"], scope["path"])
            if not status:
                await self._error_page(scope, None)(scope, receive, send_with_headers)
        finally:
            _log_access(scope, status, time.perf_counter() - started)

    def _refuse_foreign(self, scope: Scope) -> None:
        """Cross-site request forgery, without tokens: browsers say where a request comes from.

        A program that sends a bearer token and no cookie carries no authority of a browser, and the report sink has
        none to give. Nor has the API: whatever cookie comes along, it is the token alone that opens anything there.
        A provider's back-channel logout carries a signature, and no cookie is looked at.
        """
        if scope["method"] in _SAFE or scope["path"] == "/csp-report" or api.is_for(scope):
            return
        if scope["path"].startswith(_SIGNED):
            return
        headers = Headers(scope=scope)
        if headers.get("authorization", "").lower().startswith("bearer ") and "cookie" not in headers:
            return
        site = headers.get("sec-fetch-site")
        trusted = site == "same-origin" if site is not None else headers.get("origin") == self._origin
        if not trusted:
            raise Forbidden(_("This request came from another site, so nothing was done. Open Parley and try again."))

    def _refuse_large(self, scope: Scope) -> None:
        """What says how large it is, before any of it is read; of the rest every piece is counted."""
        said = Headers(scope=scope).get("content-length", "")
        if said.isdecimal() and int(said) > self._most(scope):
            if scope["path"] in self._uploads:
                raise TooLarge(_("This file is too large to be attached."))
            raise TooLarge(_("This is too large to send. Please shorten it; your text is kept."))

    def _most(self, scope: Scope) -> int:
        return self._uploads.get(scope["path"], self._max_body)

    def _counting(self, scope: Scope, receive: Receive) -> Receive:
        read = 0
        most = self._most(scope)

        async def receive_and_count() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > most:
                raise HTTPException(413)  # the one kind of exception that whoever parses the body lets through
            return message

        return receive_and_count


def _add_headers(scope: Scope, message: Message) -> None:
    given = {name for name, _value in message["headers"]}
    headers = MutableHeaders(raw=[*message["headers"], *(each for each in _RAW_HEADERS if each[0] not in given)])
    if scope["path"].startswith("/static/") and message["status"] in (200, 206, 304):
        # The address of a static file changes with its content (`rendering.static`).
        named = scope["query_string"].startswith(b"v=")
        headers["cache-control"] = "public, max-age=31536000, immutable" if named else "no-cache"
    else:
        headers.setdefault("cache-control", "no-store")
        headers.add_vary_header("HX-Request, Cookie")
    message["headers"] = headers.raw


def _log_access(scope: Scope, status: int, seconds: float) -> None:
    """The path without its query: it may hold a secret."""
    if scope["path"].startswith("/static/") or scope["path"] in ("/healthz", "/readyz"):
        return
    log.info(
        "%s %s", scope["method"], scope["path"], extra={"status": status, "milliseconds": round(seconds * 1000, 1)}
    )

"""Who may call which route. A route without a row here does not exist: the start fails, not the night.

This table answers "may this kind of person come here at all?". Whether an object is theirs is decided where it is
loaded (`web/chat/dependencies.py`), and a stranger gets 404 from there.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from fastapi import Request
from starlette.routing import BaseRoute, Mount, Route

from backend.accounts.models import Area
from backend.audit.acting import Actor, Via
from backend.core.errors import Forbidden, NotFound, NotSignedIn
from backend.core.i18n import _
from backend.groups.rights import Right
from backend.keys.models import Scope
from web import rights
from web.api.errors import OutOfScope
from web.cookies import SESSION
from web.logins import Login
from web.viewer import Viewer


class Access(Enum):
    PUBLIC = "anybody"
    SIGNED_IN = "anybody who is signed in"
    ADMINISTRATION = "whoever administers anything; for others the page is not there, and so with those below"
    PEOPLE = "who administers people and groups"
    MODELS = "who administers models and engines"
    USAGE = "who administers usage"
    AUDIT = "who administers audit and policy"
    ADMIN = "who administers everything"
    KEY = "programs with an API key, in the name of its person; a cookie is not looked at"


_AREAS: Final = {
    Access.PEOPLE: Area.PEOPLE,
    Access.MODELS: Area.MODELS,
    Access.USAGE: Area.USAGE,
    Access.AUDIT: Area.AUDIT,
}

POLICY: dict[tuple[str, str], Access] = {
    ("GET", "/healthz"): Access.PUBLIC,
    ("GET", "/readyz"): Access.PUBLIC,
    ("POST", "/csp-report"): Access.PUBLIC,
    ("GET", "/static"): Access.PUBLIC,
    # Ways in
    ("GET", "/login"): Access.PUBLIC,
    ("POST", "/login"): Access.PUBLIC,
    ("GET", "/login/second"): Access.PUBLIC,
    ("POST", "/login/second"): Access.PUBLIC,
    ("GET", "/login/again"): Access.SIGNED_IN,
    ("POST", "/login/passkey"): Access.PUBLIC,
    ("POST", "/logout"): Access.PUBLIC,
    ("GET", "/login/with/{slug}"): Access.PUBLIC,
    ("GET", "/login/callback/{slug}"): Access.PUBLIC,
    ("POST", "/login/backchannel/{slug}"): Access.PUBLIC,
    ("GET", "/logout/at/{slug}"): Access.PUBLIC,
    ("GET", "/setup"): Access.PUBLIC,
    ("POST", "/setup"): Access.PUBLIC,
    ("GET", "/join"): Access.PUBLIC,
    ("POST", "/join"): Access.PUBLIC,
    # Chat
    ("GET", "/"): Access.SIGNED_IN,
    ("POST", "/chat"): Access.SIGNED_IN,
    ("GET", "/chat/{conversation_id}"): Access.SIGNED_IN,
    ("POST", "/chat/{conversation_id}/messages"): Access.SIGNED_IN,
    ("POST", "/chat/{conversation_id}/title"): Access.SIGNED_IN,
    ("GET", "/chat/{conversation_id}/title"): Access.SIGNED_IN,
    ("POST", "/chat/{conversation_id}/delete"): Access.SIGNED_IN,
    ("GET", "/chat/{conversation_id}/messages/{message_id}/events"): Access.SIGNED_IN,
    ("GET", "/chat/{conversation_id}/messages/{message_id}"): Access.SIGNED_IN,
    ("POST", "/chat/{conversation_id}/messages/{message_id}/stop"): Access.SIGNED_IN,
    ("POST", "/chat/{conversation_id}/messages/{message_id}/regenerate"): Access.SIGNED_IN,
    ("POST", "/chat/{conversation_id}/messages/{message_id}/continue"): Access.SIGNED_IN,
    ("POST", "/chat/{conversation_id}/messages/{message_id}/rate"): Access.SIGNED_IN,
    ("POST", "/chat/{conversation_id}/messages/{message_id}/show"): Access.SIGNED_IN,
    ("POST", "/chat/{conversation_id}/messages/{message_id}/delete"): Access.SIGNED_IN,
    ("POST", "/chat/{conversation_id}/messages/{message_id}/fork"): Access.SIGNED_IN,
    ("GET", "/conversations"): Access.SIGNED_IN,
    ("POST", "/files"): Access.SIGNED_IN,
    ("GET", "/files/{file_id}"): Access.SIGNED_IN,
    ("POST", "/files/{file_id}/remove"): Access.SIGNED_IN,
    # One's own settings
    ("GET", "/settings"): Access.SIGNED_IN,
    ("POST", "/settings"): Access.SIGNED_IN,
    ("POST", "/settings/theme"): Access.SIGNED_IN,
    ("POST", "/settings/password"): Access.SIGNED_IN,
    ("POST", "/settings/model"): Access.SIGNED_IN,
    ("GET", "/settings/data"): Access.SIGNED_IN,
    ("POST", "/settings/data/export"): Access.SIGNED_IN,
    ("POST", "/settings/data/delete"): Access.SIGNED_IN,
    ("GET", "/settings/sessions"): Access.SIGNED_IN,
    ("POST", "/settings/sessions/{session_id}/end"): Access.SIGNED_IN,
    ("POST", "/settings/sessions/end-others"): Access.SIGNED_IN,
    ("POST", "/settings/sessions/end-all"): Access.SIGNED_IN,
    ("GET", "/settings/sign-in"): Access.SIGNED_IN,
    ("POST", "/settings/sign-in/app"): Access.SIGNED_IN,
    ("POST", "/settings/sign-in/app/remove"): Access.SIGNED_IN,
    ("POST", "/settings/sign-in/recovery-codes"): Access.SIGNED_IN,
    ("POST", "/settings/passkeys"): Access.SIGNED_IN,
    ("POST", "/settings/passkeys/{passkey_id}/name"): Access.SIGNED_IN,
    ("POST", "/settings/passkeys/{passkey_id}/remove"): Access.SIGNED_IN,
    ("GET", "/settings/keys"): Access.SIGNED_IN,
    ("POST", "/settings/keys"): Access.SIGNED_IN,
    ("POST", "/settings/keys/{key_id}/revoke"): Access.SIGNED_IN,
    ("GET", "/settings/company"): Access.SIGNED_IN,
    ("GET", "/settings/company/{slug}/connect"): Access.SIGNED_IN,
    ("POST", "/settings/company/{slug}/disconnect"): Access.SIGNED_IN,
    # The API
    ("GET", "/v1/models"): Access.KEY,
    ("GET", "/v1/models/{model_id}"): Access.KEY,
    ("POST", "/v1/chat/completions"): Access.KEY,
    # Administration
    ("GET", "/admin"): Access.ADMINISTRATION,
    ("GET", "/admin/people"): Access.PEOPLE,
    ("POST", "/admin/people"): Access.PEOPLE,
    ("GET", "/admin/people/{person_id}"): Access.PEOPLE,
    ("POST", "/admin/people/{person_id}/areas"): Access.ADMIN,
    ("POST", "/admin/people/{person_id}/keys/{key_id}/revoke"): Access.PEOPLE,
    ("GET", "/admin/people/{person_id}/erase"): Access.PEOPLE,
    ("POST", "/admin/people/{person_id}/erase"): Access.PEOPLE,
    ("GET", "/admin/erasures/{erasure_id}"): Access.PEOPLE,
    ("GET", "/admin/erasures/{erasure_id}/record"): Access.PEOPLE,
    ("GET", "/admin/policy"): Access.AUDIT,
    ("POST", "/admin/policy"): Access.AUDIT,
    ("POST", "/admin/people/{person_id}/link"): Access.PEOPLE,
    ("POST", "/admin/people/{person_id}/role"): Access.ADMIN,
    ("POST", "/admin/people/{person_id}/disable"): Access.PEOPLE,
    ("POST", "/admin/people/{person_id}/enable"): Access.PEOPLE,
    ("POST", "/admin/people/{person_id}/second-factor"): Access.PEOPLE,
    ("GET", "/admin/sign-in"): Access.AUDIT,
    ("POST", "/admin/sign-in"): Access.AUDIT,
    ("GET", "/admin/sign-in/providers"): Access.ADMIN,
    ("POST", "/admin/sign-in/providers"): Access.ADMIN,
    ("GET", "/admin/sign-in/providers/new"): Access.ADMIN,
    ("GET", "/admin/sign-in/providers/{provider_id}"): Access.ADMIN,
    ("POST", "/admin/sign-in/providers/{provider_id}"): Access.ADMIN,
    ("GET", "/admin/sign-in/providers/{provider_id}/test"): Access.ADMIN,
    ("POST", "/admin/sign-in/providers/{provider_id}/enable"): Access.ADMIN,
    ("POST", "/admin/sign-in/providers/{provider_id}/disable"): Access.ADMIN,
    ("POST", "/admin/sign-in/providers/{provider_id}/remove"): Access.ADMIN,
    ("GET", "/admin/engines"): Access.MODELS,
    ("POST", "/admin/engines"): Access.MODELS,
    ("POST", "/admin/engines/test"): Access.MODELS,
    ("GET", "/admin/engines/{engine_id}"): Access.MODELS,
    ("POST", "/admin/engines/{engine_id}"): Access.MODELS,
    ("POST", "/admin/engines/{engine_id}/test"): Access.MODELS,
    ("POST", "/admin/engines/{engine_id}/drain"): Access.MODELS,
    ("POST", "/admin/engines/{engine_id}/undrain"): Access.MODELS,
    ("POST", "/admin/engines/{engine_id}/load"): Access.MODELS,
    ("POST", "/admin/engines/{engine_id}/unload"): Access.MODELS,
    ("POST", "/admin/engines/{engine_id}/enable"): Access.MODELS,
    ("POST", "/admin/engines/{engine_id}/disable"): Access.MODELS,
    ("POST", "/admin/engines/{engine_id}/remove"): Access.MODELS,
    ("POST", "/admin/deployments/{deployment_id}/publish"): Access.MODELS,
    ("POST", "/admin/deployments/{deployment_id}/leave"): Access.MODELS,
    ("POST", "/admin/models/{model_id}/unpublish"): Access.MODELS,
    ("GET", "/admin/bench"): Access.MODELS,
    ("POST", "/admin/bench"): Access.MODELS,
    ("GET", "/admin/bench/{run_id}"): Access.MODELS,
    ("GET", "/admin/bench/{run_id}/record"): Access.MODELS,
    ("GET", "/admin/bench/{run_id}/picture"): Access.MODELS,
    ("POST", "/admin/bench/{run_id}/cancel"): Access.MODELS,
    ("POST", "/admin/bench/{run_id}/delete"): Access.MODELS,
    ("GET", "/admin/capacity"): Access.MODELS,
    ("GET", "/admin/models"): Access.MODELS,
    ("POST", "/admin/models"): Access.MODELS,
    ("GET", "/admin/models/{model_id}"): Access.MODELS,
    ("POST", "/admin/models/{model_id}"): Access.MODELS,
    ("POST", "/admin/models/{model_id}/move"): Access.MODELS,
    ("POST", "/admin/models/{model_id}/publish"): Access.MODELS,
    ("POST", "/admin/models/{model_id}/trial"): Access.MODELS,
    ("POST", "/admin/models/{model_id}/promote"): Access.MODELS,
    ("POST", "/admin/models/{model_id}/roll-back"): Access.MODELS,
    ("POST", "/admin/deployments/{deployment_id}/try"): Access.MODELS,
    ("POST", "/admin/deployments/{deployment_id}/restore"): Access.MODELS,
    ("POST", "/admin/deployments/{deployment_id}/pin"): Access.MODELS,
    ("POST", "/admin/deployments/{deployment_id}/unpin"): Access.MODELS,
    ("GET", "/admin/audit"): Access.AUDIT,
    ("GET", "/admin/audit/export"): Access.AUDIT,
    ("GET", "/admin/groups"): Access.PEOPLE,
    ("POST", "/admin/groups"): Access.PEOPLE,
    ("GET", "/admin/groups/{group_id}"): Access.PEOPLE,
    ("POST", "/admin/groups/{group_id}"): Access.PEOPLE,
    ("POST", "/admin/groups/{group_id}/rights"): Access.PEOPLE,
    ("POST", "/admin/groups/{group_id}/parent"): Access.PEOPLE,
    ("POST", "/admin/groups/{group_id}/remove"): Access.PEOPLE,
    ("POST", "/admin/groups/{group_id}/members/{person_id}/add"): Access.PEOPLE,
    ("POST", "/admin/groups/{group_id}/members/{person_id}/remove"): Access.PEOPLE,
}

#: Where a sign-in of the last quarter of an hour is asked for: what changes rights, keys of engines, ways in.
FRESH: frozenset[tuple[str, str]] = frozenset(
    {
        ("GET", "/settings/sign-in"),
        ("POST", "/settings/sign-in/app"),
        ("POST", "/settings/sign-in/app/remove"),
        ("POST", "/settings/sign-in/recovery-codes"),
        ("POST", "/settings/passkeys"),
        ("POST", "/settings/passkeys/{passkey_id}/remove"),
        ("POST", "/admin/people"),
        ("POST", "/admin/people/{person_id}/link"),
        ("POST", "/admin/people/{person_id}/role"),
        ("POST", "/admin/people/{person_id}/areas"),
        ("POST", "/admin/people/{person_id}/erase"),
        ("POST", "/admin/people/{person_id}/disable"),
        ("POST", "/admin/people/{person_id}/enable"),
        ("POST", "/admin/people/{person_id}/second-factor"),
        ("GET", "/admin/sign-in"),
        ("POST", "/admin/sign-in"),
        ("POST", "/admin/sign-in/providers"),
        ("POST", "/admin/sign-in/providers/{provider_id}"),
        ("POST", "/admin/engines"),
        ("POST", "/admin/engines/{engine_id}"),
    }
)


class SignInAgain(Forbidden):
    """They are who they say, but nobody has seen them for a while: the browser may have been left open."""


RIGHTS: Final[dict[tuple[str, str], Right]] = {
    ("POST", "/files"): Right.UPLOAD,
    ("POST", "/chat/{conversation_id}/title"): Right.RENAME,
    ("POST", "/chat/{conversation_id}/delete"): Right.DELETE,
    ("POST", "/chat/{conversation_id}/messages/{message_id}/delete"): Right.DELETE,
    ("POST", "/chat/{conversation_id}/messages/{message_id}/rate"): Right.RATE,
    ("POST", "/chat/{conversation_id}/messages/{message_id}/fork"): Right.FORK,
    ("POST", "/settings/model"): Right.OWN_MODEL,
    ("POST", "/settings/password"): Right.PASSWORD,
    ("POST", "/settings/keys"): Right.API,
    ("POST", "/settings/data/export"): Right.EXPORT,
    ("POST", "/settings/data/delete"): Right.LEAVE,
    ("GET", "/v1/models"): Right.API,
    ("GET", "/v1/models/{model_id}"): Right.API,
    ("POST", "/v1/chat/completions"): Right.API,
}
"""Which right a route needs besides (`backend/groups/rights.py`). What depends on the form is required by the route."""

SCOPES: Final[dict[tuple[str, str], Scope]] = {
    ("GET", "/v1/models"): Scope.MODELS,
    ("GET", "/v1/models/{model_id}"): Scope.MODELS,
    ("POST", "/v1/chat/completions"): Scope.CHAT,
}
"""What a key must be for. A route for keys without a row lets none in."""


class PolicyBroken(Exception):
    """The table and the routes do not match; the process must not start."""


def check(routes: Iterable[BaseRoute]) -> None:
    """Raise PolicyBroken unless every route has a row and every row a route."""
    found = set(rows_of(routes))
    missing, idle = found - POLICY.keys(), POLICY.keys() - found
    idle |= (RIGHTS.keys() | SCOPES.keys() | FRESH) - POLICY.keys()
    if missing or idle:
        raise PolicyBroken(f"without a row: {sorted(missing)}; without a route: {sorted(idle)}")
    if unscoped := {key for key, access in POLICY.items() if access is Access.KEY} - SCOPES.keys():
        raise PolicyBroken(f"without a scope: {sorted(unscoped)}")


async def authorize(request: Request) -> None:
    """Runs before every route: finds the session, applies the table, says for whom the route's transaction will run.

    A session that is remembered costs no statement, and a route that needs no database opens no transaction.
    Where anybody may come nobody is looked up. A health check needs no database for that, and a sign-in holds no
    connection while its password is hashed, however many cookies are sent along.
    """
    key = _method(request.method), request.scope["route"].path
    access = POLICY.get(key)
    if access is None:
        raise NotFound(_("There is no page here."))
    request.state.login = request.state.viewer = request.state.acts_for = None
    address = request.client.host if request.client else ""  # the true peer, behind listed proxies only
    request.state.actor = Actor(Via.BROWSER, None, address)
    if access is Access.PUBLIC:
        return
    if access is Access.KEY:
        request.state.caller = caller = await request.state.callers.of(request.headers)
        request.state.acts_for = caller.person_id
        request.state.actor = Actor(Via.KEY, caller.person_id, address)
        if SCOPES.get(key) not in caller.scopes:
            raise OutOfScope(_("This key is not for that. Its owner can make one that is."))
        if key in RIGHTS and RIGHTS[key] not in request.state.registry.rights_of(caller.person_id):
            raise OutOfScope(_("The API is switched off for this account."))
        return
    login = await find_login(request)
    if login is None:
        raise NotSignedIn(_("Please sign in."))
    request.state.login = login
    request.state.viewer = login.viewer
    request.state.acts_for = login.viewer.id
    request.state.actor = Actor(Via.BROWSER, login.viewer.id, address)
    if access is not Access.SIGNED_IN and not _administers(login.viewer, access):
        raise NotFound(_("There is no page here."))
    if key in RIGHTS:
        rights.require(request, RIGHTS[key])
    if key in FRESH and not login.is_fresh:
        raise SignInAgain(
            _(
                "You signed in more than a quarter of an hour ago, so nothing was done. Open the link below in a new "
                "tab and confirm that it is you; then reload this page, and what you typed is sent again."
            )
        )


def _administers(viewer: Viewer, access: Access) -> bool:
    """An access that is in neither of the tables lets nobody in."""
    if access is Access.ADMINISTRATION:
        return bool(viewer.areas)
    if access is Access.ADMIN:
        return viewer.is_admin
    return _AREAS.get(access) in viewer.areas


async def find_login(request: Request) -> Login | None:
    """The session the browser's cookie names, while it lasts."""
    token = request.cookies.get(SESSION.name(request))
    if not token:
        return None
    login: Login | None = await request.state.logins.find(token, request.state.lifetime)
    return login


def rows_of(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str]]:
    """Of the routers as they were written: to ask FastAPI for its own view of them would take most of the start."""
    for route in routes:
        if included := getattr(route, "original_router", None):
            yield from rows_of(included.routes)
        elif isinstance(route, Mount):
            yield "GET", route.path
        elif isinstance(route, Route):
            yield from {(_method(method), route.path) for method in route.methods or ()}
        else:
            raise PolicyBroken(f"cannot tell what {route!r} serves")


def _method(method: str) -> str:
    return "GET" if method == "HEAD" else method

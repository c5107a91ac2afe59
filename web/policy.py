"""Who may call which route. A route without a row here does not exist: the start fails, not the night.

This table answers "may this kind of person come here at all?". Whether an object is theirs is decided where it is
loaded (`web/chat/dependencies.py`), and a stranger gets 404 from there.
"""

from collections.abc import Iterable, Iterator
from enum import Enum

from fastapi import Request
from starlette.routing import BaseRoute, Mount, Route

from backend.core.errors import NotFound, NotSignedIn
from backend.core.i18n import _
from web.cookies import SESSION
from web.logins import Login


class Access(Enum):
    PUBLIC = "anybody"
    SIGNED_IN = "anybody who is signed in"
    ADMIN = "administrators; for others the page is not there"
    KEY = "programs with an API key, in the name of its person; a cookie is not looked at"


POLICY: dict[tuple[str, str], Access] = {
    ("GET", "/healthz"): Access.PUBLIC,
    ("GET", "/readyz"): Access.PUBLIC,
    ("POST", "/csp-report"): Access.PUBLIC,
    ("GET", "/static"): Access.PUBLIC,
    # Ways in
    ("GET", "/login"): Access.PUBLIC,
    ("POST", "/login"): Access.PUBLIC,
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
    ("GET", "/settings/keys"): Access.SIGNED_IN,
    ("POST", "/settings/keys"): Access.SIGNED_IN,
    ("POST", "/settings/keys/{key_id}/revoke"): Access.SIGNED_IN,
    ("GET", "/settings/sign-in"): Access.SIGNED_IN,
    ("GET", "/settings/sign-in/{slug}/connect"): Access.SIGNED_IN,
    ("POST", "/settings/sign-in/{slug}/disconnect"): Access.SIGNED_IN,
    # The API
    ("GET", "/v1/models"): Access.KEY,
    ("GET", "/v1/models/{model_id}"): Access.KEY,
    ("POST", "/v1/chat/completions"): Access.KEY,
    # Administration
    ("GET", "/admin"): Access.ADMIN,
    ("GET", "/admin/people"): Access.ADMIN,
    ("POST", "/admin/people"): Access.ADMIN,
    ("POST", "/admin/people/{person_id}/link"): Access.ADMIN,
    ("POST", "/admin/people/{person_id}/role"): Access.ADMIN,
    ("POST", "/admin/people/{person_id}/disable"): Access.ADMIN,
    ("POST", "/admin/people/{person_id}/enable"): Access.ADMIN,
    ("GET", "/admin/sign-in/providers"): Access.ADMIN,
    ("POST", "/admin/sign-in/providers"): Access.ADMIN,
    ("GET", "/admin/sign-in/providers/new"): Access.ADMIN,
    ("GET", "/admin/sign-in/providers/{provider_id}"): Access.ADMIN,
    ("POST", "/admin/sign-in/providers/{provider_id}"): Access.ADMIN,
    ("GET", "/admin/sign-in/providers/{provider_id}/test"): Access.ADMIN,
    ("POST", "/admin/sign-in/providers/{provider_id}/enable"): Access.ADMIN,
    ("POST", "/admin/sign-in/providers/{provider_id}/disable"): Access.ADMIN,
    ("POST", "/admin/sign-in/providers/{provider_id}/remove"): Access.ADMIN,
    ("GET", "/admin/engines"): Access.ADMIN,
    ("POST", "/admin/engines"): Access.ADMIN,
    ("POST", "/admin/engines/test"): Access.ADMIN,
    ("GET", "/admin/engines/{engine_id}"): Access.ADMIN,
    ("POST", "/admin/engines/{engine_id}"): Access.ADMIN,
    ("POST", "/admin/engines/{engine_id}/test"): Access.ADMIN,
    ("POST", "/admin/engines/{engine_id}/drain"): Access.ADMIN,
    ("POST", "/admin/engines/{engine_id}/undrain"): Access.ADMIN,
    ("POST", "/admin/engines/{engine_id}/load"): Access.ADMIN,
    ("POST", "/admin/engines/{engine_id}/unload"): Access.ADMIN,
    ("POST", "/admin/engines/{engine_id}/enable"): Access.ADMIN,
    ("POST", "/admin/engines/{engine_id}/disable"): Access.ADMIN,
    ("POST", "/admin/engines/{engine_id}/remove"): Access.ADMIN,
    ("POST", "/admin/deployments/{deployment_id}/publish"): Access.ADMIN,
    ("POST", "/admin/models/{model_id}/unpublish"): Access.ADMIN,
    ("GET", "/admin/bench"): Access.ADMIN,
    ("POST", "/admin/bench"): Access.ADMIN,
    ("GET", "/admin/bench/{run_id}"): Access.ADMIN,
    ("GET", "/admin/bench/{run_id}/record"): Access.ADMIN,
    ("GET", "/admin/bench/{run_id}/picture"): Access.ADMIN,
    ("POST", "/admin/bench/{run_id}/cancel"): Access.ADMIN,
    ("POST", "/admin/bench/{run_id}/delete"): Access.ADMIN,
    ("GET", "/admin/capacity"): Access.ADMIN,
    ("GET", "/admin/models"): Access.ADMIN,
    ("POST", "/admin/models"): Access.ADMIN,
    ("GET", "/admin/models/{model_id}"): Access.ADMIN,
    ("POST", "/admin/models/{model_id}"): Access.ADMIN,
    ("POST", "/admin/models/{model_id}/move"): Access.ADMIN,
    ("POST", "/admin/models/{model_id}/publish"): Access.ADMIN,
    ("POST", "/admin/models/{model_id}/trial"): Access.ADMIN,
    ("POST", "/admin/models/{model_id}/promote"): Access.ADMIN,
    ("POST", "/admin/models/{model_id}/roll-back"): Access.ADMIN,
    ("POST", "/admin/deployments/{deployment_id}/try"): Access.ADMIN,
    ("POST", "/admin/deployments/{deployment_id}/restore"): Access.ADMIN,
    ("POST", "/admin/deployments/{deployment_id}/pin"): Access.ADMIN,
    ("POST", "/admin/deployments/{deployment_id}/unpin"): Access.ADMIN,
    ("GET", "/admin/groups"): Access.ADMIN,
    ("POST", "/admin/groups"): Access.ADMIN,
    ("GET", "/admin/groups/{group_id}"): Access.ADMIN,
    ("POST", "/admin/groups/{group_id}"): Access.ADMIN,
    ("POST", "/admin/groups/{group_id}/remove"): Access.ADMIN,
    ("POST", "/admin/groups/{group_id}/members/{person_id}/add"): Access.ADMIN,
    ("POST", "/admin/groups/{group_id}/members/{person_id}/remove"): Access.ADMIN,
}


class PolicyBroken(Exception):
    """The table and the routes do not match; the process must not start."""


def check(routes: Iterable[BaseRoute]) -> None:
    """Raise PolicyBroken unless every route has a row and every row a route."""
    found = set(_keys(routes))
    missing, idle = found - POLICY.keys(), POLICY.keys() - found
    if missing or idle:
        raise PolicyBroken(f"without a row: {sorted(missing)}; without a route: {sorted(idle)}")


async def authorize(request: Request) -> None:
    """Runs before every route: finds the session, applies the table, says for whom the route's transaction will run.

    A session that is remembered costs no statement, and a route that needs no database opens no transaction.
    Where anybody may come nobody is looked up. A health check needs no database for that, and a sign-in holds no
    connection while its password is hashed, however many cookies are sent along.
    """
    access = POLICY.get((_method(request.method), request.scope["route"].path))
    if access is None:
        raise NotFound(_("There is no page here."))
    request.state.login = request.state.viewer = request.state.acts_for = None
    if access is Access.PUBLIC:
        return
    if access is Access.KEY:
        request.state.caller = caller = await request.state.callers.of(request.headers)
        request.state.acts_for = caller.person_id
        return
    login = await find_login(request)
    if login is None:
        raise NotSignedIn(_("Please sign in."))
    request.state.login = login
    request.state.viewer = login.viewer
    request.state.acts_for = login.viewer.id
    if access is Access.ADMIN and not login.viewer.is_admin:
        raise NotFound(_("There is no page here."))


async def find_login(request: Request) -> Login | None:
    """The session the browser's cookie names, while it lasts."""
    token = request.cookies.get(SESSION.name(request))
    if not token:
        return None
    login: Login | None = await request.state.logins.find(token, request.state.lifetime)
    return login


def _keys(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str]]:
    """Of the routers as they were written: to ask FastAPI for its own view of them would take most of the start."""
    for route in routes:
        if included := getattr(route, "original_router", None):
            yield from _keys(included.routes)
        elif isinstance(route, Mount):
            yield "GET", route.path
        elif isinstance(route, Route):
            yield from {(_method(method), route.path) for method in route.methods or ()}
        else:
            raise PolicyBroken(f"cannot tell what {route!r} serves")


def _method(method: str) -> str:
    return "GET" if method == "HEAD" else method

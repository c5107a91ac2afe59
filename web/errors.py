"""Failures to replies: a page for a page, a toast for a fragment, and a way back in when the session ended."""

import logging
from urllib.parse import quote, urlsplit

import psycopg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from psycopg.errors import ForeignKeyViolation
from sqlalchemy.exc import DBAPIError, NoResultFound, TimeoutError as PoolTimeout
from sqlalchemy.orm.exc import StaleDataError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Scope

from backend.core.clock import now
from backend.core.db import is_gone
from backend.core.errors import AppError, BadInput, NotFound, NotSignedIn, TooLarge, Unavailable
from backend.core.i18n import _
from web.api import errors as api
from web.policy import SignInAgain
from web.rendering import page, partial

log = logging.getLogger(__name__)

_HEADINGS = {
    401: _("You are signed out"),
    403: _("This was not done"),
    404: _("There is nothing here"),
    405: _("This was not done"),
    409: _("This was not done"),
    413: _("This is too large"),
    422: _("This cannot be used"),
    429: _("Too many at once"),
    503: _("Parley is not ready"),
}


def install(app: FastAPI) -> None:
    app.add_exception_handler(AppError, explain)
    app.add_exception_handler(HTTPException, _explain_http)
    app.add_exception_handler(RequestValidationError, _explain_invalid)
    app.add_exception_handler(DBAPIError, _explain_database)
    app.add_exception_handler(PoolTimeout, _explain_database)
    app.add_exception_handler(psycopg.OperationalError, _explain_database)
    app.add_exception_handler(psycopg.InterfaceError, _explain_database)
    app.add_exception_handler(StaleDataError, _explain_gone)
    app.add_exception_handler(NoResultFound, _explain_gone)


def error_page(scope: Scope, error: AppError | None) -> ASGIApp:
    """For the gate, outside of every route; None is a fault of ours."""
    return respond(Request(scope), error or _Fault(_("Something went wrong on our side. Nothing you wrote is lost.")))


async def explain(request: Request, error: Exception) -> Response:
    assert isinstance(error, AppError)
    return respond(request, error)


def respond(request: Request, error: AppError) -> Response:
    if api.is_for(request.scope):
        return api.problem_of(error).reply()
    if isinstance(error, NotSignedIn):
        response = _ask_to_sign_in(request)
    elif isinstance(error, SignInAgain) and request.method in ("GET", "HEAD"):
        response = RedirectResponse(f"/login/again?next={quote(_here(request))}", status_code=303)
    elif request.headers.get("hx-request"):
        response = _toast(request, error)
    else:
        response = _page(request, error)
    if error.retry_after is not None:
        response.headers["retry-after"] = str(error.retry_after)
    return response


def safe_next(target: str) -> str:
    """`target` when it is a path of ours, else the start page: a link to sign in must not lead elsewhere."""
    plain = target.startswith("/") and not target.startswith("//") and "\\" not in target
    return target if plain and target.isprintable() else "/"


class _Fault(AppError):
    status = 500


def _ask_to_sign_in(request: Request) -> Response:
    """A page goes to sign-in and back; a stream or a send keeps the page and shows the way in beside it."""
    reads = request.method in ("GET", "HEAD")
    # To a stream no redirect may be sent. htmx says of every request that it takes one, so there the path tells.
    asks_for_stream = "text/event-stream" in request.headers.get("accept", "")
    streams = request.url.path.endswith("/events") or (asks_for_stream and not request.headers.get("hx-request"))
    if not request.headers.get("hx-request") and not streams:
        if reads:
            return RedirectResponse(f"/login?next={quote(_here(request))}", status_code=303)
        return _page(request, NotSignedIn(_("You were signed out meanwhile, so nothing was done. Please sign in.")))
    shown = _path_of(request.headers.get("hx-current-url", ""))
    if reads and not streams:
        return Response(status_code=401, headers={"HX-Redirect": f"/login?next={quote(shown)}"})
    return Response(status_code=401, headers={"HX-Reswap": "none", "HX-Trigger": "parley:signed-out"})


def _path_of(address: str) -> str:
    """Which of our pages an address is; the start page for garbage."""
    try:
        return safe_next(urlsplit(address).path)
    except ValueError:
        return "/"


def _toast(request: Request, error: AppError) -> Response:
    toast = partial(request, "_toast.html", status=error.status, message=str(error), serious=error.status >= 500)
    toast.headers.update({"HX-Retarget": "#toasts", "HX-Reswap": "beforeend"})
    return toast


def _page(request: Request, error: AppError) -> Response:
    return page(
        request,
        "error.html",
        status=error.status,
        status_code=error.status,
        heading=_HEADINGS.get(error.status, _("Something went wrong")),
        sentence=str(error),
        ways=_ways_on(request, error),
        moment=now(),
    )


def _ways_on(request: Request, error: AppError) -> list[tuple[str, str]]:
    if isinstance(error, SignInAgain):
        back = _path_of(request.headers.get("referer", ""))
        return [(_("Confirm that it is you"), f"/login/again?next={quote(back)}"), (_("Back"), back)]
    if isinstance(error, NotSignedIn):
        return [(_("Sign in"), "/login")]
    return [(_("New chat"), "/")]


def _here(request: Request) -> str:
    return safe_next(request.url.path + (f"?{request.url.query}" if request.url.query else ""))


async def _explain_http(request: Request, error: Exception) -> Response:
    """What Starlette, FastAPI and the gate raise: no such page, wrong method, a body that is too large or broken."""
    assert isinstance(error, HTTPException)
    sentences: dict[int, AppError] = {
        404: NotFound(_("There is no page here.")),
        405: _WrongMethod(_("This address does not take that kind of request.")),
        413: TooLarge(_("This is too large to send. Please shorten it; your text is kept.")),
    }
    response = respond(request, sentences.get(error.status_code, BadInput(_("This request could not be read."))))
    response.headers.update(error.headers or {})  # which methods a 405 would take
    return response


async def _explain_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    fields = sorted({str(problem["loc"][-1]) for problem in error.errors() if problem["loc"]})
    if all(problem["loc"][0] == "path" for problem in error.errors()):
        return respond(request, NotFound(_("There is nothing here.")))
    return respond(request, BadInput(_("Something is missing or wrong: {fields}.").format(fields=", ".join(fields))))


async def _explain_database(request: Request, error: Exception) -> Response:
    if isinstance(error, DBAPIError) and isinstance(error.orig, ForeignKeyViolation):
        return await _explain_gone(request, error)
    if isinstance(error, DBAPIError) and not is_gone(error):
        raise error
    log.warning("the database is away: %s", type(error).__name__)
    return respond(
        request,
        Unavailable(
            _("The database does not answer right now. Nothing was lost; try again in a moment."), retry_after=5
        ),
    )


async def _explain_gone(request: Request, _error: Exception) -> Response:
    """A row that was there when it was loaded, and not any more when it was written."""
    return respond(request, NotFound(_("It was deleted in the meantime, so nothing was done.")))


class _WrongMethod(AppError):
    status = 405

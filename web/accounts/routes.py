"""The ways in and out, and one's own settings. What happens on a way in is told in `backend/accounts/entrance.py`."""

from functools import cache
from typing import Annotated, Any
from zoneinfo import available_timezones

from fastapi import APIRouter, Depends, Form, Query, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.accounts import entrance, service, strength
from backend.accounts.entrance import JOINING
from backend.accounts.models import OneTimeLink, Purpose, Theme, User
from backend.accounts.service import EmailTaken, LinkEnded
from backend.core.clock import now
from backend.core.db import Session
from backend.core.errors import BadInput
from backend.core.i18n import _, ngettext
from backend.core.text import clean, one_line
from backend.engines import publishing, queries as models
from backend.engines.registry import Registry
from backend.groups.rights import Right
from backend.identity import entrance as company
from web import policy
from web.accounts.arriving import Arriving, kept_secret, let_in, sign_in_page, take_secret
from web.chat.sidebar import load_sidebar
from web.cookies import SESSION
from web.dependencies import DeploymentSettings, Models, OwnRow
from web.errors import safe_next
from web.forms import plain_form
from web.rendering import find_zone, page
from web.rights import require

router = APIRouter(dependencies=[Depends(plain_form)])

# Signing in and out


@router.get("/login")
async def show_sign_in(
    request: Request, session: Session, target: Annotated[str, Query(alias="next")] = "/", out: str = ""
) -> Response:
    """`out` is the company sign-in by which somebody came who has just signed out here."""
    if await policy.find_login(request):
        return RedirectResponse(safe_next(target), status_code=303)
    notice = None
    if not await service.has_admin(session):
        notice = _(
            "Parley has no administrator yet. Run “parley setup-link” on the server and open the link that it prints."
        )
    await session.commit()  # the page asks for the ways in on a connection of its own
    return await sign_in_page(request, target, notice=notice, out=out)


@router.post("/login")
async def sign_in(
    request: Request,
    arrival: Arriving,
    email: Annotated[str, Form()],
    password: Annotated[str, Form()],
    target: Annotated[str, Form(alias="next")] = "/",
) -> Response:
    """One sentence for every reason, so that nobody learns who has an account here."""
    entry = await entrance.sign_in(arrival, email, password)
    if entry:
        return let_in(request, entry, safe_next(target))
    error = _("Email or password is wrong. After several tries, wait a minute before the next one.")
    return await sign_in_page(request, target, email=clean(email), error=error)


@router.post("/logout")
async def sign_out(request: Request, session: Session, settings: DeploymentSettings) -> Response:
    """Drafts and whatever a browser kept go, too, where browsers listen to that: over https, and on this machine."""
    token = request.cookies.get(SESSION.name(request))
    provider = None
    if token:
        provider = await company.signed_in_by(session, token)
        await entrance.sign_out(session, token)
    # A form may not lead to another site (`form-action`), so the page offers a link there.
    response = RedirectResponse(f"/login?out={provider}" if provider else "/login", status_code=303)
    SESSION.clear(request, response)
    if settings.is_https or settings.is_loopback:
        response.headers["clear-site-data"] = '"cache", "storage"'
    return response


# The first administrator


@router.get("/setup")
async def show_setup(request: Request, session: Session, registry: Models, secret: str | None = None) -> Response:
    try:
        if secret is not None:
            return take_secret(request, secret, "/setup")
        link = await entrance.find_link(session, kept_secret(request), Purpose.SETUP)
    except LinkEnded:
        return _ended(request, "setup")
    return _setup_page(request, registry, link)


@router.post("/setup")
async def set_up(
    request: Request,
    arrival: Arriving,
    registry: Models,
    name: Annotated[str, Form()] = "",
    email: Annotated[str, Form()] = "",
    company: Annotated[str, Form()] = "",
    password: Annotated[str, Form()] = "",
) -> Response:
    secret = kept_secret(request)
    company = one_line(company, 100)
    typed = {"name": clean(name), "email": clean(email), "company_name": company}
    try:
        async with arrival.db.begin() as session:
            link = await entrance.find_link(session, secret, Purpose.SETUP)
        if errors := _wrong_setup(name, email, company, password):
            return _setup_page(request, registry, link, typed, errors)
        try:
            token = await entrance.set_up(arrival, secret, name=name, email=email, company=company, password=password)
        except EmailTaken as taken:
            return _setup_page(request, registry, link, typed, {"email": str(taken)})
    except LinkEnded:
        return _ended(request, "setup")
    request.state.company.name = company
    return let_in(request, token, "/")


def _wrong_setup(name: str, email: str, company: str, password: str) -> dict[str, str]:
    sentence = strength.weakness(password, is_admin=True, about=(name, email, company))
    wrong = service.wrong_fields(name, email) | ({"password": sentence} if sentence else {})
    return wrong if company else wrong | {"company": _("Please enter a name.")}


def _setup_page(
    request: Request,
    registry: Registry,
    link: OneTimeLink,
    typed: dict[str, str] | None = None,
    errors: dict[str, str] | None = None,
) -> HTMLResponse:
    return page(
        request,
        "accounts/setup.html",
        status=422 if errors else 200,
        **(typed or {"name": "", "email": "", "company_name": ""}),
        errors=errors or {},
        least=strength.MIN_LENGTH_OF_ADMINS,
        steps=_steps(registry),
        minutes_left=max(1, round((link.expires_at - now()).total_seconds() / 60)),
    )


def _steps(registry: Registry) -> list[tuple[str, str, str]]:
    """How far the set-up is: a state (good, now, later), a picture and a line for each step."""
    return [
        ("good", "check", _("Database ready")),
        _engine_step(registry),
        ("now", "people", _("First administrator")),
        ("later", "engine", _("More engines and models")),
    ]


def _engine_step(registry: Registry) -> tuple[str, str, str]:
    models = len([offer for offer in registry.offers if offer.available])
    if not models:
        return "later", "engine", _("No engine with a model has answered yet")
    found = ngettext("{count} model is ready", "{count} models are ready", models)
    return "good", "check", found.format(count=models)


# A link for a password


@router.get("/join")
async def show_join(request: Request, session: Session, secret: str | None = None) -> Response:
    try:
        if secret is not None:
            return take_secret(request, secret, "/join")
        link = await entrance.find_link(session, kept_secret(request), *JOINING)
    except LinkEnded:
        return _ended(request, "join")
    return _join_page(request, link, {})


@router.post("/join")
async def join(request: Request, arrival: Arriving, password: Annotated[str, Form()] = "") -> Response:
    secret = kept_secret(request)
    try:
        async with arrival.db.begin() as session:
            link = await entrance.find_link(session, secret, *JOINING)
        assert link.user is not None
        if errors := _weakness(request, "password", password, link.user):
            return _join_page(request, link, errors)
        token = await entrance.join(arrival, secret, password)
    except LinkEnded:
        return _ended(request, "join")
    return let_in(request, token, "/")


def _join_page(request: Request, link: OneTimeLink, errors: dict[str, str]) -> HTMLResponse:
    return page(
        request,
        "accounts/join.html",
        status=422 if errors else 200,
        person=link.user,
        purpose=link.purpose,
        least=strength.least_length(is_admin=link.user is not None and link.user.is_admin),
        errors=errors,
    )


def _ended(request: Request, kind: str) -> HTMLResponse:
    return page(request, "accounts/link_ended.html", status=410, kind=kind)


def _weakness(request: Request, field: str, password: str, person: User) -> dict[str, str]:
    sentence = service.password_weakness(password, person, request.state.company.name)
    return {field: sentence} if sentence else {}


# One's own settings


@router.get("/settings")
async def settings_page(request: Request, user: OwnRow, session: Session, saved: str = "") -> HTMLResponse:
    told = saved if saved in ("profile", "password", "model") else None
    return await _settings_page(request, session, user, saved=told)


@router.post("/settings")
async def save_profile(
    request: Request,
    user: OwnRow,
    session: Session,
    name: Annotated[str, Form()] = "",
    time_zone: Annotated[str, Form()] = "",
) -> Response:
    """No time zone is the one of the browser."""
    errors = {}
    if not service.clean_name(name):
        errors["name"] = _("Please enter a name.")
    if time_zone and not find_zone(time_zone):
        errors["time_zone"] = _("There is no such time zone.")
    if errors:
        return await _settings_page(request, session, user, errors=errors, name=clean(name), time_zone=clean(time_zone))
    if service.clean_name(name) != user.name:
        require(request, Right.NAME)
    await service.change_profile(session, user, name=name, time_zone=time_zone or None)
    return RedirectResponse("/settings?saved=profile", status_code=303)


@router.post("/settings/theme")
async def choose_theme(
    request: Request,
    user: OwnRow,
    session: Session,
    theme: Annotated[Theme, Form()],
    target: Annotated[str, Form(alias="next")] = "/settings",
) -> Response:
    """For a script there is nothing to draw: it has changed the colours already, and a running answer stays in view."""
    await service.choose_theme(session, user, theme)
    if request.headers.get("hx-request"):
        return Response(status_code=204)
    return RedirectResponse(safe_next(target), status_code=303)


@router.post("/settings/model")
async def choose_model(
    request: Request, user: OwnRow, session: Session, registry: Models, model: Annotated[str, Form()] = ""
) -> Response:
    """What this person's new chats begin with; nothing is what the administrators chose."""
    try:
        chosen = publishing.named(model)
        if chosen and registry.offer_for(user.id, chosen) is None:
            raise BadInput(gone := _("This model is not here any more. Choose another one."), fields={"model": gone})
        async with session.begin_nested():
            await publishing.choose_default(session, chosen, person_id=user.id)
    except BadInput as error:
        return await _settings_page(request, session, user, errors=error.fields)
    return RedirectResponse("/settings?saved=model", status_code=303)


@router.post("/settings/password")
async def change_password(
    request: Request,
    user: OwnRow,
    session: Session,
    arrival: Arriving,
    current_password: Annotated[str, Form()] = "",
    new_password: Annotated[str, Form()] = "",
) -> Response:
    """Every other browser is signed out, and this one gets a new session."""
    await session.commit()  # hashing takes long, and no connection is held meanwhile
    errors = _weakness(request, "new_password", new_password, user)
    if not errors:
        token = await entrance.change_password(arrival, user, current_password, new_password)
        if token:
            return let_in(request, token, "/settings?saved=password")
        errors["current_password"] = _(
            "This is not your password. After several tries, wait a minute before the next one."
        )
    async with arrival.db.as_person(user.id) as again:
        return await _settings_page(request, again, user, errors=errors)


async def _settings_page(
    request: Request,
    session: AsyncSession,
    user: User,
    *,
    errors: dict[str, str] | None = None,
    saved: str | None = None,
    **typed: str,
) -> HTMLResponse:
    shown: dict[str, Any] = {"name": user.name, "time_zone": user.time_zone or ""} | typed
    own = await session.scalar(models.default_of(person_id=user.id))
    return page(
        request,
        "accounts/settings.html",
        status=422 if errors else 200,
        errors=errors or {},
        saved=saved,
        zones=_zones(),
        models=request.state.registry.offers_for(user.id),
        least=strength.least_length(is_admin=user.is_admin),
        own_model=own.model_id if own else None,
        **shown,
        **await load_sidebar(request, session, request.state.viewer, current=None),
    )


@cache
def _zones() -> list[str]:
    """The names a person would look for: a region and a city."""
    return sorted(zone for zone in available_timezones() if "/" in zone and not zone.startswith(("Etc/", "SystemV/")))

"""Administration: who may use Parley."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.accounts import queries, service
from backend.accounts.models import Area, Purpose, Role, User
from backend.accounts.service import EmailTaken
from backend.core.clock import now
from backend.core.db import Session
from backend.core.errors import AppError, BadInput, Conflict, Forbidden
from backend.core.text import clean
from web.dependencies import CurrentUser, DeploymentSettings
from web.forms import plain_form
from web.rendering import page
from web.viewer import Viewer

router = APIRouter(dependencies=[Depends(plain_form)])


@dataclass(frozen=True)
class PersonRow:
    id: UUID
    name: str
    email: str
    role: Role
    areas: frozenset[Area]
    state: str  # active, invited, disabled
    last_seen: datetime | None
    is_self: bool
    may_change: bool


@dataclass(frozen=True)
class NewLink:
    """A one-time link, on the only page that ever shows it."""

    name: str
    purpose: Purpose
    url: str
    expires_at: datetime


@dataclass(frozen=True)
class AddForm:
    """What was typed into the form that adds a person."""

    name: str = ""
    email: str = ""
    role: Role = Role.MEMBER


async def _person(person_id: UUID, user: CurrentUser, session: Session) -> User:
    """Whom the viewer may change, held until the transaction ends."""
    person = await service.find_person(session, person_id)
    await service.require_authority(session, user.id, person)
    return person


Person = Annotated[User, Depends(_person)]


@router.get("/admin/people")
async def people(request: Request, user: CurrentUser, session: Session) -> HTMLResponse:
    return await _page(request, session, user)


@router.post("/admin/people")
async def add(
    request: Request,
    user: CurrentUser,
    session: Session,
    settings: DeploymentSettings,
    role: Annotated[Role, Form()],
    name: Annotated[str, Form()] = "",
    email: Annotated[str, Form()] = "",
) -> HTMLResponse:
    """The reply shows the link with which the new person chooses a password."""
    try:
        async with session.begin_nested():
            if role is Role.ADMIN:
                await service.require_authority(session, user.id)
            person = await service.add_person(session, name=name, email=email, role=role)
    except (BadInput, EmailTaken, Forbidden) as error:
        wrong = error.fields if isinstance(error, BadInput) else {"email": str(error)}
        form = AddForm(clean(name), clean(email), role)
        return await _page(request, session, user, status=error.status, errors=wrong, form=form)
    link = await _new_link(session, settings.origin, person)
    return await _page(request, session, user, link=link)


@router.post("/admin/people/{person_id}/link")
async def new_link(
    request: Request, person: Person, user: CurrentUser, session: Session, settings: DeploymentSettings
) -> HTMLResponse:
    """Earlier links of the person stop working; a password they have works until they choose the new one."""
    try:
        link = await _new_link(session, settings.origin, person)
    except Conflict as conflict:
        return await _refused(request, session, user, conflict)
    return await _page(request, session, user, link=link)


@router.post("/admin/people/{person_id}/role")
async def change_role(
    request: Request,
    person: Person,
    user: CurrentUser,
    session: Session,
    role: Annotated[Role, Form()],
) -> Response:
    """A member administers nothing afterwards; areas are chosen on the page of the person."""
    try:
        await service.change_role(session, person, role)
    except Conflict as conflict:
        return await _refused(request, session, user, conflict)
    return _done(person, user)


@router.post("/admin/people/{person_id}/disable")
async def disable(request: Request, person: Person, user: CurrentUser, session: Session) -> Response:
    try:
        await service.disable(session, person)
    except Conflict as conflict:
        return await _refused(request, session, user, conflict)
    return _done(person, user)


@router.post("/admin/people/{person_id}/enable")
async def enable(person: Person, user: CurrentUser, session: Session) -> Response:
    await service.enable(session, person)
    return _done(person, user)


@router.post("/admin/people/{person_id}/second-factor")
async def reset_second_factor(person: Person, user: CurrentUser, session: Session) -> Response:
    """For somebody who lost their telephone: the password is enough until they have a new one, where they must."""
    await service.reset_second_factor(session, person)
    return _done(person, user)


def _done(person: User, user: Viewer) -> Response:
    """Who changed themselves was signed out by it, and is perhaps no administrator any more."""
    return RedirectResponse("/" if person.id == user.id else "/admin/people", status_code=303)


async def _new_link(session: AsyncSession, origin: str, person: User) -> NewLink:
    purpose = Purpose.INVITATION if person.password_hash is None else Purpose.RESET
    secret = await service.make_link(session, purpose, person)
    expires_at = now() + service.LIFETIMES[purpose]
    return NewLink(person.name, purpose, f"{origin}/join?secret={secret}", expires_at)


async def _refused(request: Request, session: AsyncSession, user: Viewer, error: AppError) -> HTMLResponse:
    return await _page(request, session, user, status=error.status, problem=str(error))


async def _page(
    request: Request,
    session: AsyncSession,
    user: Viewer,
    *,
    status: int = 200,
    link: NewLink | None = None,
    problem: str | None = None,
    errors: dict[str, str] | None = None,
    form: AddForm | None = None,
) -> HTMLResponse:
    return page(
        request,
        "admin/people.html",
        status=status,
        people=[_row(person, user) for person in await session.scalars(queries.everybody())],
        link=link,
        problem=problem,
        errors=errors or {},
        form=form or AddForm(),
    )


def _row(person: User, user: Viewer) -> PersonRow:
    has_come = person.password_hash is not None or person.last_seen_at is not None  # also by the company's sign-in
    state = "disabled" if person.disabled_at else "active" if has_come else "invited"
    return PersonRow(
        id=person.id,
        name=person.name,
        email=person.email,
        role=person.role,
        areas=person.administers,
        state=state,
        last_seen=person.last_seen_at,
        is_self=person.id == user.id,
        may_change=user.is_admin or not person.administers,
    )

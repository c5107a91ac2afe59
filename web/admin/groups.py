"""Administration: people together, for what they may use and how much of it they get."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.accounts import service as accounts
from backend.accounts.models import Area, User
from backend.core.db import Session
from backend.core.errors import AppError, BadInput, Conflict, NotFound
from backend.core.i18n import _
from backend.core.text import clean, one_line
from backend.engines import publishing, queries as models
from backend.groups import queries, rights, service
from backend.groups.models import Group, Origin
from backend.groups.rights import MEANINGS, Right
from web.dependencies import CurrentUser
from web.forms import Choice, plain_form
from web.rendering import page

router = APIRouter(dependencies=[Depends(plain_form)])

_MOST_FOUND = 20
_MOST_SHOWN = 200


@dataclass(frozen=True)
class GroupRow:
    id: UUID
    name: str
    weight: int
    size: int
    parent: str
    by_directory: bool


@dataclass(frozen=True)
class MemberRow:
    id: UUID
    name: str
    email: str
    is_member: bool
    by_directory: bool  # put there by it, and taken out by it alone


@dataclass(frozen=True)
class GroupForm:
    """What was typed into the form that changes a group."""

    name: str
    weight: str
    model: str


async def _group(group_id: UUID, session: Session) -> Group:
    return await service.find(session, group_id)


async def _person(person_id: UUID, session: Session) -> User:
    return await accounts.find_person(session, person_id)


OneGroup = Annotated[Group, Depends(_group)]
Person = Annotated[User, Depends(_person)]


@router.get("/admin/groups")
async def groups(request: Request, session: Session) -> HTMLResponse:
    return await _list(request, session)


@router.post("/admin/groups")
async def add(request: Request, session: Session, name: Annotated[str, Form()] = "") -> Response:
    try:
        async with session.begin_nested():
            group = await service.create(session, name)
    except AppError as error:
        wrong = error.fields if isinstance(error, BadInput) else {"name": str(error)}
        return await _list(request, session, status=error.status, errors=wrong, name=clean(name))
    return RedirectResponse(f"/admin/groups/{group.id}", status_code=303)


@router.get("/admin/groups/{group_id}")
async def one(request: Request, group: OneGroup, session: Session, q: str = "", saved: str = "") -> HTMLResponse:
    """With `q` also the people whom it finds, to be added."""
    return await _page(request, session, group, q=q, saved=bool(saved))


@router.post("/admin/groups/{group_id}")
async def change(
    request: Request,
    group: OneGroup,
    user: CurrentUser,
    session: Session,
    name: Annotated[str, Form()] = "",
    weight: Annotated[str, Form()] = "",
    model: Annotated[str, Form()] = "",
) -> Response:
    """`model` is what new chats of its members begin with, or nothing; who administers no models leaves it as it is."""
    try:
        async with session.begin_nested():
            await service.change(session, group, name=name, weight=weight)
            if Area.MODELS in user.areas:
                await publishing.choose_default(session, publishing.named(model), group_id=group.id)
    except BadInput as error:
        await session.refresh(group)
        form = GroupForm(clean(name), clean(weight), clean(model))
        return await _page(request, session, group, status=error.status, errors=error.fields, form=form)
    return RedirectResponse(f"/admin/groups/{group.id}?saved=1", status_code=303)


@router.post("/admin/groups/{group_id}/rights")
async def allow(request: Request, group: OneGroup, session: Session) -> Response:
    """What its members may do, whatever everybody may."""
    form = await request.form()
    await service.allow(session, group, [right for right in Right if f"right-{right}" in form])
    return RedirectResponse(f"/admin/groups/{group.id}?saved=1", status_code=303)


@router.post("/admin/groups/{group_id}/parent")
async def put_into(
    request: Request, group: OneGroup, session: Session, parent: Annotated[str, Form()] = ""
) -> Response:
    """In another group, or nothing for none."""
    try:
        async with session.begin_nested():
            await service.put_into(session, group, await _named(session, parent))
    except (BadInput, Conflict) as error:
        await session.refresh(group)
        wrong = error.fields if isinstance(error, BadInput) else {"parent": str(error)}
        return await _page(request, session, group, status=error.status, errors=wrong)
    return RedirectResponse(f"/admin/groups/{group.id}?saved=1", status_code=303)


async def _named(session: AsyncSession, parent: str) -> Group | None:
    if not parent:
        return None
    try:
        return await service.find(session, UUID(parent))
    except (ValueError, NotFound) as error:
        gone = _("There is no such group.")
        raise BadInput(gone, fields={"parent": gone}) from error


@router.post("/admin/groups/{group_id}/remove")
async def remove(group: OneGroup, session: Session) -> Response:
    await service.remove(session, group)
    return RedirectResponse("/admin/groups", status_code=303)


@router.post("/admin/groups/{group_id}/members/{person_id}/add")
async def add_member(group: OneGroup, person: Person, session: Session) -> Response:
    await service.add_member(session, group, person)
    return RedirectResponse(f"/admin/groups/{group.id}#members", status_code=303)


@router.post("/admin/groups/{group_id}/members/{person_id}/remove")
async def remove_member(group: OneGroup, person: Person, session: Session) -> Response:
    await service.remove_member(session, group, person)
    return RedirectResponse(f"/admin/groups/{group.id}#members", status_code=303)


async def _list(
    request: Request,
    session: AsyncSession,
    *,
    status: int = 200,
    errors: dict[str, str] | None = None,
    name: str = "",
) -> HTMLResponse:
    sizes: dict[UUID, int] = dict((await session.execute(queries.sizes())).all())
    found = (await session.scalars(queries.everything())).all()
    names = {group.id: group.name for group in found}
    return page(
        request,
        "admin/groups.html",
        status=status,
        groups=[_group_row(group, sizes, names) for group in found],
        errors=errors or {},
        name=name,
    )


def _group_row(group: Group, sizes: dict[UUID, int], names: dict[UUID, str]) -> GroupRow:
    parent = names[group.parent_id] if group.parent_id else ""
    by_directory = group.source is Origin.DIRECTORY
    return GroupRow(group.id, group.name, group.weight, sizes.get(group.id, 0), parent, by_directory)


async def _page(
    request: Request,
    session: AsyncSession,
    group: Group,
    *,
    status: int = 200,
    q: str = "",
    saved: bool = False,
    errors: dict[str, str] | None = None,
    form: GroupForm | None = None,
) -> HTMLResponse:
    words = one_line(q, 100)
    members = (await session.execute(queries.members(group.id).limit(_MOST_SHOWN + 1))).all()
    every = (await session.scalars(queries.everything())).all()
    within = [other for other in every if other.parent_id == group.id]
    default = await session.scalar(models.default_of(group_id=group.id))
    return page(
        request,
        "admin/group.html",
        status=status,
        group=group,
        form=form or GroupForm(group.name, str(group.weight), str(default.model_id) if default else ""),
        errors=errors or {},
        saved=saved,
        members=[_row(person, source) for person, source in members[:_MOST_SHOWN]],
        has_more=len(members) > _MOST_SHOWN,
        q=words,
        by_directory=group.source is Origin.DIRECTORY,
        within=within,
        parents=[
            Choice(str(other.id), other.name, other.id == group.parent_id)
            for other in every
            if other.parent_id is None and other.id != group.id and not within
        ],
        rights=[Choice(right.value, MEANINGS[right], right in rights.of_group(group)) for right in Right],
        everybody=request.state.registry.everybody_may,
        found=await _found(session, group, words),
        models=[
            (str(model.id), model.name)
            for model in await session.scalars(models.models())
            if model.published and model.retired_at is None
        ],
    )


async def _found(session: AsyncSession, group: Group, words: str) -> Sequence[MemberRow]:
    if not words:
        return ()
    people = (await session.scalars(queries.people_like(words).limit(_MOST_FOUND))).all()
    among = await session.execute(queries.members_among(group.id, [person.id for person in people]))
    inside: dict[UUID, Origin] = dict(among.all())
    return [_row(person, inside.get(person.id)) for person in people]


def _row(person: User, source: Origin | None) -> MemberRow:
    """With who put them into the group; None for somebody who is not in it."""
    return MemberRow(person.id, person.name, person.email, source is not None, source is Origin.DIRECTORY)

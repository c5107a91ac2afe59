"""Administration: one person, as far as administrators may see. What they write is not on these pages, nor its titles.

What the page says they could see is decided by the same functions as when they ask themselves.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.accounts import queries as people, service as accounts
from backend.accounts.models import Area, Role, User
from backend.accounts.sessions import Lifetime
from backend.audit.acting import act_as, actor_of
from backend.core.clock import now
from backend.core.db import Session, Sessions
from backend.core.errors import AppError, BadInput
from backend.core.i18n import _
from backend.engines.registry import Registry
from backend.groups import queries as groups, rights
from backend.groups.models import Group
from backend.groups.rights import MEANINGS, Answer, Right
from backend.keys import queries as of_keys, service as keys
from backend.privacy import erasing
from backend.privacy.models import Erasure
from web.admin.people import Person
from web.admin.policy_view import source_of
from web.admin.start import PARTS
from web.dependencies import AllSessions, CurrentUser, DeploymentSettings, Models
from web.forms import Choice, plain_form
from web.rendering import page

router = APIRouter(dependencies=[Depends(plain_form)])


async def _seen(person_id: UUID, session: Session) -> User:
    return await accounts.find_person(session, person_id)


SeenPerson = Annotated[User, Depends(_seen)]


@dataclass(frozen=True)
class RightRow:
    """What a person may do or not, and who says so."""

    meaning: str
    allowed: bool
    why: str


@router.get("/admin/people/{person_id}")
async def one(
    request: Request,
    person: SeenPerson,
    session: Session,
    sessions: AllSessions,
    registry: Models,
    settings: DeploymentSettings,
    saved: str = "",
) -> HTMLResponse:
    answers = await rights.policy(session, settings)
    return await _page(request, session, sessions, registry, person, answers, saved=saved)


@router.post("/admin/people/{person_id}/areas")
async def change_areas(
    request: Request,
    person: Person,
    session: Session,
    sessions: AllSessions,
    registry: Models,
    settings: DeploymentSettings,
    role: Annotated[Role, Form()],
) -> Response:
    """An administrator has all areas; a member has those that are ticked. Whoever gets others is signed out."""
    form = await request.form()
    areas = [area for area in Area if f"area-{area}" in form]
    try:
        await accounts.change_role(session, person, role, areas)
    except AppError as error:
        answers = await rights.policy(session, settings)
        return await _page(
            request, session, sessions, registry, person, answers, status=error.status, problem=str(error)
        )
    gone = person.id == request.state.viewer.id
    return RedirectResponse("/" if gone else f"/admin/people/{person.id}?saved=areas", status_code=303)


@router.post("/admin/people/{person_id}/keys/{key_id}/revoke")
async def revoke_key(person: Person, key_id: UUID, session: Session, sessions: AllSessions) -> Response:
    """Only its owner's transaction shows a key, so it is revoked in one; who did it is the administrator."""
    actor = actor_of(session)
    await session.commit()  # nobody holds two connections
    async with sessions.as_person(person.id) as theirs:
        act_as(theirs, actor)
        await keys.revoke(theirs, person.id, key_id)
    return RedirectResponse(f"/admin/people/{person.id}?saved=key#keys", status_code=303)


# Erasing


@router.get("/admin/people/{person_id}/erase")
async def look_before_erasing(request: Request, person: Person, session: Session, sessions: AllSessions) -> Response:
    await session.commit()
    return await _erasing(request, sessions, person)


@router.post("/admin/people/{person_id}/erase")
async def erase(
    request: Request,
    person: Person,
    user: CurrentUser,
    session: Session,
    sessions: AllSessions,
    address: Annotated[str, Form()] = "",
) -> Response:
    actor = actor_of(session)
    await session.commit()
    try:
        erasing.require_address(person, address)
        async with sessions.as_worker() as worker:
            act_as(worker, actor)
            again = await accounts.find_person(worker, person.id)
            await accounts.require_authority(worker, user.id, again)
            certificate = await erasing.erase(worker, again, user.id)
    except AppError as error:
        wrong = error.fields if isinstance(error, BadInput) else {}
        problem = None if wrong else str(error)
        return await _erasing(request, sessions, person, status=error.status, errors=wrong, problem=problem)
    return RedirectResponse(f"/admin/erasures/{certificate.id}", status_code=303)


async def _erasing(
    request: Request,
    sessions: Sessions,
    person: User,
    *,
    status: int = 200,
    errors: dict[str, str] | None = None,
    problem: str | None = None,
) -> HTMLResponse:
    return page(
        request,
        "admin/erase.html",
        status=status,
        person=person,
        counts=await erasing.preview(sessions, person.id),
        errors=errors or {},
        problem=problem,
    )


@router.get("/admin/erasures/{erasure_id}")
async def certificate(request: Request, erasure_id: UUID, session: Session) -> HTMLResponse:
    found = await erasing.find(session, erasure_id)
    by = await session.scalar(people.person(found.by_id))
    return page(request, "admin/erasure.html", certificate=found, by=by.name if by else "")


@router.get("/admin/erasures/{erasure_id}/record")
async def certificate_record(erasure_id: UUID, session: Session) -> Response:
    found = await erasing.find(session, erasure_id)
    name = f"erasure-{found.created_at:%Y-%m-%d}-{found.id}.json"
    return Response(
        json.dumps(_as_record(found), indent=2),
        media_type="application/json",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


def _as_record(found: Erasure) -> dict[str, Any]:
    return {
        "certificate": str(found.id),
        "erased_at": found.created_at.isoformat(),
        "person": str(found.person_id),
        "by": str(found.by_id),
        "rows_removed": found.removed,
        "rows_kept_without_a_name": found.kept,
    }


# The page


async def _page(
    request: Request,
    session: AsyncSession,
    sessions: Sessions,
    registry: Registry,
    person: User,
    answers: dict[Right, Answer],
    *,
    status: int = 200,
    saved: str = "",
    problem: str | None = None,
) -> HTMLResponse:
    viewer = request.state.viewer
    joined = [(group, source) for group, source in await session.execute(groups.of_person(person.id))]
    around = [group for group, _source in joined if group.parent_id is not None]
    parents = {group.id: group for group in await session.scalars(groups.everything())} if around else {}
    browsers = (await session.scalars(people.live_sessions_of(person.id, *_bounds(request.state.lifetime)))).all()
    await session.commit()  # nobody holds two connections
    async with sessions.as_person(person.id) as theirs:
        kept = (await theirs.scalars(of_keys.kept_by(person.id))).all()
    counting = [group for group, _source in joined] + [parents[group.parent_id] for group in around if group.parent_id]
    return page(
        request,
        "admin/person.html",
        status=status,
        person=person,
        is_self=person.id == viewer.id,
        may_change=viewer.is_admin or not person.administers,
        areas=[Choice(area.value, PARTS[area].name, area in person.administers) for area in Area],
        groups=joined,
        parents=parents,
        browsers=browsers,
        keys=kept,
        moment=now(),
        models=registry.offers_for(person.id),
        rights=list(_rights(answers, counting)),
        saved=saved if saved in ("areas", "key") else "",
        problem=problem,
    )


def _bounds(lifetime: Lifetime) -> tuple[Any, Any]:
    moment = now()
    return moment, moment - lifetime.idle


def _rights(answers: dict[Right, Answer], joined: Sequence[Group]) -> Iterable[RightRow]:
    """The most permissive wins, and it is the one that is named."""
    for right in Right:
        by_groups = sorted({group.name for group in joined if right in rights.of_group(group)}, key=str.casefold)
        answer = answers[right]
        if answer.allowed or not by_groups:
            why = _("for everybody, {source}").format(source=source_of(answer))
        else:
            why = _("by the group {names}").format(names=", ".join(by_groups))
        yield RightRow(MEANINGS[right], answer.allowed or bool(by_groups), why)

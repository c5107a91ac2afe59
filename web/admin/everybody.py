"""Administration: what everybody may do with what is theirs. What groups allow besides is on their pages."""

from dataclasses import dataclass

from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.core.db import Session
from backend.groups import queries, rights
from backend.groups.rights import MEANINGS, Right, Source
from web.admin.policy_view import source_of
from web.dependencies import DeploymentSettings
from web.forms import plain_form
from web.rendering import page

router = APIRouter(dependencies=[Depends(plain_form)])


@dataclass(frozen=True)
class Switch:
    right: Right
    meaning: str
    allowed: bool
    source: str
    is_fixed: bool
    groups: str  # that allow it whatever is chosen here


@router.get("/admin/policy")
async def policy(request: Request, session: Session, settings: DeploymentSettings, saved: str = "") -> HTMLResponse:
    answers = await rights.policy(session, settings)
    every = (await session.scalars(queries.everything())).all()
    switches = [
        Switch(
            right=right,
            meaning=MEANINGS[right],
            allowed=answer.allowed,
            source=source_of(answer),
            is_fixed=answer.source is Source.ENVIRONMENT,
            groups=", ".join(group.name for group in every if right in rights.of_group(group)),
        )
        for right, answer in answers.items()
    ]
    return page(request, "admin/policy.html", switches=switches, saved=bool(saved))


@router.post("/admin/policy")
async def choose(request: Request, session: Session, settings: DeploymentSettings) -> Response:
    form = await request.form()
    wished = frozenset(right for right in Right if f"right-{right}" in form)
    await rights.choose(session, settings, wished)
    return RedirectResponse("/admin/policy?saved=1", status_code=303)

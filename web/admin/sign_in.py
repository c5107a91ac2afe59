"""Administration: how people come in."""

from dataclasses import asdict, replace
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.accounts import rules
from backend.accounts.rules import Demand, Rules
from backend.audit import service as audit
from backend.audit.service import Action, Target
from backend.core.db import Session
from backend.core.i18n import _
from web.dependencies import DeploymentSettings
from web.forms import Choice, plain_form
from web.rendering import page

router = APIRouter(dependencies=[Depends(plain_form)])


@router.get("/admin/sign-in")
async def show(request: Request, session: Session, settings: DeploymentSettings, saved: str = "") -> HTMLResponse:
    return _page(request, await rules.read(session), settings.require_second_factor, saved=bool(saved))


@router.post("/admin/sign-in")
async def save(
    session: Session,
    second_factor: Annotated[Demand | None, Form()] = None,
) -> Response:
    """What the deployment has set is not in the form, and stays as it is in the database."""
    before = await rules.read(session)
    after = replace(before, second_factor=second_factor or before.second_factor)
    if after != before:
        await rules.write(session, after)
        await audit.record(
            session,
            Action.SIGN_IN_RULES_CHANGED,
            Target("settings", name="sign_in"),
            before=asdict(before),
            after=asdict(after),
        )
    return RedirectResponse("/admin/sign-in?saved=1", status_code=303)


def _page(request: Request, ruled: Rules, given: str | None, *, saved: bool = False) -> HTMLResponse:
    names = {
        Demand.NOBODY: _("Whoever wants one"),
        Demand.ADMINS: _("Administrators have to"),
        Demand.EVERYBODY: _("Everybody has to"),
    }
    held = Demand(given) if given else ruled.second_factor
    return page(
        request,
        "admin/sign_in.html",
        demands=[Choice(demand, name, demand is held) for demand, name in names.items()],
        is_given=given is not None,
        saved=saved,
    )

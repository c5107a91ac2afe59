"""Administration: where it begins. Everybody sees the areas they have, and what each of them is for."""

from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from backend.accounts.models import Area
from backend.core.i18n import _
from web.dependencies import CurrentUser
from web.rendering import page

router = APIRouter()


@dataclass(frozen=True)
class Part:
    """One area, with what it is for and the pages it has."""

    name: str
    purpose: str
    icon: str
    pages: tuple[tuple[str, str], ...]  # address and label


PARTS = {
    Area.PEOPLE: Part(
        name=_("People and groups"),
        purpose=_("Who can sign in, who belongs together, which keys of theirs work. Never what they write."),
        icon="people",
        pages=(("/admin/people", _("People")), ("/admin/groups", _("Groups"))),
    ),
    Area.MODELS: Part(
        name=_("Models and engines"),
        purpose=_("Which models there are and for whom, where they run, how fast they are, how many people fit."),
        icon="model",
        pages=(
            ("/admin/models", _("Models")),
            ("/admin/engines", _("Engines")),
            ("/admin/bench", _("Measurements")),
            ("/admin/capacity", _("Capacity")),
        ),
    ),
    Area.USAGE: Part(
        name=_("Usage"),
        purpose=_("How much is used, by whom and with which model."),
        icon="chart",
        pages=(),
    ),
    Area.AUDIT: Part(
        name=_("Audit and policy"),
        purpose=_("How people show who they are, what was changed and by whom, and what everybody may do."),
        icon="shield",
        pages=(
            ("/admin/sign-in", _("Signing in")),
            ("/admin/audit", _("Audit")),
            ("/admin/policy", _("What everybody may do")),
        ),
    ),
}


@router.get("/admin")
async def start(request: Request, user: CurrentUser) -> HTMLResponse:
    return page(request, "admin/start.html", parts=[PARTS[area] for area in Area if area in user.areas])

"""Templates to replies: `page` for a whole document, `partial` for the HTML of what changed."""

import hashlib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from backend.core.i18n import _, ngettext
from backend.files.names import human_size
from web.rights import rights_of

_HERE = Path(__file__).parent
STATIC = _HERE / "static"


@cache
def templates() -> Environment:
    """Autoescaped, and strict: a name that a route forgot is an error, not an empty spot on the page."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
        auto_reload=False,
    )
    environment.install_gettext_callables(_, ngettext, newstyle=True)  # type: ignore[attr-defined]
    environment.globals |= {"static": static, "icon": icon, "_": _sentence}
    return environment


@cache
def _translated(text: str) -> Markup:
    return Markup(_(text))  # noqa: S704 - a text of one of our own templates


@cache
def _without_values(text: str) -> Markup:
    return _translated(text) % {}


def _sentence(text: str, **values: object) -> Markup:
    """What `_("…")` is in a template; values are escaped. Jinja's own asks for its whole context at every call."""
    return _translated(text) % values if values else _without_values(text)


@cache
def icon(name: str, classes: str = "") -> Markup:
    """A picture of the sprite. Always decoration: whatever it stands on carries the name."""
    return Markup('<svg class="icon{}{}" aria-hidden="true"><use href="{}#{}"/></svg>').format(
        " " if classes else "", classes, static("icons.svg"), name
    )


@cache
def static(path: str) -> str:
    """The address of a static file; it changes with the content, so browsers may keep it for ever."""
    content = (STATIC / path).read_bytes()
    return f"/static/{path}?v={hashlib.sha256(content).hexdigest()[:12]}"


def page(request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    return HTMLResponse(render(request, template, **context), status_code=status)


partial = page  # the other name tells a reader that the template is a fragment


def render(request: Request, template: str, **context: Any) -> Markup:
    """The HTML of one of our own templates, in which everything from outside is escaped."""
    return Markup(  # noqa: S704 - see above
        templates()
        .get_template(template)
        .render(
            viewer=getattr(request.state, "viewer", None),  # none yet when the gate refuses
            company=request.state.company.name,
            support_id=request.state.support_id,
            path=request.url.path,
            fresh=login.is_fresh if (login := getattr(request.state, "login", None)) else False,
            zone=zone_of(request),
            limits=getattr(request.state, "limits", None),
            may=rights_of(request),
            **context,
        )
    )


def zone_of(request: Request) -> ZoneInfo:
    """The viewer's time zone: as chosen in the settings, else as the browser said at sign-in, else UTC."""
    viewer = getattr(request.state, "viewer", None)
    for name in viewer.zones if viewer else ():
        if name and (zone := find_zone(name)):
            return zone
    return ZoneInfo("UTC")


def find_zone(name: str) -> ZoneInfo | None:
    """The zone of this name, or None for what a browser or a stranger made up."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def local(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone)


def clock_time(moment: datetime, zone: ZoneInfo) -> str:
    return f"{local(moment, zone):%H:%M}"


def date_and_time(moment: datetime, zone: ZoneInfo) -> str:
    here = local(moment, zone)
    return f"{here.day} {here:%B %Y, %H:%M}"


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")


templates().filters |= {"human_size": human_size, "clock_time": clock_time, "date_and_time": date_and_time, "iso": iso}

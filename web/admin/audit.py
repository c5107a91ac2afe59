"""Administration: what was done, by whom and to whom."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit
from uuid import UUID
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from backend.audit import exporting, queries
from backend.audit.acting import Via
from backend.audit.exporting import Format, Found, Wanted
from backend.audit.models import AuditEvent
from backend.audit.queries import Filter
from backend.core.db import Session
from backend.core.errors import BadInput
from backend.core.i18n import _
from backend.core.text import one_line
from web.admin.audit_words import action_label, via_label, what_changed
from web.dependencies import AllSessions, DeploymentSettings
from web.forms import Choice
from web.rendering import page, zone_of

router = APIRouter()

_ON_A_PAGE = 50
_ACTION = re.compile(r"[a-z_]{1,40}(\.[a-z_]{1,40})?")


@dataclass(frozen=True)
class Typed:
    """As it stands in the address, and in the form again."""

    q: str = ""
    action: str = ""
    person: str = ""
    target: str = ""
    since: str = ""
    until: str = ""

    def address(self, path: str = "/admin/audit", **more: object) -> str:
        """Of the same search; what is empty is left out."""
        asked = {name: value for name, value in (vars(self) | more).items() if value}
        return f"{path}?{urlencode(asked)}" if asked else path


@dataclass(frozen=True)
class EventRow:
    number: int
    at: datetime
    actor: str
    actor_address: str  # of their page of events; empty where nobody did it
    via: str
    peer: str
    action: str
    refused: bool
    target: str
    target_address: str
    changes: tuple[tuple[str, str, str], ...]  # what, before, after


async def _typed(request: Request) -> Typed:
    asked = request.query_params
    return Typed(**{field.name: one_line(asked.get(field.name, ""), 100) for field in fields(Typed)})


OnePage = Annotated[Typed, Depends(_typed)]


@router.get("/admin/audit")
async def events(request: Request, session: Session, settings: DeploymentSettings, typed: OnePage) -> HTMLResponse:
    """Newest first; `before` is the number under which a page begins."""
    zone = zone_of(request)
    wrong: dict[str, str] = {}
    query = queries.events(_filter(typed, zone, wrong)).order_by(queries.NEWEST_FIRST).limit(_ON_A_PAGE + 1)
    before = request.query_params.get("before", "")
    if before.isascii() and before.isdecimal() and len(before) <= 15:
        query = query.where(AuditEvent.number < int(before))
    rows = (await session.execute(query)).all()
    shown = rows[:_ON_A_PAGE]
    more = typed.address(before=shown[-1][0].number) if len(rows) > _ON_A_PAGE else ""
    return page(
        request,
        "admin/audit.html",
        status=422 if wrong else 200,
        errors=wrong,
        events=[_row(row) for row in shown],
        form=typed,
        actions=await _choices(session, typed),
        is_filtered=typed != Typed(),
        is_first=not before,
        older=more,
        newest=typed.address(),
        downloads=[(word, typed.address("/admin/audit/export", format=word)) for word in Format],
        days=settings.audit_days,
    )


@router.get("/admin/audit/export")
async def export(
    request: Request,
    sessions: AllSessions,
    settings: DeploymentSettings,
    typed: OnePage,
    wanted_format: Annotated[Format, Query(alias="format")] = Format.JSONL,
) -> Response:
    """All that the page would show, oldest first. While it is sent no connection to the database is held."""
    wrong: dict[str, str] = {}
    found = _filter(typed, zone_of(request), wrong)
    if wrong:
        raise BadInput(" ".join(wrong.values()), fields=wrong)
    wanted = Wanted(wanted_format, found, host=urlsplit(settings.origin).hostname or "-")
    up_to = await exporting.begin(sessions, wanted, request.state.actor)

    async def send() -> AsyncIterator[bytes]:
        async for lines in exporting.lines(sessions, wanted, up_to):
            yield lines.encode()

    name = f"audit.{'log' if wanted_format is Format.SYSLOG else wanted_format}"
    headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}
    return StreamingResponse(send(), media_type=exporting.MEDIA_TYPES[wanted_format], headers=headers)


def _filter(typed: Typed, zone: ZoneInfo, wrong: dict[str, str]) -> Filter:
    """Days are those of the reader; the last one is included."""
    until = _day(typed.until, "until", zone, wrong)
    return Filter(
        person_id=_id(typed.person, "person", wrong),
        action=typed.action if _ACTION.fullmatch(typed.action) else "",
        target_id=_id(typed.target, "target", wrong),
        since=_day(typed.since, "since", zone, wrong),
        until=until + timedelta(days=1) if until else None,
        words=typed.q,
    )


def _day(text: str, name: str, zone: ZoneInfo, wrong: dict[str, str]) -> datetime | None:
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
        if not 1970 <= day.year <= 9000:  # so that a day more, and every time zone, is still a moment
            raise ValueError
    except ValueError:
        wrong[name] = _("Write the day like 2026-12-24.")
        return None
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def _id(text: str, name: str, wrong: dict[str, str]) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        wrong[name] = _("This is not an id. Follow a link in the table.")
        return None


async def _choices(session: Session, typed: Typed) -> list[Choice]:
    known = list(await session.scalars(queries.actions()))
    if typed.action and typed.action not in known and _ACTION.fullmatch(typed.action):
        known.append(typed.action)
    labelled = sorted((action_label(action), action) for action in known)
    return [Choice(action, label, action == typed.action) for label, action in labelled]


def _row(row: Found) -> EventRow:
    event: AuditEvent = row[0]
    values: dict[str, Any] = exporting.as_values(row)
    named = values["target_name"] or (_("somebody who was erased") if event.target_kind == "person" else "")
    return EventRow(
        number=event.number,
        at=event.at,
        actor=values["actor_name"] or (_("somebody who was erased") if event.actor_id else ""),
        actor_address=Typed(person=str(event.actor_id)).address() if event.actor_id else "",
        via=via_label(Via(event.via)),
        peer=event.address,
        action=action_label(event.action),
        refused=event.action.endswith(".refused"),
        target="" if event.target_id and event.target_id == event.actor_id else named,
        target_address=Typed(target=str(event.target_id)).address() if event.target_id else "",
        changes=what_changed(event.before, event.after),
    )

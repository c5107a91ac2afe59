"""Administration: measure an engine, and look at what was measured before."""

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Depends, Form, Request
from markupsafe import Markup
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.bench import chart, plan, queries, runs, table
from backend.bench.plan import Plan
from backend.bench.results import Ended
from backend.bench.runs import Run
from backend.core.db import Session, after_commit
from backend.core.errors import BadInput, Conflict, NotFound
from backend.core.i18n import _
from backend.core.text import clean, whole
from backend.engines.findings import CANNOT_CHAT
from web.admin.kinds import kind_name
from web.dependencies import Bench, CurrentUser
from web.forms import plain_form
from web.rendering import page, partial

router = APIRouter(dependencies=[Depends(plain_form)])


@dataclass(frozen=True)
class Choice:
    """A model on an engine that can be measured."""

    id: UUID
    engine: str
    model: str
    external: bool


@dataclass(frozen=True)
class SizeForm:
    """What was typed into the form."""

    deployment: str = ""
    people: str = "8"
    turns: str = "3"
    answer_tokens: str = "128"
    seconds: str = "300"


async def _asked(
    deployment: Annotated[str, Form()] = "",
    people: Annotated[str, Form()] = "",
    turns: Annotated[str, Form()] = "",
    answer_tokens: Annotated[str, Form()] = "",
    seconds: Annotated[str, Form()] = "",
) -> SizeForm:
    return SizeForm(*(clean(text)[:50] for text in (deployment, people, turns, answer_tokens, seconds)))


@router.get("/admin/bench")
async def measurements(
    request: Request,
    session: Session,
    deployment: str = "",
    people: str = "",
    turns: str = "",
    answer_tokens: str = "",
    seconds: str = "",
) -> HTMLResponse:
    """The list and the form. Sent with a size, the form comes back with what it would cost and the question whether to
    begin: that is a GET, because nothing happens yet."""
    if not deployment:
        return await _page(request, session)
    form = await _asked(deployment, people, turns, answer_tokens, seconds)
    try:
        size = _plan(form)
    except BadInput as error:
        return await _page(request, session, status=error.status, form=form, errors=error.fields)
    return await _page(request, session, form=form, size=size)


@router.post("/admin/bench")
async def start(
    request: Request,
    session: Session,
    viewer: CurrentUser,
    bench: Bench,
    form: Annotated[SizeForm, Depends(_asked)],
) -> Response:
    try:
        run_id = await bench.start(_deployment(form), _plan(form), viewer.id, request.state.actor)
    except BadInput as error:
        return await _page(request, session, status=error.status, form=form, errors=error.fields)
    except (Conflict, NotFound) as error:
        return await _page(request, session, status=error.status, form=form, problem=str(error))
    return RedirectResponse(f"/admin/bench/{run_id}", status_code=303)


@router.get("/admin/bench/{run_id}")
async def measurement(request: Request, run_id: UUID, session: Session, bench: Bench) -> HTMLResponse:
    """The whole page, or for htmx only the figures: while it runs they ask again."""
    run = runs.of(await bench.find(session, run_id))
    if request.headers.get("hx-request"):
        return partial(request, "admin/_bench_run.html", **_shown(run))
    return page(request, "admin/bench_run.html", **_shown(run))


@router.get("/admin/bench/{run_id}/record")
async def record(run_id: UUID, session: Session, bench: Bench) -> Response:
    """As `parley bench --json` writes it."""
    run = runs.of(await bench.find(session, run_id))
    content = orjson.dumps(run.measurement.as_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return _download(content, "application/json", f"bench-{run.id}.json")


@router.get("/admin/bench/{run_id}/picture")
async def picture(run_id: UUID, session: Session, bench: Bench) -> Response:
    """As `parley bench --svg` draws it."""
    run = runs.of(await bench.find(session, run_id))
    return _download(chart.svg(run.measurement).encode(), "image/svg+xml", f"bench-{run.id}.svg")


@router.post("/admin/bench/{run_id}/cancel")
async def cancel(run_id: UUID, session: Session, bench: Bench) -> Response:
    await bench.cancel(session, run_id)
    after_commit(session, bench.hurry)
    return RedirectResponse(f"/admin/bench/{run_id}", status_code=303)


@router.post("/admin/bench/{run_id}/delete")
async def delete(run_id: UUID, session: Session, bench: Bench) -> Response:
    await bench.delete(session, run_id)
    return RedirectResponse("/admin/bench", status_code=303)


def _download(content: bytes, media_type: str, name: str) -> Response:
    return Response(content, media_type=media_type, headers={"content-disposition": f'attachment; filename="{name}"'})


def _deployment(form: SizeForm) -> UUID:
    try:
        return UUID(form.deployment)
    except ValueError:
        raise NotFound(_("There is no such model.")) from None


def _plan(form: SizeForm) -> Plan:
    """Raises BadInput also for what is no number."""
    fields = {name: whole(getattr(form, name)) for name in ("people", "turns", "answer_tokens", "seconds")}
    return plan.make(**fields)


async def _page(
    request: Request,
    session: AsyncSession,
    *,
    status: int = 200,
    form: SizeForm | None = None,
    errors: dict[str, str] | None = None,
    problem: str = "",
    size: Plan | None = None,
) -> HTMLResponse:
    form = form or SizeForm()
    # Two models may be one and the same for the engine, which is what is measured.
    by_name = {(each.engine_id, each.upstream_name): each for each in await session.scalars(queries.measurable())}
    choices = [
        Choice(deployment.id, deployment.engine.name, deployment.upstream_name, deployment.engine.external)
        for deployment in by_name.values()
        if not CANNOT_CHAT.search(deployment.upstream_name)
    ]
    chosen = next((choice for choice in choices if str(choice.id) == form.deployment), None)
    if form.deployment and chosen is None and not problem:
        problem, size = _("The engine does not offer this model at the moment."), None
    return page(
        request,
        "admin/bench.html",
        status=status,
        choices=choices,
        chosen=chosen,
        form=form,
        errors=errors or {},
        problem=problem,
        size=size,
        tokens=_about(size.expected_tokens) if size else "",
        runs=[_row(runs.of(row)) for row in await session.scalars(queries.latest())],
    )


def _about(number: int) -> str:
    """Two digits of it: more would be a promise."""
    return f"{round(number, 2 - len(str(number))):,}"


def _row(run: Run) -> dict[str, Any]:
    """What the list says: the most people at once, and what they got."""
    last = run.measurement.levels[-1] if run.measurement.levels else None
    return {
        "id": run.id,
        "made_at": run.measurement.made_at,
        "engine": run.measurement.engine,
        "model": run.measurement.model,
        "people": last.people if last else None,
        "each": table.figure(last.speed_p50, 1) if last else "",
        "total": table.figure(max(level.per_second for level in run.measurement.levels), 1) if last else "",
        "state": _state(run),
    }


def _state(run: Run) -> tuple[str, str]:
    """A class and a word."""
    match run.measurement.ended:
        case None:
            return "warn", _("Ending") if run.stops else _("Running")
        case Ended.DONE:
            return "", _("Complete")
        case Ended.FAILED:
            return "bad", _("Failed")
        case Ended.LOST:
            return "bad", _("Broke off")
        case Ended.CANCELLED:
            return "off", _("Ended by hand")
        case Ended.PEOPLE:
            return "off", _("Gave way to people")
        case Ended.TIME:
            return "off", _("Time was over")
        case Ended.TOKENS:
            return "off", _("Tokens were used up")


def _shown(run: Run) -> dict[str, Any]:
    measurement = run.measurement
    return {
        "run": run,
        "measurement": measurement,
        "kind": " ".join(filter(None, (kind_name(measurement.kind), measurement.version))),
        "state": _state(run),
        "levels": [
            {
                "people": level.people,
                "answered": level.answered,
                "first_p50": table.figure(level.first_p50, 2, " s"),
                "first_p95": table.figure(level.first_p95, 2, " s"),
                "speed_p50": table.figure(level.speed_p50, 1),
                "speed_p5": table.figure(level.speed_p5, 1),
                "total": table.figure(level.per_second, 1),
                "failed": level.failed,
                "about": "~" if level.estimated else "",
            }
            for level in measurement.levels
        ],
        "failures": [
            (level.people, count, sentence)
            for level in measurement.levels
            for sentence, count in level.failures.items()
        ],
        "conditions": list(table.conditions(measurement)) if measurement.levels else [],
        # Everything that comes from an engine is escaped where the picture is made.
        "chart": Markup(chart.svg(measurement, alone=False)) if measurement.levels else "",  # noqa: S704
    }

"""Administration: how many people fit into a GPU. A form that is only read, so every answer has an address."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse

from backend.bench import capacity, words
from backend.bench.capacity import CACHE_NAMES, SHAPES, WEIGHT_NAMES, Cache, Setup, Weights
from backend.core.errors import BadInput
from backend.core.i18n import _
from backend.core.text import decimal, whole
from backend.engines.events import EngineFailed
from backend.engines.registry import Registry
from web.dependencies import Models
from web.rendering import page

router = APIRouter()

_MOST_CHARACTERS = 20
Word = TypeVar("Word", Weights, Cache)


@dataclass(frozen=True)
class CapacityForm:
    """What was typed, or what a link says. The names are those in the address."""

    parameters: str = "8.03"
    layers: str = "32"
    kv_heads: str = "8"
    head_size: str = "128"
    weights: str = Weights.F16
    vram: str = "24"
    gpus: str = "1"
    context: str = "8192"
    cache: str = Cache.F16
    share: str = "0.92"
    working: str = "2.5"


@dataclass(frozen=True)
class Told:
    """What a running engine says about itself."""

    engine: str
    sentence: str
    rows: list[tuple[int, str]]


async def _form(request: Request) -> CapacityForm:
    given = {
        field.name: request.query_params[field.name][:_MOST_CHARACTERS].strip()
        for field in fields(CapacityForm)
        if field.name in request.query_params
    }
    return CapacityForm(**given)


@router.get("/admin/capacity")
async def show(
    request: Request, registry: Models, form: Annotated[CapacityForm, Depends(_form)], engine: UUID | None = None
) -> HTMLResponse:
    """With `engine`, that one is asked, too: only then, so that no dead engine delays the page."""
    try:
        setup, errors = _setup(form), {}
    except BadInput as error:
        setup, errors = None, error.fields
    told, problem = await _told(registry, engine, setup) if engine else (None, "")
    return page(
        request,
        "admin/capacity.html",
        status=422 if errors else 200,
        form=form,
        errors=errors,
        told=told,
        problem=problem,
        engines=[(status.id, status.name) for status in registry.engines if _tells(registry, status.id)],
        shapes=[(name, _address(_with_shape(form, name))) for name in SHAPES],
        weights=WEIGHT_NAMES.items(),
        caches=CACHE_NAMES.items(),
        **(_answer(setup) if setup else {"answer": ""}),
    )


def _answer(setup: Setup) -> dict[str, Any]:
    found = capacity.of(setup)
    return {
        "answer": words.answer(setup, found),
        "fits": found.people > 0,
        "parts": [
            (_("Weights"), words.gib(found.weights)),
            (_("Working memory"), words.gib(found.working)),
            (_("KV cache"), words.gib(found.cache)),
        ],
        "rows": [(context, words.people(count)) for context, count in capacity.by_context(found.tokens)],
        "what_if": [
            (what, words.people(capacity.of(changed).people), _address(_written(changed)))
            for what, changed in capacity.what_if(setup)
        ],
    }


async def _told(registry: Registry, engine_id: UUID, setup: Setup | None) -> tuple[Told | None, str]:
    """What the engine says, or why it does not."""
    client = registry.client(engine_id)
    name = next((status.name for status in registry.engines if status.id == engine_id), "")
    if client is None:
        return None, _("There is no such engine in service.")
    try:
        room = await client.room()
    except EngineFailed as failure:
        return None, f"{name}: {failure}"
    if room is None:
        return None, _("{name} does not say how much room it has.").format(name=name)
    context = setup.context if setup else 8_192
    lengths = [
        each.context_length for status in registry.engines if status.id == engine_id for each in status.deployments
    ]
    longest = None if None in lengths else max((length for length in lengths if length), default=None)
    rows = [(length, words.people(count)) for length, count in capacity.by_context_in(room, longest)]
    return Told(name, words.answer_of(room, context), rows), ""


def _tells(registry: Registry, engine_id: UUID) -> bool:
    client = registry.client(engine_id)
    return client is not None and client.dialect.room is not None and registry.health(engine_id).problem is None


def _setup(form: CapacityForm) -> Setup:
    """Raises BadInput with a sentence for each field that is wrong."""
    return capacity.make(
        parameters=decimal(form.parameters),
        layers=whole(form.layers),
        kv_heads=whole(form.kv_heads),
        head_size=whole(form.head_size),
        vram=decimal(form.vram),
        gpus=whole(form.gpus),
        share=decimal(form.share),
        working=decimal(form.working),
        context=whole(form.context),
        weights=_word(Weights, form.weights),
        cache=_word(Cache, form.cache),
    )


def _word(kind: type[Word], text: str) -> Word:
    try:
        return kind(text)
    except ValueError:
        return next(iter(kind))


def _with_shape(form: CapacityForm, name: str) -> Mapping[str, str]:
    shape = SHAPES[name]
    return vars(form) | {
        "parameters": f"{shape.parameters / 1e9:g}",
        "layers": str(shape.layers),
        "kv_heads": str(shape.kv_heads),
        "head_size": str(shape.head_size),
    }


def _written(setup: Setup) -> Mapping[str, str]:
    """`setup` as the form would send it."""
    shape, machine = setup.shape, setup.machine
    return {
        "parameters": f"{shape.parameters / 1e9:g}",
        "layers": str(shape.layers),
        "kv_heads": str(shape.kv_heads),
        "head_size": str(shape.head_size),
        "weights": setup.weights,
        "vram": f"{machine.vram_gib:g}",
        "gpus": str(machine.gpus),
        "context": str(setup.context),
        "cache": setup.cache,
        "share": f"{machine.share:g}",
        "working": f"{machine.working_gib:g}",
    }


def _address(form: Mapping[str, str]) -> str:
    return f"/admin/capacity?{urlencode(form)}"

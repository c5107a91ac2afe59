"""llama.cpp's server, with one model or as a router that loads several."""

from collections.abc import Sequence
from dataclasses import replace

from backend.core.i18n import _
from backend.engines.counting import Counter, field
from backend.engines.dialects.dialect import Continuation, Dialect, Fields, Version
from backend.engines.dialects.lifecycle import LoadedModel, ModelState
from backend.engines.kinds import Kind
from backend.engines.metrics import Metrics, Number
from backend.engines.pages import Page, Site, UpstreamModel, listed, mentions, one_of, told, truth, words
from backend.engines.request import Thinking
from backend.engines.room import Room, RoomPage, count

_STATES = {
    "loaded": ModelState.LOADED,
    "loading": ModelState.LOADING,
    "downloading": ModelState.LOADING,
    "sleeping": ModelState.SLEEPING,
}


def _think(thinking: Thinking) -> Fields:
    """Everything about thinking is an option of the chat template."""
    if not thinking:
        return {}
    on = thinking != "off"
    effort = {} if thinking in ("off", "on") else {"reasoning_effort": thinking}
    return {"chat_template_kwargs": {"enable_thinking": on, "thinking": on, **effort}}


async def _describe(site: Site, models: Sequence[UpstreamModel], thorough: bool) -> Sequence[UpstreamModel]:
    """The file of the weights is what tells one model from another. It stays for as long as the server runs."""
    if not thorough or not models:
        return models
    if len(models) == 1:
        file = words(told((await site.look("props")).json, "model_path"))
        return [replace(models[0], revision=file or models[0].revision)]
    page = await site.look_at(site.api / "models")
    files = {entry.get("id"): words(entry.get("path")) for entry in listed(page, "data")}
    return [replace(model, revision=files.get(model.id) or model.revision) for model in models]


async def _sees(site: Site, model: str) -> bool | None:
    entry = one_of(await site.look_at(site.api / "models"), "data", "id", model)
    says = mentions(entry.get("architecture"), "input_modalities", "image")
    return says if says is not None else truth(told((await site.look("props")).json, "modalities", "vision"))


class Router:
    """Only where the server was started without a model; with one, the entries of its list have no status."""

    keeps_warm = False
    whole = False
    wakes_by_itself = True
    switched_off = _("If you want that, start it as a router, without a model.")

    async def loaded(self, site: Site) -> Sequence[LoadedModel] | None:
        entries = [entry for entry in listed(await site.get("models"), "data") if "status" in entry]
        return [_state_of(entry) for entry in entries if isinstance(entry.get("id"), str)] or None

    async def load(self, site: Site, model: str, _keep: bool, /) -> None:
        await site.post("models/load", {"model": model})

    async def unload(self, site: Site, model: str, /) -> None:
        await site.post("models/unload", {"model": model})


def _state_of(entry: dict[str, object]) -> LoadedModel:
    value = told(entry, "status", "value")
    return LoadedModel(str(entry["id"]), _STATES.get(str(value), ModelState.UNLOADED))


_METRICS = Metrics(
    "metrics",
    {
        Number.RUNNING: ("llamacpp:requests_processing",),
        Number.WAITING: ("llamacpp:requests_deferred",),
        Number.GENERATED: ("llamacpp:tokens_predicted_total",),
        Number.HITS: ("llamacpp:prompt_tokens_cached_total",),
        Number.MISSES: ("llamacpp:prompt_tokens_total",),
    },
    tells_slots=True,
    missing=_("Start it with --metrics, and without --no-slots."),
)


def _room(page: Page) -> Room | None:
    """Each of its slots has a context of its own."""
    props = page.json
    slots, context = count(told(props, "total_slots")), count(told(props, "default_generation_settings", "n_ctx"))
    return Room(slots=slots, context=context) if slots and context else None


LLAMACPP = Dialect(
    kind=Kind.LLAMACPP,
    name="llama.cpp",
    think=_think,
    continuation=Continuation.OBEYED,
    counter=Counter("chat/completions/input_tokens", field("input_tokens"), in_api=True),
    version=Version("props", "build_info"),
    describe=_describe,
    sees=_sees,
    metrics=_METRICS,
    room=RoomPage("props", _room),
    lifecycle=Router(),
)

"""LM Studio: lists what it has downloaded, and loads it when it is asked for."""

from collections.abc import Sequence
from dataclasses import replace

from backend.engines.dialects.dialect import Dialect, Fields
from backend.engines.dialects.lifecycle import LOAD_SECONDS, LoadedModel, ModelState
from backend.engines.kinds import Kind
from backend.engines.pages import Site, UpstreamModel, listed, tokens, told, truth
from backend.engines.request import JSON

_MODELS = "api/v1/models"
_SMALLEST_DEFAULT = 4_096
"""What it loads a model with unless somebody chose more."""


async def _describe(site: Site, models: Sequence[UpstreamModel], _thorough: bool) -> Sequence[UpstreamModel]:
    entries = {str(entry.get("key")): entry for entry in listed(await site.look(_MODELS), "models")}
    return [_with(model, entries.get(model.id, {})) for model in models if _chats(entries.get(model.id, {}))]


def _with(model: UpstreamModel, entry: dict[str, object]) -> UpstreamModel:
    length = next((length for instance in _instances(entry) if (length := _length_of(instance))), None)
    most = tokens(entry.get("max_context_length"))
    thinks = told(entry, "capabilities", "reasoning")
    return replace(
        model,
        context_length=length or (min(most, _SMALLEST_DEFAULT) if most else model.context_length),
        context_is_assumed=length is None and most is not None,
        thinks=bool(thinks) if isinstance(thinks, bool | dict) else None,
    )


def _chats(entry: dict[str, object]) -> bool:
    return entry.get("type") not in ("embedding", "embeddings")


def _instances(entry: dict[str, object]) -> list[dict[str, object]]:
    instances = entry.get("loaded_instances")
    return [instance for instance in instances if isinstance(instance, dict)] if isinstance(instances, list) else []


def _length_of(instance: dict[str, object]) -> int | None:
    return tokens(told(instance, "config", "context_length"))


async def _sees(site: Site, model: str) -> bool | None:
    for entry in listed(await site.look(_MODELS), "models"):
        if entry.get("key") == model:
            return truth(told(entry, "capabilities", "vision"))
    return None


def _adjust(options: Fields, _model: str) -> Fields:
    """It knows no JSON without a schema."""
    if told(options.get("response_format"), "type") == "json_object":
        anything: JSON = {"name": "answer", "schema": {"type": "object"}}
        return options | {"response_format": {"type": "json_schema", "json_schema": anything}}
    return options


class Server:
    keeps_warm = False
    whole = False
    wakes_by_itself = True
    switched_off = ""

    async def loaded(self, site: Site) -> Sequence[LoadedModel] | None:
        found = []
        for entry in listed(await site.get(_MODELS), "models"):
            if not _chats(entry) or not isinstance(entry.get("key"), str):
                continue
            name, instances = str(entry["key"]), _instances(entry)
            state = ModelState.LOADED if instances else ModelState.UNLOADED
            found.append(LoadedModel(name, state, _length_of(instances[0]) if instances else None))
        return found

    async def load(self, site: Site, model: str, _keep: bool, /) -> None:
        await site.post(f"{_MODELS}/load", {"model": model}, seconds=LOAD_SECONDS)

    async def unload(self, site: Site, model: str, /) -> None:
        """Every instance of it."""
        for entry in listed(await site.get(_MODELS), "models"):
            for instance in _instances(entry) if entry.get("key") == model else ():
                if isinstance(name := instance.get("id"), str):
                    await site.post(f"{_MODELS}/unload", {"instance_id": name})


LMSTUDIO = Dialect(
    kind=Kind.LMSTUDIO,
    name="LM Studio",
    adjust=_adjust,
    describe=_describe,
    sees=_sees,
    lifecycle=Server(),
)

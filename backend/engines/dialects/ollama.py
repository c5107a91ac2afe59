"""Ollama: loads models while a request waits, cuts old turns silently, and passes some models on to its maker."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from backend.engines.dialects.dialect import Dialect, Fields, Version
from backend.engines.dialects.lifecycle import LOAD_SECONDS, LoadedModel, ModelState
from backend.engines.kinds import Kind
from backend.engines.pages import Page, Site, UpstreamModel, listed, mentions, tokens, told, words
from backend.engines.request import Thinking

LEAVES_THE_HOUSE = re.compile(r"[-:]cloud$", re.IGNORECASE)

_SMALLEST_DEFAULT = 4_096
"""What it gives a model on a small GPU. Assuming more would have it drop the oldest turns without a word."""

_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)


def _think(thinking: Thinking) -> Fields:
    if not thinking:
        return {}
    return {"reasoning_effort": {"off": "none", "on": "medium"}.get(thinking, thinking)}


async def _describe(site: Site, models: Sequence[UpstreamModel], thorough: bool) -> Sequence[UpstreamModel]:
    """Digests, and the context of what is loaded, in two requests; the rest is a request a model."""
    digests = {
        str(entry.get("name")): words(entry.get("digest")) for entry in listed(await site.look("api/tags"), "models")
    }
    loaded = {str(entry.get("name")): entry for entry in listed(await site.look("api/ps"), "models")}
    found = []
    for model in models:
        if LEAVES_THE_HOUSE.search(model.id):
            continue  # it would be offered, chosen, and then refused
        model = replace(model, revision=digests.get(model.id))
        length = tokens(told(loaded.get(model.id), "context_length"))
        if thorough:
            model = _as_shown(model, await site.look("api/show", {"model": model.id}))
        found.append(replace(model, context_length=length, context_is_assumed=False) if length else model)
    return found


def _as_shown(model: UpstreamModel, page: Page) -> UpstreamModel:
    payload = page.json
    written = _NUM_CTX.search(str(told(payload, "parameters") or ""))
    info = told(payload, "model_info")
    trained = next(
        (
            tokens(value)
            for key, value in (info.items() if isinstance(info, dict) else ())
            if str(key).endswith(".context_length")
        ),
        None,
    )
    return replace(
        model,
        context_length=int(written[1]) if written else min(trained or _SMALLEST_DEFAULT, _SMALLEST_DEFAULT),
        context_is_assumed=written is None,
        thinks=mentions(payload, "capabilities", "thinking"),
    )


async def _sees(site: Site, model: str) -> bool | None:
    return mentions((await site.look("api/show", {"model": model})).json, "capabilities", "vision")


class Daemon:
    """A request without a prompt loads, one that keeps for no time unloads."""

    keeps_warm = True
    whole = False
    wakes_by_itself = True
    switched_off = ""

    async def loaded(self, site: Site) -> Sequence[LoadedModel] | None:
        there = {str(entry.get("name")): entry for entry in listed(await site.get("api/ps"), "models")}
        names = [str(entry.get("name")) for entry in listed(await site.look("api/tags"), "models")]
        return [
            _state_of(name, there.get(name))
            for name in dict.fromkeys([*there, *names])
            if not LEAVES_THE_HOUSE.search(name)
        ]

    async def load(self, site: Site, model: str, keep: bool, /) -> None:
        await self._generate(site, model, {"keep_alive": -1} if keep else {})

    async def unload(self, site: Site, model: str, /) -> None:
        await self._generate(site, model, {"keep_alive": 0})

    async def _generate(self, site: Site, model: str, how: dict[str, int]) -> None:
        await site.post("api/generate", {"model": model, "stream": False, **how}, seconds=LOAD_SECONDS)


def _state_of(name: str, entry: dict[str, object] | None) -> LoadedModel:
    if entry is None:
        return LoadedModel(name, ModelState.UNLOADED)
    size = entry.get("size_vram")
    return LoadedModel(
        name,
        ModelState.LOADED,
        tokens(entry.get("context_length")),
        size if type(size) is int and size >= 0 else None,
        _moment(entry.get("expires_at")),
    )


def _moment(text: object) -> datetime | None:
    """None also for the far future, which is how it writes "for ever"."""
    with suppress(ValueError, OverflowError):
        found = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", str(text)))
        return found if found.tzinfo and found.year < 2100 else None
    return None


OLLAMA = Dialect(
    kind=Kind.OLLAMA,
    name="Ollama",
    think=_think,
    not_here=LEAVES_THE_HOUSE,
    version=Version("api/version", "version"),
    describe=_describe,
    sees=_sees,
    lifecycle=Daemon(),
)

"""Models that an engine loads and unloads when it is told to."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from backend.engines.pages import Site

LOAD_SECONDS = 600.0
"""A large model comes from a slow disk; an engine that answers at once costs nothing of it."""


class ModelState(StrEnum):
    LOADED = "loaded"
    LOADING = "loading"
    UNLOADED = "unloaded"
    SLEEPING = "sleeping"  # its weights are in main memory, not on the GPU


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model as its engine holds it; None is not told."""

    name: str
    state: ModelState
    context_length: int | None = None
    gpu_bytes: int | None = None
    until: datetime | None = None
    """When it will be unloaded unless somebody uses it. None: it stays, or the engine does not say."""


class Lifecycle(Protocol):
    """Every method raises `EngineFailed`; `load` returns when the model is loaded, or is on its way."""

    keeps_warm: bool
    """What is loaded with `keep` stays until it is unloaded."""
    whole: bool
    """It loads and unloads all of its models at once."""
    wakes_by_itself: bool
    """A question loads a model that is not there; elsewhere it would wait until an admin loads it."""

    switched_off: str
    """What to do where it has this switched off; empty for one that always can."""

    async def loaded(self, site: Site) -> Sequence[LoadedModel] | None:
        """What is loaded, and what could be where the engine tells that too. None: it has this switched off."""

    async def load(self, site: Site, model: str, keep: bool, /) -> None: ...

    async def unload(self, site: Site, model: str, /) -> None:
        """Answers that are being written may end first; not every engine lets them."""

"""Small things an engine tells on pages of its own, and what is read from them: nothing is believed to have a shape."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import orjson
from yarl import URL

from backend.core.text import clean
from backend.engines.events import EngineFailed, Failure
from backend.engines.failures import failed
from backend.engines.request import JSON

MAX_MODELS = 1_000
MAX_NAME = 300


@dataclass(frozen=True, slots=True)
class UpstreamModel:
    """A model as its engine describes it; None is not told."""

    id: str
    owned_by: str = ""
    context_length: int | None = None
    revision: str | None = None  # of the weights
    context_is_assumed: bool = False  # the engine chooses it when it loads the model, and has not yet
    thinks: bool | None = None


class Page(NamedTuple):
    body: bytes
    headers: Mapping[str, str] = {}  # with names that are compared without regard to case

    @property
    def json(self) -> object:
        """None for what is no JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None


class Fetch(Protocol):
    async def __call__(self, url: URL, body: JSON = None, *, seconds: float | None = None) -> Page:
        """With a `body` it is a POST. Raises `EngineFailed`."""


@dataclass(frozen=True, slots=True)
class Site:
    """The pages of one engine."""

    fetch: Fetch
    api: URL  # with `/v1`
    root: URL  # the server around it

    def beside(self, path: str) -> URL:
        """`/props`, wherever the server's own root is."""
        return self.root.joinpath(*path.strip("/").split("/"))

    async def get(self, path: str) -> Page:
        return await self.fetch(self.beside(path))

    async def post(self, path: str, body: JSON, *, seconds: float | None = None) -> Page:
        return await self.fetch(self.beside(path), body, seconds=seconds)

    async def look(self, path: str, body: JSON = None) -> Page:
        """An empty page where there is none: a router in front of an engine passes on less than the engine has."""
        return await self.look_at(self.beside(path), body)

    async def look_at(self, url: URL, body: JSON = None) -> Page:
        try:
            return await self.fetch(url, body)
        except EngineFailed:
            return Page(b"")


def read_models(page: Page) -> list[UpstreamModel]:
    """The models on a `/v1/models` page; entries that make no sense are passed over."""
    entries = model_entries(page)
    lengths = {name: _length(entry) for entry in entries if isinstance(name := entry.get("id"), str)}
    models = []
    for entry in entries[:MAX_MODELS]:
        name = entry.get("id")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or clean(name) != name:
            continue
        # An adapter on vLLM has no length of its own; its base model does.
        length = _length(entry) or lengths.get(words(entry.get("parent")) or "")
        models.append(UpstreamModel(name, words(entry.get("owned_by")) or "", length, words(entry.get("root"))))
    return models


def model_entries(page: Page) -> list[dict[str, object]]:
    """Raises `EngineFailed` for a page that is no list of models."""
    payload = page.json
    data = payload.get("data") if isinstance(payload, dict) else None
    if not isinstance(data, list):
        raise failed(Failure.NONSENSE, page.body[:500].decode("utf-8", "replace"))
    return [entry for entry in data if isinstance(entry, dict)]


def _length(entry: Mapping[str, object]) -> int | None:
    """vLLM and SGLang say `max_model_len`, llama.cpp `meta.n_ctx` (per slot), some hosts `context_length`."""
    meta = entry.get("meta")
    told = meta.get("n_ctx") if isinstance(meta, dict) else entry.get("context_length")
    return tokens(entry.get("max_model_len")) or tokens(told)


def listed(page: Page, key: str) -> Iterator[dict[str, object]]:
    """The objects of a list that stands under `key`."""
    payload = page.json
    entries = payload.get(key) if isinstance(payload, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            yield entry


def one_of(page: Page, entries: str, key: str, name: str) -> dict[str, object]:
    """What a list says about the one that is called `name`; nothing where it is missing."""
    return next((entry for entry in listed(page, entries) if entry.get(key) == name), {})


def told(payload: object, *path: str) -> object:
    """What stands at the end of a path of keys; None where the path ends early."""
    for key in path:
        payload = payload.get(key) if isinstance(payload, dict) else None
    return payload


def mentions(payload: object, key: str, word: str) -> bool | None:
    """Whether a list of words has this one; None where there is no list."""
    found = told(payload, key)
    return word in found if isinstance(found, list) else None


def truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def tokens(value: object) -> int | None:
    return value if type(value) is int and 0 < value < 2**31 else None


def words(value: object, most: int = MAX_NAME) -> str | None:
    """A short text that may be shown and stored."""
    return (clean(value)[:most] or None) if isinstance(value, str) else None

"""What an engine says about itself: which kind it is, which version, and which models it serves."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

import orjson
from yarl import URL

from backend.core.text import clean
from backend.engines.events import EngineFailed, Failure
from backend.engines.failures import failed
from backend.engines.request import JSON

MAX_MODELS = 1_000
MAX_NAME = 300
_MAX_VERSION = 80


class Kind(StrEnum):
    """`OPENAI` is everything that speaks the protocol and shows no other sign."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TRTLLM = "trtllm"
    LLAMACPP = "llamacpp"
    OLLAMA = "ollama"
    LMSTUDIO = "lmstudio"
    TGI = "tgi"
    OPENAI = "openai"


@dataclass(frozen=True, slots=True)
class UpstreamModel:
    id: str
    owned_by: str = ""
    context_length: int | None = None
    root: str | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    kind: Kind
    version: str | None
    models: list[UpstreamModel]


class Page(NamedTuple):
    body: bytes
    server: str


class Fetch(Protocol):
    async def __call__(self, url: URL, body: JSON = None) -> Page:
        """With a `body` it is a POST. Raises `EngineFailed`."""


_OWNERS = {
    "vllm": Kind.VLLM,
    "sglang": Kind.SGLANG,
    "tensorrt_llm": Kind.TRTLLM,
    "llamacpp": Kind.LLAMACPP,
}
# Where each kind tells its version, and under which key.
_VERSIONS = {
    Kind.VLLM: ("version", "version"),
    Kind.SGLANG: ("server_info", "version"),
    Kind.TRTLLM: ("version", "version"),
    Kind.LLAMACPP: ("props", "build_info"),
    Kind.OLLAMA: ("api/version", "version"),
    Kind.TGI: ("info", "version"),
}


async def probe(fetch: Fetch, base: URL, root: URL) -> Probe:
    """At most four small requests. Raises `EngineFailed` when there is no list of models to be had."""
    page = await fetch(base / "models")
    models = read_models(page)
    kind = _kind_by_models(page) or await _kind_by_looks(fetch, root)
    return Probe(kind, await _version(fetch, root, kind), models)


async def sees(fetch: Fetch, base: URL, root: URL, kind: str | None, model: str) -> bool | None:
    """Whether `model` takes pictures, from what the engine tells; None where it tells nothing. One or two requests."""
    match kind:
        case Kind.OLLAMA:
            page = await _try(fetch, root / "api" / "show", {"model": model})
            return _lists(_json(page), "capabilities", "vision")
        case Kind.LMSTUDIO:
            page = await _try(fetch, root / "api" / "v1" / "models")
            return _tells(_entry(page, "models", "key", model), "capabilities", "vision")
        case Kind.LLAMACPP | Kind.OPENAI:
            page = await _try(fetch, base / "models")
            told = _lists(_entry(page, "data", "id", model).get("architecture"), "input_modalities", "image")
            if told is None and kind == Kind.LLAMACPP:
                told = _tells(_json(await _try(fetch, root / "props")), "modalities", "vision")
            return told
    return None


def read_models(page: Page) -> list[UpstreamModel]:
    """The models on a `/v1/models` page; entries that make no sense are passed over."""
    entries = _entries(page)
    lengths = {entry.get("id"): _length(entry) for entry in entries}
    models = []
    for entry in entries[:MAX_MODELS]:
        name = entry.get("id")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or clean(name) != name:
            continue
        owner, root = entry.get("owned_by"), entry.get("root")
        models.append(
            UpstreamModel(
                name,
                owner[:MAX_NAME] if isinstance(owner, str) else "",
                # An adapter on vLLM has none of its own; its base model does.
                _length(entry) or lengths.get(entry.get("parent")),
                root[:MAX_NAME] if isinstance(root, str) else None,
            )
        )
    return models


def _entries(page: Page) -> list[dict[str, object]]:
    payload = _json(page)
    data = payload.get("data") if isinstance(payload, dict) else None
    if not isinstance(data, list):
        raise failed(Failure.NONSENSE, page.body[:500].decode("utf-8", "replace"))
    return [entry for entry in data if isinstance(entry, dict)]


def _length(entry: dict[str, object]) -> int | None:
    """vLLM and SGLang say `max_model_len`, llama.cpp `meta.n_ctx` (per slot), some hosts `context_length`."""
    meta = entry.get("meta")
    found = entry.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else entry.get("context_length"))
    return found if type(found) is int and 0 < found < 2**31 else None


def _kind_by_models(page: Page) -> Kind | None:
    payload = _json(page)
    if page.server == "llama.cpp" or (isinstance(payload, dict) and "models" in payload):
        return Kind.LLAMACPP
    for entry in _entries(page)[:1]:
        owner = entry.get("owned_by")
        if isinstance(owner, str) and owner in _OWNERS:
            return _OWNERS[owner]
        if owner == entry.get("id") and entry.get("created") == 0:
            return Kind.TGI
    return None


async def _kind_by_looks(fetch: Fetch, root: URL) -> Kind:
    """Ollama and LM Studio put people's names where others put their own, so they are asked about something else."""
    if (await _try(fetch, root / "")).body.strip() == b"Ollama is running":
        return Kind.OLLAMA
    if b'"loaded_instances"' in (await _try(fetch, root / "api" / "v1" / "models")).body:
        return Kind.LMSTUDIO
    return Kind.OPENAI


async def _version(fetch: Fetch, root: URL, kind: Kind) -> str | None:
    if kind not in _VERSIONS:
        return None
    path, key = _VERSIONS[kind]
    payload = _json(await _try(fetch, root.joinpath(*path.split("/"))))
    version = payload.get(key) if isinstance(payload, dict) else None
    if not isinstance(version, str) or "unknown" in version:  # "b0-unknown": built from no tag
        return None
    return clean(version)[:_MAX_VERSION] or None


def _entry(page: Page, entries: str, key: str, model: str) -> dict[str, object]:
    """What a list of models says about this one."""
    payload = _json(page)
    listed = payload.get(entries) if isinstance(payload, dict) else None
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and entry.get(key) == model:
            return entry
    return {}


def _lists(payload: object, field: str, word: str) -> bool | None:
    words = payload.get(field) if isinstance(payload, dict) else None
    return word in words if isinstance(words, list) else None


def _tells(payload: object, field: str, name: str) -> bool | None:
    answers = payload.get(field) if isinstance(payload, dict) else None
    answer = answers.get(name) if isinstance(answers, dict) else None
    return answer if isinstance(answer, bool) else None


async def _try(fetch: Fetch, url: URL, body: JSON = None) -> Page:
    """An empty page where there is none: a router in front of an engine passes on less than the engine has."""
    try:
        return await fetch(url, body)
    except EngineFailed:
        return Page(b"", "")


def _json(page: Page) -> object:
    try:
        return orjson.loads(page.body)
    except orjson.JSONDecodeError:
        return None

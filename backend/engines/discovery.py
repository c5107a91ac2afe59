"""What answers at an address: which kind of engine or router, which version, and which models it serves.

The list of models comes first, because without one nothing else matters. Routers are looked for before engines: they
pass on what the engines behind them say of themselves, some down to the header that names the server.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from backend.core.text import clean
from backend.engines import dialects
from backend.engines.dialects import Dialect
from backend.engines.kinds import Kind
from backend.engines.pages import Page, Site, UpstreamModel, listed, model_entries, read_models, told

_MAX_VERSION = 80

_HOSTS = (".openai.com", ".openai.azure.com")
_OWNERS = {
    "vllm": Kind.VLLM,
    "sglang": Kind.SGLANG,
    "tensorrt_llm": Kind.TRTLLM,
    "llamacpp": Kind.LLAMACPP,
}


@dataclass(frozen=True, slots=True)
class Probe:
    kind: Kind
    version: str | None
    models: Sequence[UpstreamModel]


class _Signs(NamedTuple):
    """Pages of which each kind has at most one; empty where there is none."""

    models: Page
    list_workers: Page
    workers: Page
    engines: Page
    front_page: Page
    lm_studio: Page
    lm_studio_before: Page


async def probe(site: Site, *, forced: Dialect | None = None) -> Probe:
    """A handful of small requests at once. Raises `EngineFailed` when there is no list of models to be had.

    With a dialect that is `forced`, version and models are read in that one, whatever the signs say.
    """
    page = await site.fetch(site.api / "models")
    found = read_models(page)
    kind = Kind.HOSTED if _is_hosted(site, page) else _judge(await _signs(site, page))
    dialect = forced or dialects.of(kind)
    described, version = await asyncio.gather(_described(site, dialect, found, thorough=True), _version(site, dialect))
    return Probe(kind, version, described)


async def models(site: Site, dialect: Dialect) -> Sequence[UpstreamModel]:
    """What the engine serves, without what costs a request a model."""
    return await _described(site, dialect, read_models(await site.fetch(site.api / "models")), thorough=False)


async def _described(
    site: Site, dialect: Dialect, found: Sequence[UpstreamModel], *, thorough: bool
) -> Sequence[UpstreamModel]:
    return await dialect.describe(site, found, thorough) if dialect.describe else found


async def _version(site: Site, dialect: Dialect) -> str | None:
    if dialect.version is None:
        return None
    version = told((await site.look(dialect.version.page)).json, dialect.version.key)
    if not isinstance(version, str) or "unknown" in version:  # "b0-unknown": built from no tag
        return None
    return clean(version)[:_MAX_VERSION] or None


def _is_hosted(site: Site, page: Page) -> bool:
    host = f".{site.api.host or ''}"
    return host.endswith(_HOSTS) or "openai-processing-ms" in page.headers or "openai-version" in page.headers


async def _signs(site: Site, page: Page) -> _Signs:
    paths = ("list_workers", "workers", "engines", "", "api/v1/models", "api/v0/models")
    return _Signs(page, *await asyncio.gather(*(site.look(path) for path in paths)))


def _judge(signs: _Signs) -> Kind:
    return _front(signs) or _by_models(signs.models) or _by_looks(signs)


def _front(signs: _Signs) -> Kind | None:
    if isinstance(told(signs.list_workers.json, "urls"), list):
        return Kind.VLLM_ROUTER
    if isinstance(told(signs.workers.json, "workers"), list):
        return Kind.SMG
    engines = signs.engines.json
    if isinstance(engines, list) and any(isinstance(told(engine, "serving_models"), list) for engine in engines):
        return Kind.PRODUCTION_STACK
    headers = signs.models.headers
    is_envoy = headers.get("Server", "").lower() == "envoy" or "x-envoy-upstream-service-time" in headers
    return Kind.LLMD if is_envoy and _by_models(signs.models) is Kind.VLLM else None


def _by_models(page: Page) -> Kind | None:
    payload = page.json
    if page.headers.get("Server") == "llama.cpp" or (isinstance(payload, dict) and "models" in payload):
        return Kind.LLAMACPP
    for entry in model_entries(page)[:1]:
        owner = entry.get("owned_by")
        if isinstance(owner, str) and owner in _OWNERS:
            return _OWNERS[owner]
        if owner == entry.get("id") and entry.get("created") == 0:
            return Kind.TGI
    return None


def _by_looks(signs: _Signs) -> Kind:
    """Ollama and LM Studio put people's names where others put their own, so they are known by something else."""
    if signs.front_page.body.strip() == b"Ollama is running":
        return Kind.OLLAMA
    if any("loaded_instances" in entry for entry in listed(signs.lm_studio, "models")):
        return Kind.LMSTUDIO
    if any("state" in entry for entry in listed(signs.lm_studio_before, "data")):
        return Kind.LMSTUDIO
    return Kind.OPENAI

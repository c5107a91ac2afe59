"""What a running engine says about its own room: better than any arithmetic, because it has measured.

vLLM tells the size of its KV cache as labels of `vllm:cache_config_info` (vllm/v1/metrics/loggers.py): newer versions
`kv_cache_size_tokens`, older ones only `num_gpu_blocks` times `block_size`; one line for each engine core behind the
server, and they add up. llama.cpp gives each of its slots a context of its own (`/props`, `total_slots` and `n_ctx`).
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson

from backend.bench import capacity

_MOST = 2**40
_INFO = re.compile(r"^vllm:cache_config_info\{([^\n]*)\}[ \t]", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"\n]*)"')

Fetch = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Room:
    """Either `tokens` that all conversations share, or `slots` for conversations of at most `context` tokens each."""

    tokens: int | None = None
    block: int = capacity.BLOCK
    slots: int | None = None
    context: int | None = None

    def people(self, context: int) -> int:
        if self.tokens is not None:
            return capacity.people(self.tokens, context, self.block)
        return self.slots or 0 if context <= (self.context or 0) else 0

    def by_context(self) -> list[tuple[int, int]]:
        return [(context, count) for context in capacity.CONTEXTS if (count := self.people(context)) > 0]


async def read(fetch: Fetch, kind: str | None) -> Room | None:
    """None where this kind of engine does not say. `fetch` gets a page by its path and raises `EngineFailed`."""
    match kind:
        case "vllm":
            return of_vllm(await fetch("metrics"))
        case "llamacpp":
            return of_llamacpp(await fetch("props"))
    return None


def of_vllm(page: bytes) -> Room | None:
    tokens = block = 0
    for line in _INFO.findall(page.decode("utf-8", "replace")):
        labels = dict(_LABEL.findall(line))
        block = _count(labels.get("block_size")) or capacity.BLOCK
        tokens += _count(labels.get("kv_cache_size_tokens")) or (_count(labels.get("num_gpu_blocks")) or 0) * block
    return Room(tokens=tokens, block=block) if tokens else None


def of_llamacpp(page: bytes) -> Room | None:
    try:
        props = orjson.loads(page)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(props, dict):
        return None
    settings = props.get("default_generation_settings")
    slots = _whole(props.get("total_slots"))
    context = _whole(settings.get("n_ctx")) if isinstance(settings, dict) else None
    return Room(slots=slots, context=context) if slots and context else None


def _count(digits: str | None) -> int | None:
    return _whole(int(digits)) if digits and digits.isdecimal() and len(digits) < 16 else None


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 < value < _MOST else None

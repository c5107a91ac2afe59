"""vLLM: fields it does not know are passed over; what it can do beyond OpenAI's protocol it says in its own names."""

import re
from collections.abc import Sequence

from backend.core.i18n import _
from backend.engines.counting import Counter, field
from backend.engines.dialects.dialect import Continuation, Dialect, Fields, Version
from backend.engines.dialects.lifecycle import LOAD_SECONDS, LoadedModel, ModelState
from backend.engines.events import EngineFailed, Failure
from backend.engines.kinds import Kind
from backend.engines.metrics import Metrics, Number
from backend.engines.pages import Page, Site, read_models, told
from backend.engines.request import Thinking
from backend.engines.room import BLOCK, Room, RoomPage, count

ROUTED = ("X-Session-ID", "x-smg-routing-key")
"""By these, vllm-router and SGLang's gateway keep a conversation on one engine."""

FAIRNESS = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
"""By these, llm-d shares out between people: its own name, and the one before its version 0.9."""


def lower_first(urgency: int) -> float:
    return urgency


def by_template(thinking: Thinking) -> Fields:
    """Chat templates name the switch in one of two ways; an effort is for those that know one."""
    if not thinking:
        return {}
    on = thinking != "off"
    fields: Fields = {"chat_template_kwargs": {"enable_thinking": on, "thinking": on}}
    return fields if thinking in ("off", "on") else fields | {"reasoning_effort": thinking}


class Sleep:
    """All of its models at once, and only on a server started with `VLLM_SERVER_DEV_MODE=1 --enable-sleep-mode`."""

    keeps_warm = False
    whole = True
    wakes_by_itself = False
    switched_off = _("If you want that, start it with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode.")

    async def loaded(self, site: Site) -> Sequence[LoadedModel] | None:
        try:
            page = await site.get("is_sleeping")
        except EngineFailed as failure:
            if failure.kind is Failure.NONSENSE:
                return None
            raise
        state = ModelState.SLEEPING if told(page.json, "is_sleeping") is True else ModelState.LOADED
        models = read_models(await site.fetch(site.api / "models"))
        return [LoadedModel(model.id, state, model.context_length) for model in models]

    async def load(self, site: Site, _model: str, _keep: bool, /) -> None:
        await site.post("wake_up", {}, seconds=LOAD_SECONDS)

    async def unload(self, site: Site, _model: str, /) -> None:
        """Answers that are being written end first."""
        await site.fetch(site.beside("sleep").with_query(level=1, mode="wait"), {}, seconds=LOAD_SECONDS)


METRICS = Metrics(
    "metrics",
    {
        Number.RUNNING: ("vllm:num_requests_running",),
        Number.WAITING: ("vllm:num_requests_waiting",),
        Number.KV: ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        Number.HITS: ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        Number.QUERIES: ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
        Number.HIT_RATE: ("vllm:gpu_prefix_cache_hit_rate",),
        Number.TTFT_SUM: ("vllm:time_to_first_token_seconds_sum",),
        Number.TTFT_COUNT: ("vllm:time_to_first_token_seconds_count",),
        Number.GENERATED: ("vllm:generation_tokens_total", "vllm:generation_tokens"),
    },
    missing=_("vLLM tells it by itself; something in front of it keeps the page /metrics back."),
)

_INFO = re.compile(r"^vllm:cache_config_info\{([^\n]*)\}[ \t]", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"\n]*)"')


def _room(page: Page) -> Room | None:
    """The size of the KV cache stands in labels (vllm/v1/metrics/loggers.py): in newer versions as
    `kv_cache_size_tokens`, in older ones only as `num_gpu_blocks` times `block_size`. There is one line for each engine
    core behind the server, and they add up."""
    tokens = block = 0
    for line in _INFO.findall(page.body.decode("utf-8", "replace")):
        labels = dict(_LABEL.findall(line))
        block = _count(labels.get("block_size")) or BLOCK
        tokens += _count(labels.get("kv_cache_size_tokens")) or (_count(labels.get("num_gpu_blocks")) or 0) * block
    return Room(tokens=tokens, block=block) if tokens else None


def _count(digits: str | None) -> int | None:
    return count(int(digits)) if digits and digits.isdecimal() and len(digits) < 16 else None


VLLM = Dialect(
    kind=Kind.VLLM,
    name="vLLM",
    salted=True,
    priority=lower_first,
    think=by_template,
    session_headers=ROUTED,  # it may be a router that shows no sign of its own
    fairness_headers=FAIRNESS,
    continuation=Continuation.OBEYED,
    refuses_pictures=True,
    counter=Counter("tokenize", field("count")),
    version=Version("version", "version"),
    health_path="health",
    metrics=METRICS,
    room=RoomPage("metrics", _room),
    lifecycle=Sleep(),
)

"""SGLang: like vLLM in most things, and the other way round in one, its priorities."""

from backend.core.i18n import _
from backend.engines.counting import Counter, field
from backend.engines.dialects.dialect import Continuation, Dialect, Version
from backend.engines.dialects.vllm import FAIRNESS, ROUTED, by_template
from backend.engines.kinds import Kind
from backend.engines.metrics import Metrics, Number


def higher_first(urgency: int) -> float:
    return -urgency


_METRICS = Metrics(
    "metrics",
    {
        Number.RUNNING: ("sglang:num_running_reqs",),
        Number.WAITING: ("sglang:num_queue_reqs",),
        Number.KV: ("sglang:token_usage",),
        Number.HIT_RATE: ("sglang:cache_hit_rate",),
        Number.TTFT_SUM: ("sglang:time_to_first_token_seconds_sum",),
        Number.TTFT_COUNT: ("sglang:time_to_first_token_seconds_count",),
        Number.GENERATED: ("sglang:generation_tokens_total",),
    },
    missing=_("Start it with --enable-metrics."),
)

# Its `/health` generates a token, which may take seconds under load; the list of models is sign of life enough.
SGLANG = Dialect(
    kind=Kind.SGLANG,
    name="SGLang",
    salted=True,
    priority=higher_first,
    think=by_template,
    session_headers=ROUTED,
    fairness_headers=FAIRNESS,
    continuation=Continuation.OBEYED,
    counter=Counter("tokenize", field("count")),
    version=Version("server_info", "version"),
    metrics=_METRICS,
)

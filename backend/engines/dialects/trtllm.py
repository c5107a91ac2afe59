"""TensorRT-LLM (trtllm-serve): any field it does not know is an error, and it tells no context length."""

from backend.core.i18n import _
from backend.engines.dialects.dialect import Continuation, Dialect, Fields, Version
from backend.engines.kinds import Kind
from backend.engines.metrics import Metrics, Number
from backend.engines.request import Thinking


def _think(thinking: Thinking) -> Fields:
    """Newer versions refuse an option that the chat template does not read, so there is one and no more."""
    if thinking in ("off", "on"):
        return {"chat_template_kwargs": {"enable_thinking": thinking == "on"}}
    return {"reasoning_effort": thinking} if thinking else {}


def a_share_of_one(urgency: int) -> float:
    """Between 0 and 1, the higher first; 0.5 is what a request without has."""
    return (0.9, 0.5, 0.1)[min(max(urgency, 0), 2)]


_METRICS = Metrics(
    "prometheus/metrics",
    {
        Number.KV: ("trtllm_kv_cache_utilization",),
        Number.HIT_RATE: ("trtllm_kv_cache_hit_rate",),
        Number.TTFT_SUM: ("trtllm_time_to_first_token_seconds_sum",),
        Number.TTFT_COUNT: ("trtllm_time_to_first_token_seconds_count",),
    },
    missing=_("Start it with return_perf_metrics: true in its options."),
)

TRTLLM = Dialect(
    kind=Kind.TRTLLM,
    name="TensorRT-LLM",
    strict=True,
    salted=True,
    priority=a_share_of_one,
    think=_think,
    continuation=Continuation.REFUSED,
    version=Version("version", "version"),
    health_path="health",
    metrics=_METRICS,
)

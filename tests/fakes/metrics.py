"""`GET /metrics` with vLLM's names, as far as anything reads them."""

from collections import Counter
from collections.abc import Mapping

_BUCKETS = (0.001, 0.01, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 40.0, 160.0, 640.0)


class Histogram:
    def __init__(self, name: str) -> None:
        self.name = name
        self.values: list[float] = []

    def observe(self, seconds: float) -> None:
        self.values.append(seconds)

    def lines(self, model: str) -> list[str]:
        lines = [f"# TYPE vllm:{self.name} histogram"]
        for bound in (*_BUCKETS, float("inf")):
            count = sum(value <= bound for value in self.values)
            label = "+Inf" if bound == float("inf") else str(bound)
            lines.append(f'vllm:{self.name}_bucket{{engine="0",le="{label}",model_name="{model}"}} {float(count)}')
        lines.append(f'vllm:{self.name}_count{{engine="0",model_name="{model}"}} {float(len(self.values))}')
        lines.append(f'vllm:{self.name}_sum{{engine="0",model_name="{model}"}} {sum(self.values)}')
        return lines


class Counters:
    """Aborted requests are counted nowhere: vLLM does not either."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.rejected = 0
        self.successes: Counter[str] = Counter()
        self.first_token = Histogram("time_to_first_token_seconds")
        self.whole_request = Histogram("e2e_request_latency_seconds")

    def finished(self, reason: str, tokens: int, seconds: float) -> None:
        self.successes[reason] += 1
        self.generation_tokens += tokens
        self.whole_request.observe(seconds)

    def text(self, model: str, gauges: Mapping[str, float], totals: Mapping[str, int]) -> str:
        counters = {
            **totals,
            "prompt_tokens": self.prompt_tokens,
            "prompt_tokens_cached": self.cached_tokens,
            "generation_tokens": self.generation_tokens,
            "num_preemptions": 0,
        }
        lines: list[str] = []
        for name, value in gauges.items():
            lines += [f"# TYPE vllm:{name} gauge", f'vllm:{name}{{engine="0",model_name="{model}"}} {float(value)}']
        for name, count in counters.items():
            labels = f'engine="0",model_name="{model}"'
            lines += [f"# TYPE vllm:{name}_total counter", f"vllm:{name}_total{{{labels}}} {float(count)}"]
        for reason in ("stop", "length", "abort", "error", "repetition"):
            labels = f'engine="0",finished_reason="{reason}",model_name="{model}"'
            lines.append(f"vllm:request_success_total{{{labels}}} {float(self.successes[reason])}")
        lines.append('vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="5824"} 1.0')
        labels = f'model_name="{model}",reason="max_num_queued_reqs"'
        lines.append(f"vllm:admission_rejections_total{{{labels}}} {float(self.rejected)}")
        return "\n".join(lines + self.first_token.lines(model) + self.whole_request.lines(model)) + "\n"

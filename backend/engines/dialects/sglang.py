"""SGLang: like vLLM in most things, and the other way round in one, its priorities."""

from backend.engines.counting import Counter, field
from backend.engines.dialects.dialect import Continuation, Dialect, Version
from backend.engines.dialects.vllm import FAIRNESS, ROUTED, by_template
from backend.engines.kinds import Kind


def higher_first(urgency: int) -> float:
    return -urgency


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
)

"""Routers that stand before several engines. They pass on what the engines behind them know, and look at headers."""

from collections.abc import Sequence
from dataclasses import replace

from backend.engines.dialects.dialect import Continuation
from backend.engines.dialects.sglang import SGLANG
from backend.engines.dialects.vllm import VLLM
from backend.engines.kinds import Kind
from backend.engines.pages import Site, UpstreamModel, tokens, told


async def _describe(site: Site, models: Sequence[UpstreamModel], thorough: bool) -> Sequence[UpstreamModel]:
    """Its list leaves the context out; who counts a word is told it too."""
    if not thorough:
        return models
    found = []
    for model in models:
        if model.context_length is None:
            page = await site.look("tokenize", {"model": model.id, "prompt": "Hi"})
            model = replace(model, context_length=tokens(told(page.json, "max_model_len")))
        found.append(model)
    return found


VLLM_ROUTER = replace(
    VLLM,
    kind=Kind.VLLM_ROUTER,
    name="vllm-router",
    refuses_pictures=False,  # any engine may be behind it
    describe=_describe,
    health_path=None,  # it says 503 as soon as one of its workers is away, and answers by the others all the same
    metrics=None,
    room=None,
    lifecycle=None,
)

# It reads a request into fields of its own and may lose those it does not know, the salt and the opening of a turn
# among them; so whether an answer is continued has to be seen twice.
SMG = replace(
    SGLANG,
    kind=Kind.SMG,
    name="SGLang gateway",
    continuation=Continuation.PASSED_OVER,
    version=None,
    metrics=None,
)

PRODUCTION_STACK = replace(
    VLLM_ROUTER, kind=Kind.PRODUCTION_STACK, name="vLLM production stack", health_path=VLLM.health_path
)

LLMD = replace(VLLM_ROUTER, kind=Kind.LLMD, name="llm-d")  # its gateway need not pass `/health` on

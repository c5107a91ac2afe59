"""Hugging Face's text-generation-inference: narrower bounds than the others, and a schema under another key."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from backend.core.i18n import _
from backend.engines.counting import Counter, length_of
from backend.engines.dialects.dialect import Dialect, Fields, Version
from backend.engines.kinds import Kind
from backend.engines.metrics import Metrics, Number
from backend.engines.pages import Site, UpstreamModel, tokens, told, words


async def _describe(site: Site, models: Sequence[UpstreamModel], _thorough: bool) -> Sequence[UpstreamModel]:
    payload = (await site.look("info")).json
    length, revision = tokens(told(payload, "max_total_tokens")), words(told(payload, "sha"))
    return [replace(model, context_length=length, revision=revision) for model in models]


def _adjust(options: Fields, _model: str) -> Fields:
    """A temperature of 0 and a top_p of 1 are errors; without them it does what they ask for."""
    if options.get("temperature") == 0:
        options = options | {"temperature": None}
    top_p = options.get("top_p")
    if isinstance(top_p, int | float) and not 0 < top_p < 1:
        options = options | {"top_p": None}
    wanted = options.get("response_format")
    if isinstance(wanted, Mapping) and wanted.get("type") != "text":
        asked = wanted.get("json_schema")
        schema = asked.get("schema") if isinstance(asked, Mapping) else None
        return options | {"response_format": {"type": "json_object", "value": schema or {"type": "object"}}}
    return options | {"response_format": None}


_METRICS = Metrics(
    "metrics",
    {
        Number.RUNNING: ("tgi_batch_current_size",),
        Number.WAITING: ("tgi_queue_size",),
        Number.GENERATED: ("tgi_request_generated_tokens_sum",),
    },
    missing=_("TGI tells it by itself; something in front of it keeps the page /metrics back."),
)

TGI = Dialect(
    kind=Kind.TGI,
    name="TGI",
    adjust=_adjust,
    counter=Counter("chat_tokenize", length_of("tokenize_response")),
    version=Version("info", "version"),
    describe=_describe,
    health_path="health",
    metrics=_METRICS,
)

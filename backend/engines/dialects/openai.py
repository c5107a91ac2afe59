"""The protocol as it is written down, for servers nobody knows, and OpenAI's own service, which is stricter."""

import re

from backend.engines.dialects.dialect import Continuation, Dialect, Fields
from backend.engines.dialects.vllm import FAIRNESS, ROUTED
from backend.engines.kinds import Kind
from backend.engines.pages import Site, mentions, one_of
from backend.engines.request import Thinking

_REASONING_MODEL = re.compile(r"^(o\d|gpt-[5-9])", re.IGNORECASE)
_REFUSED_BY_THEM = ("temperature", "top_p", "stop")


def _effort(thinking: Thinking) -> Fields:
    """Off and on have no word that everybody knows."""
    return {"reasoning_effort": thinking} if thinking in ("low", "medium", "high") else {}


async def _sees(site: Site, model: str) -> bool | None:
    """Some hosts say so in their list."""
    entry = one_of(await site.look_at(site.api / "models"), "data", "id", model)
    return mentions(entry.get("architecture"), "input_modalities", "image")


def _adjust_for_hosted(options: Fields, model: str) -> Fields:
    if not _REASONING_MODEL.search(model):
        return options
    return {name: value for name, value in options.items() if name not in _REFUSED_BY_THEM}


PLAIN = Dialect(
    kind=Kind.OPENAI,
    name="OpenAI’s protocol",
    think=_effort,
    session_headers=ROUTED,
    fairness_headers=FAIRNESS,
    sees=_sees,
)

HOSTED = Dialect(
    kind=Kind.HOSTED,
    name="OpenAI",
    strict=True,
    limit_field="max_completion_tokens",
    think=_effort,
    always={"store": False},
    stream_options={"include_obfuscation": False},
    adjust=_adjust_for_hosted,
    continuation=Continuation.REFUSED,
)

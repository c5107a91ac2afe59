"""vLLM: fields it does not know are passed over; what it can do beyond OpenAI's protocol it says in its own names."""

from collections.abc import Sequence

from backend.engines.counting import Counter, field
from backend.engines.dialects.dialect import Continuation, Dialect, Fields, Version
from backend.engines.dialects.lifecycle import LOAD_SECONDS, LoadedModel, ModelState
from backend.engines.events import EngineFailed, Failure
from backend.engines.kinds import Kind
from backend.engines.pages import Site, read_models, told
from backend.engines.request import Thinking

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
    lifecycle=Sleep(),
)

"""The languages engines speak: one value for each kind, and `of` to find it."""

from backend.engines.dialects.dialect import Continuation, Dialect
from backend.engines.dialects.fronts import LLMD, PRODUCTION_STACK, SMG, VLLM_ROUTER
from backend.engines.dialects.lifecycle import Lifecycle, LoadedModel, ModelState
from backend.engines.dialects.llamacpp import LLAMACPP
from backend.engines.dialects.lmstudio import LMSTUDIO
from backend.engines.dialects.ollama import OLLAMA
from backend.engines.dialects.openai import HOSTED, PLAIN
from backend.engines.dialects.sglang import SGLANG
from backend.engines.dialects.tgi import TGI
from backend.engines.dialects.trtllm import TRTLLM
from backend.engines.dialects.vllm import VLLM
from backend.engines.kinds import Kind

__all__ = ["ALL", "Continuation", "Dialect", "Lifecycle", "LoadedModel", "ModelState", "of"]

ALL: dict[Kind, Dialect] = {
    dialect.kind: dialect
    for dialect in (
        VLLM, SGLANG, TRTLLM, LLAMACPP, OLLAMA, LMSTUDIO, TGI, PLAIN, HOSTED, VLLM_ROUTER, SMG, PRODUCTION_STACK, LLMD
    )
}  # fmt: skip


def of(kind: str | None) -> Dialect:
    """What nobody knows is spoken to in the protocol as it is written down."""
    return _BY_NAME.get(kind or "", PLAIN)


_BY_NAME: dict[str, Dialect] = {str(kind): dialect for kind, dialect in ALL.items()}

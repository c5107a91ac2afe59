"""The languages a fake engine speaks."""

from backend.engines.kinds import Kind
from tests.fakes.dialects.fronts import SMG, LlmD, ProductionStack, VllmRouter
from tests.fakes.dialects.llamacpp import LlamaCpp
from tests.fakes.dialects.lmstudio import LMStudio
from tests.fakes.dialects.ollama import Ollama
from tests.fakes.dialects.openai import Hosted, Plain
from tests.fakes.dialects.sglang import SGLang
from tests.fakes.dialects.tgi import TGI
from tests.fakes.dialects.trtllm import TRTLLM
from tests.fakes.dialects.vllm import VLLM

ALL: dict[Kind, VLLM] = {
    dialect.kind: dialect
    for dialect in (
        VLLM(), SGLang(), TRTLLM(), LlamaCpp(), Ollama(), LMStudio(), TGI(), Plain(), Hosted(), VllmRouter(), SMG(),
        ProductionStack(), LlmD(),
    )
}  # fmt: skip

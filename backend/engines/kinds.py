"""The kinds of servers Parley talks to: engines, and the routers that stand in front of several of them."""

from enum import StrEnum


class Kind(StrEnum):
    """`OPENAI` is everything that speaks the protocol and shows no other sign; `HOSTED` is OpenAI's own service."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TRTLLM = "trtllm"
    LLAMACPP = "llamacpp"
    OLLAMA = "ollama"
    LMSTUDIO = "lmstudio"
    TGI = "tgi"
    OPENAI = "openai"
    HOSTED = "hosted"

    VLLM_ROUTER = "vllm_router"
    SMG = "smg"  # SGLang's router, now called model gateway
    PRODUCTION_STACK = "production_stack"
    LLMD = "llmd"

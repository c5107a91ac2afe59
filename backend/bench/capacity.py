"""How many people fit into a GPU, by arithmetic. What it cannot know is how fast it is for them: that is measured.

An engine fills the memory of its GPUs with three things: the weights, what it computes with (activations, CUDA graphs,
the runtime), and for the rest the KV cache, in which every token of every running conversation takes its place. When
the cache is full, the next person waits, or somebody's conversation is thrown out and read again. So:

    cache per token  = 2 · layers · KV heads · head size · bytes          one key and one value in each layer
    room for tokens  = (memory · share − weights − working memory) / cache per token
    people           = room for tokens / tokens of one conversation

Sources: "Efficient Memory Management for Large Language Model Serving with PagedAttention" (SOSP 2023, §3) for the
first line, with OPT-13B as its example: 2 · 5120 · 40 · 2 bytes = 800 KB per token, 1.6 GB for a sequence of 2048.
vLLM's profiling at its start for the second, as logged in vllm-project/vllm issue 10517: total · gpu_memory_utilization
− peak − the rest; Llama 3.1 8B on a 3090 gets 31,232 tokens. And the line it logs for the third: "Maximum concurrency
for 20000 tokens per request: 1.56x". The tests hold both examples.

It does not hold for models that keep something else than that in every layer: compressed caches (MLA), windows, and
mixtures with linear attention need less. `shape_of` says so where it sees it; a running engine knows (`Room`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from backend.core.errors import BadInput
from backend.core.i18n import _
from backend.engines.room import BLOCK, Room

GIB = 2**30
CONTEXTS = (2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072)

WORKING_GIB = 2.5
"""Per GPU, for what vLLM computes with at its default settings; 2.42 in issue 10517."""


class Weights(StrEnum):
    """How the weights are stored."""

    F32 = "f32"
    F16 = "f16"
    FP8 = "fp8"
    INT4 = "int4"
    Q8_0 = "q8_0"
    Q6_K = "q6_k"
    Q5_K_M = "q5_k_m"
    Q4_K_M = "q4_k_m"


BITS: Mapping[Weights, float] = {
    Weights.F32: 32,
    Weights.F16: 16,
    Weights.FP8: 8,
    # AWQ and GPTQ with groups of 128: a scale of 16 bits and a zero point of 4 for each group.
    Weights.INT4: 4 + 20 / 128,
    # As llama.cpp's table for Llama 3.1 8B has them (tools/quantize/README.md).
    Weights.Q8_0: 8.5008,
    Weights.Q6_K: 6.5633,
    Weights.Q5_K_M: 5.7036,
    Weights.Q4_K_M: 4.8944,
}
WEIGHT_NAMES: Mapping[Weights, str] = {
    Weights.F32: "FP32",
    Weights.F16: "FP16 / BF16",
    Weights.FP8: "FP8 / INT8",
    Weights.INT4: "AWQ / GPTQ, 4 bit",
    Weights.Q8_0: "GGUF Q8_0",
    Weights.Q6_K: "GGUF Q6_K",
    Weights.Q5_K_M: "GGUF Q5_K_M",
    Weights.Q4_K_M: "GGUF Q4_K_M",
}


class Cache(StrEnum):
    """How the KV cache is stored."""

    F16 = "f16"
    FP8 = "fp8"
    Q8_0 = "q8_0"
    Q4_0 = "q4_0"


CACHE_BYTES: Mapping[Cache, float] = {
    Cache.F16: 2,
    Cache.FP8: 1,
    # Blocks of 32 values with a scale of 16 bits (ggml's block_q8_0 and block_q4_0).
    Cache.Q8_0: 34 / 32,
    Cache.Q4_0: 18 / 32,
}
CACHE_NAMES: Mapping[Cache, str] = {
    Cache.F16: "FP16 / BF16",
    Cache.FP8: "FP8",
    Cache.Q8_0: "GGUF Q8_0",
    Cache.Q4_0: "GGUF Q4_0",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A model as far as memory goes."""

    parameters: float
    layers: int
    kv_heads: int
    head_size: int


SHAPES: Mapping[str, Shape] = {
    "Llama 3.1 8B": Shape(8.03e9, 32, 8, 128),
    "Llama 3.3 70B": Shape(70.6e9, 80, 8, 128),
    "Mistral Small 24B": Shape(23.6e9, 40, 8, 128),
    "Qwen3 8B": Shape(8.19e9, 36, 8, 128),
    "Qwen3 30B A3B": Shape(30.5e9, 48, 4, 128),
    "Qwen3 32B": Shape(32.8e9, 64, 8, 128),
}


@dataclass(frozen=True, slots=True)
class Machine:
    """`gpus` alike, over which the model is spread (tensor parallelism)."""

    vram_gib: float = 24
    gpus: int = 1
    share: float = 0.92  # vLLM's default for `--gpu-memory-utilization`
    working_gib: float = WORKING_GIB


@dataclass(frozen=True, slots=True)
class Setup:
    """What is asked about; what-if is `dataclasses.replace` of a part."""

    shape: Shape
    machine: Machine
    weights: Weights = Weights.F16
    cache: Cache = Cache.F16
    context: int = 8_192  # tokens of one conversation: what is read and what is written


@dataclass(frozen=True, slots=True)
class Capacity:
    """All in bytes and tokens over all GPUs. Without room for the weights there are no tokens."""

    weights: float
    working: float
    cache: float
    cache_per_token: float
    tokens: int
    people: int
    missing: float  # so much memory that the model does not even start; 0 if it does


def of(setup: Setup) -> Capacity:
    machine = setup.machine
    usable = machine.vram_gib * GIB * machine.share * machine.gpus
    weights = weight_bytes(setup.shape.parameters, setup.weights)
    working = machine.working_gib * GIB * machine.gpus
    left = usable - weights - working
    per_token = machine.gpus * cache_bytes_per_token(setup.shape, setup.cache, machine.gpus)
    tokens = max(0, int(left / per_token) // BLOCK * BLOCK)
    return Capacity(weights, working, max(0.0, left), per_token, tokens, people(tokens, setup.context), max(0.0, -left))


def weight_bytes(parameters: float, weights: Weights) -> float:
    """Of a mixture of experts all count: those that are not used for a token are in memory all the same."""
    return parameters * BITS[weights] / 8


def cache_bytes_per_token(shape: Shape, cache: Cache, gpus: int = 1) -> float:
    """On each of `gpus`. KV heads are divided among them; with fewer heads than GPUs each GPU keeps a whole one."""
    heads = max(1.0, shape.kv_heads / gpus)
    return 2 * shape.layers * heads * shape.head_size * CACHE_BYTES[cache]


def people(tokens: int, context: int, block: int = BLOCK) -> int:
    """Conversations of `context` tokens that are in the cache at the same time."""
    return tokens // (-(-context // block) * block)


def by_context(tokens: int) -> list[tuple[int, int]]:
    """For each usual length of a conversation how many fit; lengths that fit not even once are left out."""
    return [(context, count) for context in CONTEXTS if (count := people(tokens, context)) > 0]


def people_in(room: Room, context: int) -> int:
    """The same for an engine that runs."""
    if room.tokens is not None:
        return people(room.tokens, context, room.block)
    return room.slots or 0 if context <= (room.context or 0) else 0


def by_context_in(room: Room, longest: int | None = None) -> list[tuple[int, int]]:
    """`longest` is what its models read at most; None: nobody knows."""
    lengths = [context for context in CONTEXTS if longest is None or context <= longest]
    return [(context, count) for context in lengths if (count := people_in(room, context)) > 0]


def what_if(setup: Setup) -> list[tuple[str, Setup]]:
    """The changes one thinks of first."""
    machine = setup.machine
    found = [
        (_("conversations twice as long"), replace(setup, context=setup.context * 2)),
        (_("conversations half as long"), replace(setup, context=max(BLOCK, setup.context // 2))),
        (
            _("{count} such GPUs").format(count=machine.gpus + 1),
            replace(setup, machine=replace(machine, gpus=machine.gpus + 1)),
        ),
    ]
    found += [
        (_("weights in {how}").format(how=WEIGHT_NAMES[weights]), replace(setup, weights=weights))
        for weights in (Weights.F16, Weights.FP8, Weights.INT4)
        if weights is not setup.weights
    ]
    other = Cache.F16 if setup.cache is Cache.FP8 else Cache.FP8
    found.append((_("KV cache in {how}").format(how=CACHE_NAMES[other]), replace(setup, cache=other)))
    return found


def make(
    *,
    parameters: float,
    layers: int,
    kv_heads: int,
    head_size: int,
    vram: float,
    gpus: int,
    share: float,
    working: float,
    context: int,
    weights: Weights,
    cache: Cache,
) -> Setup:
    """`parameters` in billions. Raises BadInput with a sentence for each number that is out of bounds."""
    given = {
        "parameters": (parameters, 0.001, 10_000),
        "layers": (layers, 1, 1_000),
        "kv_heads": (kv_heads, 1, 1_000),
        "head_size": (head_size, 1, 4_096),
        "vram": (vram, 0.1, 10_000),
        "gpus": (gpus, 1, 1_024),
        "share": (share, 0.1, 1),
        "working": (working, 0, 1_000),
        "context": (context, BLOCK, 100_000_000),
    }
    wrong = {
        name: _("A number from {low} to {high}.").format(low=f"{low:,}", high=f"{high:,}")
        for name, (value, low, high) in given.items()
        if not low <= value <= high
    }
    if wrong:
        raise BadInput(_("Please check the fields below."), fields=wrong)
    shape = Shape(parameters * 1e9, layers, kv_heads, head_size)
    return Setup(shape, Machine(vram, gpus, share, working), weights, cache, context)


def shape_of(config: Mapping[str, Any], parameters: float) -> Shape:
    """From a model's `config.json`, as Hugging Face's transformers writes it. Raises BadInput where it does not say
    enough, or where the arithmetic above would be wrong."""
    inner = config.get("text_config")
    found = inner if isinstance(inner, Mapping) else config
    if "kv_lora_rank" in found:
        raise BadInput(_("This model compresses its cache (MLA), so it needs far less than this would say."))
    kinds = found.get("layer_types")
    if isinstance(kinds, list) and set(kinds) != {"full_attention"}:
        raise BadInput(_("Not every layer of this model keeps everything, so it needs less than this would say."))
    layers, heads = _count(found, "num_hidden_layers"), _count(found, "num_attention_heads")
    kv_heads = _count(found, "num_key_value_heads") or heads
    hidden = _count(found, "hidden_size")
    head_size = _count(found, "head_dim") or (hidden // heads if hidden and heads else None)
    if not (layers and kv_heads and head_size):
        raise BadInput(_("The file does not say num_hidden_layers, num_key_value_heads and head_dim."))
    return Shape(parameters, layers, kv_heads, head_size)


def _count(config: Mapping[str, Any], name: str) -> int | None:
    value = config.get(name)
    return value if type(value) is int and 0 < value < 1_000_000 else None

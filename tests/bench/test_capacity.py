"""The arithmetic, held against worked examples that others published and against what engines were recorded to say."""

from dataclasses import replace
from pathlib import Path

import pytest

from backend.bench import capacity
from backend.bench.capacity import GIB, SHAPES, Cache, Machine, Setup, Shape, Weights
from backend.core.errors import BadInput
from backend.engines import dialects
from backend.engines.client import EngineClient
from backend.engines.kinds import Kind
from backend.engines.pages import Page
from backend.engines.room import Room
from backend.ops import bench_commands

FIXTURES = Path(__file__).parents[1] / "fixtures" / "engines"
LLAMA_3_8B = SHAPES["Llama 3.1 8B"]
OPT_13B = Shape(13e9, layers=40, kv_heads=40, head_size=128)
SMOLLM2_135M = Shape(134.5e6, layers=30, kv_heads=3, head_size=64)


def a_setup(**changed: object) -> Setup:
    return replace(Setup(LLAMA_3_8B, Machine()), **changed)  # type: ignore[arg-type]


def test_a_token_of_opt_13b_takes_what_the_paper_on_paged_attention_says() -> None:
    """SOSP 2023, section 3: 800 KB for a token, 1.6 GB for a sequence of 2048."""
    assert capacity.cache_bytes_per_token(OPT_13B, Cache.F16) == 800 * 1024
    assert 2048 * capacity.cache_bytes_per_token(OPT_13B, Cache.F16) == pytest.approx(1.6e9, rel=0.05)


def test_a_token_of_llama_3_8b_takes_128_kib() -> None:
    assert capacity.cache_bytes_per_token(LLAMA_3_8B, Cache.F16) == 131_072
    assert capacity.cache_bytes_per_token(LLAMA_3_8B, Cache.FP8) == 65_536


def test_a_3090_holds_as_many_tokens_of_llama_3_8b_as_vllm_logged() -> None:
    """vllm-project/vllm issue 10517: 23.58 GiB, 0.90, weights 14.99 GiB, 2.42 GiB beside them; 1952 blocks, 1.56x."""
    setup = a_setup(machine=Machine(vram_gib=23.58, share=0.9, working_gib=17.06 - 14.9888 + 0.35), context=20_000)

    found = capacity.of(setup)

    assert found.weights / GIB == pytest.approx(14.9888, rel=0.01)
    assert found.cache / GIB == pytest.approx(3.81, rel=0.02)
    assert found.tokens == pytest.approx(1952 * 16, rel=0.02)
    assert found.tokens / 20_000 == pytest.approx(1.56, rel=0.02)
    assert found.people == 1


def test_a_gguf_file_is_as_large_as_the_table_of_llama_cpp_says() -> None:
    sizes = {Weights.Q4_K_M: 4.58, Weights.Q5_K_M: 5.33, Weights.Q6_K: 6.14, Weights.Q8_0: 7.95, Weights.F16: 14.96}

    for weights, gib in sizes.items():
        assert capacity.weight_bytes(8.03e9, weights) / GIB == pytest.approx(gib, abs=0.01)


def test_more_memory_less_context_and_smaller_numbers_make_room() -> None:
    people = {name: capacity.of(setup).people for name, setup in capacity.what_if(a_setup())}
    now = capacity.of(a_setup()).people

    assert people["conversations twice as long"] == now // 2
    assert people["conversations half as long"] >= 2 * now
    assert people["2 such GPUs"] > 2 * now
    assert people["weights in AWQ / GPTQ, 4 bit"] > people["weights in FP8 / INT8"] > now
    assert people["KV cache in FP8"] >= 2 * now


def test_heads_are_divided_among_gpus_until_each_has_one() -> None:
    shape = Shape(70e9, layers=80, kv_heads=8, head_size=128)

    assert capacity.cache_bytes_per_token(shape, Cache.F16, gpus=8) * 8 == capacity.cache_bytes_per_token(
        shape, Cache.F16
    )
    assert capacity.cache_bytes_per_token(shape, Cache.F16, gpus=16) == capacity.cache_bytes_per_token(
        shape, Cache.F16, gpus=8
    )


def test_a_model_that_does_not_fit_holds_nobody_and_says_how_much_is_missing() -> None:
    found = capacity.of(a_setup(machine=Machine(vram_gib=8)))

    assert (found.tokens, found.people, found.cache) == (0, 0, 0)
    assert found.missing / GIB == pytest.approx(14.96 + 2.5 - 8 * 0.92, abs=0.01)


def test_a_conversation_takes_whole_blocks() -> None:
    assert capacity.people(64, 17) == 2
    assert capacity.people(64, 32) == 2
    assert capacity.people(31, 32) == 0


def test_what_is_out_of_bounds_is_named() -> None:
    with pytest.raises(BadInput) as wrong:
        capacity.make(
            parameters=8,
            layers=0,
            kv_heads=8,
            head_size=128,
            vram=-1,
            gpus=1,
            share=0.9,
            working=2,
            context=8_192,
            weights=Weights.F16,
            cache=Cache.F16,
        )

    assert set(wrong.value.fields) == {"layers", "vram"}


def test_the_shape_is_read_from_a_config() -> None:
    llama = {
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
    }

    assert capacity.shape_of(llama, 8.03e9) == LLAMA_3_8B
    assert capacity.shape_of({"text_config": llama | {"head_dim": 128}}, 8.03e9) == LLAMA_3_8B


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"kv_lora_rank": 512}, "compresses its cache"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "Not every layer"),
        ({"num_hidden_layers": "many"}, "does not say"),
        ({}, "does not say"),
    ],
)
def test_a_config_that_the_arithmetic_does_not_fit_is_refused(config: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        capacity.shape_of(config, 1e9)


def test_the_command_line_knows_the_same_ways_to_store() -> None:
    assert tuple(Weights) == bench_commands.WEIGHTS
    assert tuple(Cache) == bench_commands.CACHES


# Engines that run


def page(name: str) -> bytes:
    return (FIXTURES / name / "body").read_bytes()


def told(kind: Kind, body: bytes) -> Room | None:
    tells = dialects.of(kind).room
    assert tells is not None
    return tells.read(Page(body))


def test_a_running_vllm_tells_its_room_and_the_arithmetic_agrees() -> None:
    room = told(Kind.VLLM, page("vllm/metrics-after"))

    assert room is not None
    assert room.tokens == 728 * 128 == 93_184
    assert capacity.people_in(room, 4096) == 22  # `kv_cache_max_concurrency` says 22.75
    by_arithmetic = 2 * GIB / capacity.cache_bytes_per_token(SMOLLM2_135M, Cache.F16)
    assert room.tokens == pytest.approx(by_arithmetic, rel=0.002)


def test_an_older_vllm_tells_blocks_and_several_cores_add_up() -> None:
    line = b'vllm:cache_config_info{block_size="16",engine="%d",num_gpu_blocks="1952"} 1.0\n'

    room = told(Kind.VLLM, line % 0 + line % 1)

    assert room is not None
    assert (room.tokens, capacity.people_in(room, 20_000)) == (2 * 31_232, 3)


def test_a_running_llama_cpp_tells_its_slots() -> None:
    room = told(Kind.LLAMACPP, page("llamacpp/props"))

    assert room is not None
    assert (room.slots, room.context) == (8, 1024)
    assert (capacity.people_in(room, 1024), capacity.people_in(room, 1025)) == (8, 0)


@pytest.mark.parametrize("kind", [Kind.VLLM, Kind.LLAMACPP])
@pytest.mark.parametrize(
    "nonsense", [b"", b"null", b"[]", b"{}", b'{"total_slots": "many"}', b"<html>", b"vllm:cache_config_info{} 1\n\xff"]
)
def test_nonsense_says_nothing(kind: Kind, nonsense: bytes) -> None:
    assert told(kind, nonsense) is None


async def test_other_kinds_are_not_asked() -> None:
    async with EngineClient("http://127.0.0.1:1", kind=Kind.OLLAMA) as client:
        assert await client.room() is None

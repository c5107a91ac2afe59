"""What engines tell of their load: as recorded from real ones, as others name it, and as an enemy would."""

import time
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import example, given, settings, strategies as st

from backend.engines import dialects, metrics
from backend.engines.events import EngineFailed, Failure
from backend.engines.failures import failed
from backend.engines.metrics import KEPT, Number, Readings, Slots, load_of, parse, read
from tests.engines.replay import FIXTURES

METRICS = {str(kind): dialect.metrics for kind, dialect in dialects.ALL.items() if dialect.metrics}


def recorded(name: str) -> bytes:
    return (FIXTURES / name / "body").read_bytes()


def fetching(**pages: bytes) -> Callable[[str], Awaitable[bytes]]:
    async def fetch(path: str) -> bytes:
        if path not in pages:
            raise failed(Failure.NONSENSE, "404")
        return pages[path]

    return fetch


def test_the_numbers_of_a_real_vllm_and_what_grew_between_two_readings() -> None:
    before, after = (parse(recorded(f"vllm/metrics-{when}"), METRICS["vllm"]) for when in ("before", "after"))

    load = load_of(after, before, 10)

    assert (load.running, load.waiting, load.kv, load.slots) == (0, 0, 0.0, None)
    grown = {number: after[number] - before[number] for number in after}
    assert load.tokens_per_second == grown[Number.GENERATED] / 10 > 0
    assert load.ttft == pytest.approx(grown[Number.TTFT_SUM] / grown[Number.TTFT_COUNT])
    assert load.hit_rate == grown[Number.HITS] / grown[Number.QUERIES]


async def test_the_numbers_and_slots_of_a_real_llamacpp() -> None:
    pages = {"slots": recorded("llamacpp/slots"), "metrics": recorded("llamacpp/metrics-after")}
    before = parse(recorded("llamacpp/metrics-before"), METRICS["llamacpp"])

    found = await read(fetching(**pages), METRICS["llamacpp"])
    assert found is not None
    load = load_of(found[0], before, 10, found[1])

    assert (load.running, load.waiting, load.slots, load.kv) == (0, 0, 8, 0.0)
    assert load.tokens_per_second is not None
    assert load.hit_rate is not None
    assert 0 < load.hit_rate < 1
    assert load.ttft is None  # it tells that with each answer only


async def test_llamacpp_with_its_metrics_or_its_slots_switched_off() -> None:
    busy = (
        b'[{"n_ctx":1000,"is_processing":true,"n_prompt_tokens":300,"next_token":[{"n_decoded":200}]},{"n_ctx":1000}]'
    )

    slots_only = await read(fetching(slots=busy), METRICS["llamacpp"])
    props_only = await read(fetching(props=recorded("llamacpp/props")), METRICS["llamacpp"])

    assert slots_only == ({}, Slots(2, 1, 0.25))
    assert load_of({}, {}, 10, Slots(2, 1, 0.25)).running == 1
    assert props_only == ({}, Slots(8))
    with pytest.raises(EngineFailed):
        await read(fetching(), METRICS["llamacpp"])


@pytest.mark.parametrize(
    ("kind", "text", "numbers"),
    [
        (
            "vllm",  # as it named things some time ago, on two engines behind one address
            b'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_running{engine="1"} 2.0\n'
            b'vllm:gpu_cache_usage_perc{engine="0"} 0.5\nvllm:gpu_cache_usage_perc{engine="1"} 0.7\n'
            b"vllm:gpu_prefix_cache_hits_total 5\nvllm:gpu_prefix_cache_queries_total 50\n",
            {Number.RUNNING: 5, Number.KV: 0.6, Number.HITS: 5, Number.QUERIES: 50},
        ),
        (
            "sglang",
            b'sglang:num_running_reqs{model_name="a b"} 4\nsglang:num_queue_reqs 7\nsglang:token_usage 0.25\n'
            b"sglang:cache_hit_rate 0.9\nsglang:generation_tokens_total 1e+03\n"
            b'sglang:time_to_first_token_seconds_sum{x="}"} 3.5\nsglang:time_to_first_token_seconds_count{x="}"} 7\n',
            {
                Number.RUNNING: 4,
                Number.WAITING: 7,
                Number.KV: 0.25,
                Number.HIT_RATE: 0.9,
                Number.GENERATED: 1000,
                Number.TTFT_SUM: 3.5,
                Number.TTFT_COUNT: 7,
            },
        ),
        (
            "trtllm",
            b"trtllm_kv_cache_utilization 0.125\ntrtllm_kv_cache_hit_rate 0.5\n",
            {Number.KV: 0.125, Number.HIT_RATE: 0.5},
        ),
        (
            "tgi",
            b"tgi_batch_current_size 2\ntgi_queue_size 1\ntgi_request_generated_tokens_sum 40\n",
            {Number.RUNNING: 2, Number.WAITING: 1, Number.GENERATED: 40},
        ),
    ],
)
async def test_the_same_things_under_the_names_of_each_kind(
    kind: str, text: bytes, numbers: dict[Number, float]
) -> None:
    found = await read(fetching(**{METRICS[kind].path: text}), METRICS[kind])

    assert found is not None
    assert found[0] == pytest.approx(numbers)


@pytest.mark.parametrize("kind", sorted(dialects.ALL.keys() - METRICS.keys()))
async def test_a_kind_that_tells_nothing_is_not_asked(kind: str) -> None:
    """A router's numbers are not those of the engines behind it, although it may pass their pages on."""
    assert await read(fetching(), dialects.of(kind).metrics) is None


def test_the_kinds_that_tell_how_busy_they_are() -> None:
    assert METRICS.keys() == {"vllm", "sglang", "trtllm", "llamacpp", "tgi"}


def test_a_counter_that_began_anew_tells_nothing_until_it_grew_again() -> None:
    """The engine was restarted."""
    before = {Number.GENERATED: 900.0, Number.TTFT_SUM: 9.0, Number.TTFT_COUNT: 9.0}
    after = {Number.GENERATED: 100.0, Number.TTFT_SUM: 1.0, Number.TTFT_COUNT: 2.0}

    load = load_of(after, before, 10)

    assert (load.tokens_per_second, load.ttft) == (None, None)
    assert load_of(after | {Number.GENERATED: 150.0}, after, 10).tokens_per_second == 5


def test_an_engine_that_does_nothing_writes_no_tokens_and_has_no_first_one() -> None:
    numbers = {
        Number.GENERATED: 9.0,
        Number.TTFT_SUM: 1.0,
        Number.TTFT_COUNT: 2.0,
        Number.HITS: 1.0,
        Number.QUERIES: 2.0,
    }

    load = load_of(numbers, numbers, 10)

    assert (load.tokens_per_second, load.ttft, load.hit_rate) == (0, None, None)


def test_the_last_sixty_readings_are_kept_and_a_good_one_only_grows_older() -> None:
    seconds = 0.0
    readings = Readings(clock=lambda: seconds)
    for number in range(KEPT + 5):
        seconds += 10
        readings.add({Number.RUNNING: float(number), Number.GENERATED: 20.0 * number}, None, ours=0)

    seconds += 45  # four that failed

    assert len(readings.loads) == KEPT
    assert readings.load is not None
    assert (readings.load.running, readings.load.tokens_per_second) == (KEPT + 4, 2)
    assert readings.age == 45
    assert readings.loads[0].running == 5


@settings(deadline=None)
@given(st.sampled_from(sorted(METRICS)), st.binary(max_size=2_000))
@example("vllm", b"vllm:num_requests_running NaN\nvllm:num_requests_waiting -1\nvllm:kv_cache_usage_perc 1e999\n")
@example("vllm", b"vllm:num_requests_running{ 1 2 3\nvllm:num_requests_running_now 4\n vllm:num_requests_running 5")
@example("vllm", b"vllm:kv_cache_usage_perc 7\nvllm:num_requests_running 1e300\n")
@example("llamacpp", b"[]")
@example("llamacpp", b'[{"n_ctx":"x","is_processing":true,"n_prompt_tokens":-1,"next_token":3}]')
@example("llamacpp", b'{"total_slots":1e9}')
def test_whatever_comes_is_no_number_out_of_bounds(kind: str, body: bytes) -> None:
    slots = metrics.read_slots(body) or metrics.read_props(body)

    load = load_of(parse(body, METRICS[kind]), {}, 10, slots)

    for share in (load.kv, load.hit_rate):
        assert share is None or 0 <= share <= 1
    for count in (load.running, load.waiting, load.slots):
        assert count is None or 0 <= count <= 1_000_000


@pytest.mark.parametrize(
    "line",
    [
        b"vllm:num_requests_running{" + b"}" * 1_000_000,
        b"vllm:num_requests_running" + b" \t" * 500_000,
        b"vllm:num_requests_running{" + b"} " * 500_000 + b"x",
        b'vllm:num_requests_running{a="b"} 1\n' * 30_000,
        b"vllm:num_requests_running 1" + b"1" * 1_000_000,
    ],
)
def test_a_megabyte_of_malice_takes_no_longer_than_a_megabyte_of_numbers(line: bytes) -> None:
    began = time.process_time()

    parse(line, METRICS["vllm"])

    assert time.process_time() - began < 2, "it is read once, which takes hundredths of a second"

import pytest

from backend.engines.events import Overflow
from backend.engines.overflow import find_overflow


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input "
            "tokens, which exceeds this limit even without any output tokens. (parameter=input_tokens, value=4097)",
            Overflow(4096, 4097, at_least=True),
        ),
        (
            "This model's maximum context length is 10 tokens. However, your prompt contains 30 input tokens, which",
            Overflow(10, 30),
        ),
        (
            "This model's maximum context length is 4096 tokens. However, your prompt contains 90000 characters",
            Overflow(4096),
        ),
        (
            "This model's maximum context length is 4097 tokens. However, you requested 5000 tokens (1000 in the "
            "messages, 4000 in the completion). Please reduce the length of the messages or completion.",
            Overflow(4097, 1000, answer_only=True),
        ),
        (
            "This model's maximum context length is 4097 tokens, however you requested 5000 tokens (4990 in the "
            "messages, 10 in the completion).",
            Overflow(4097, 4990),
        ),
        ("max_tokens=100000 cannot be greater than max_model_len=4096. Please", Overflow(4096, answer_only=True)),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context length is 8192 "
            "tokens and your request has 10 input tokens",
            Overflow(8192, answer_only=True),
        ),
        ("max_tokens must be at least 1, got 0.", Overflow()),
        (
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that",
            Overflow(4096, 5000),
        ),
        ("The input (900 tokens) is longer than the model's context length (512 tokens).", Overflow(512, 900)),
        ("Requested token count exceeds the model's maximum context length of 512 tokens.", Overflow(512)),
        ("the request exceeds the available context size, try increasing it", Overflow()),
        ("prompt is longer than the context length currently set", Overflow()),
        ("input length exceeds the context length", Overflow()),
        ("The number of tokens to keep from the initial prompt is greater than the context length.", Overflow()),
        ("Trying to keep the first 5000 tokens when context the overflows.", Overflow()),
        ("Context size has been exceeded.", Overflow()),
        ("Reached context length of 4096 tokens", Overflow(4096)),
        (
            "Input validation error: `inputs` must have … must be <= 1024. Given: 2000 `inputs` tokens",
            Overflow(1024, 2000),
        ),
        ("litellm: Context Window Exceeded", Overflow()),
        ("smollm2 is not a multimodal model", None),
        ("", None),
    ],
)
def test_each_engine_says_it_in_its_own_words(message: str, expected: Overflow | None) -> None:
    assert find_overflow(message) == expected


def test_llama_cpp_gives_the_numbers_as_fields() -> None:
    message = "request (20031 tokens) exceeds the available context size (1024 tokens), try increasing it"

    assert find_overflow(message, prompt_tokens=20031, window=1024) == Overflow(1024, 20031)


def test_the_code_alone_is_enough() -> None:
    assert find_overflow("no", words=("context_length_exceeded",)) == Overflow()
    assert find_overflow("no", words=("exceed_context_size_error",), prompt_tokens=9, window=8) == Overflow(8, 9)
    assert find_overflow("no", words=("invalid_request_error",)) is None


def test_a_prompt_quoted_by_the_engine_is_not_searched_without_end() -> None:
    assert find_overflow("x" * 5_000 + "context size has been exceeded") is None


def test_a_number_without_measure_is_no_number() -> None:
    endless = "9" * 500

    found = find_overflow(f"This model's maximum context length is {endless} tokens.")
    counted = find_overflow(f"maximum context length is 10 tokens. … contains {endless} input tokens")

    assert found == Overflow()
    assert counted == Overflow(10)

import json

import pytest

from backend.engines.events import EngineFailed, Failure
from backend.engines.failures import MAX_DETAIL, broken_off, failed, refused


def body(message: str, **fields: object) -> bytes:
    return json.dumps({"error": {"message": message, **fields}}).encode()


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (401, b'{"error":"Unauthorized"}', Failure.AUTH),
        (401, b"", Failure.AUTH),
        (403, b'{"error":"Forbidden"}', Failure.AUTH),
        (400, body("x", code="invalid_api_key"), Failure.AUTH),
        (404, body("The model `nope` does not exist. Valid aliases: a.", type="NotFoundError"), Failure.UNKNOWN_MODEL),
        (404, body("model 'nope' not found", type="not_found_error"), Failure.UNKNOWN_MODEL),
        (400, body("model 'nope' not found"), Failure.UNKNOWN_MODEL),
        (404, body("x", code="model_not_found"), Failure.UNKNOWN_MODEL),
        (404, b'{"detail":"Not Found"}', Failure.NONSENSE),
        (404, body("File Not Found", type="not_found_error"), Failure.NONSENSE),
        (301, b"", Failure.NONSENSE),
        (400, body("This model's maximum context length is 10 tokens."), Failure.OVERFLOW),
        (422, b'{"error":"must be <= 10. Given: 20 `inputs` tokens","error_type":"validation"}', Failure.OVERFLOW),
        (500, body("Context size has been exceeded."), Failure.OVERFLOW),
        (400, body("temperature must be non-negative"), Failure.BAD_REQUEST),
        (422, b'{"detail":[{"msg":"field required"}]}', Failure.BAD_REQUEST),
        (500, body("image input is not supported - hint: mmproj"), Failure.BAD_REQUEST),
        (501, body("no embeddings", type="not_supported_error"), Failure.BAD_REQUEST),
        (429, body("You exceeded your quota", code="insufficient_quota"), Failure.BAD_REQUEST),
        (429, b"", Failure.OVERLOADED),
        (429, b'{"error":"Model is overloaded","error_type":"overloaded"}', Failure.OVERLOADED),
        (408, b"", Failure.OVERLOADED),
        (503, body("The engine is currently busy and cannot accept new requests."), Failure.OVERLOADED),
        (503, body("server busy, please try again.  maximum pending requests exceeded"), Failure.OVERLOADED),
        (503, body("Loading model", type="unavailable_error", code=503), Failure.LOADING),
        (503, b'{"error":"The model is currently scaling. Please try again later."}', Failure.LOADING),
        (503, b"Service temporarily unavailable", Failure.LOADING),
        (503, b"no healthy upstream", Failure.UNREACHABLE),
        (502, b"<html><title>502 Bad Gateway</title></html>", Failure.UNREACHABLE),
        (504, b"", Failure.TIMEOUT),
        (503, b"LLM is unavailable. Please check the server logs for more details.", Failure.DEAD),
        (500, body("EngineCore encountered an issue. See stack trace (above)"), Failure.DEAD),
        (424, b'{"error":"Request failed during generation","error_type":"generation"}', Failure.DEAD),
        (500, b"", Failure.DEAD),
    ],
)
def test_what_each_answer_means(status: int, content: bytes, kind: Failure) -> None:
    assert refused(status, content).kind is kind


@pytest.mark.parametrize("kind", Failure)
def test_every_kind_has_a_plain_sentence(kind: Failure) -> None:
    sentence = str(failed(kind, "CUDA error in /opt/engine.py"))

    assert sentence.endswith(".")
    assert "CUDA" not in sentence
    assert "!" not in sentence


def test_the_words_of_the_engine_are_kept_for_admins_only() -> None:
    failure = refused(400, body("temperature must be non-negative"))

    assert failure.detail == "400: temperature must be non-negative"
    assert "temperature" not in str(failure)


def test_overflow_tells_the_numbers_it_knows() -> None:
    exact = refused(400, body("request exceeds the available context size", n_prompt_tokens=20031, n_ctx=1024))
    bound = refused(400, body("maximum context length is 4096 tokens. … contains at least 4097 input tokens"))
    nothing = refused(400, body("Context size has been exceeded."))
    answer = refused(400, body("max_tokens=9 cannot be greater than max_model_len=8."))

    assert str(exact) == "This is too long for the model: over by 19,007 tokens."
    assert str(bound) == "This conversation is longer than the 4,096 tokens the model can read."
    assert str(nothing) == "This conversation is longer than the model can read."
    assert str(answer) == "The longest answer allowed here does not fit this model. An admin can lower it."
    assert exact.overflow is not None
    assert (exact.overflow.prompt_tokens, exact.overflow.window) == (20031, 1024)


@pytest.mark.parametrize(
    "leak",
    [
        "key s3cret is wrong",
        "got Authorization: Bearer abc.def",
        "Incorrect key sk-proj-abcd****wxyz",
        "token hf_abcdefghij",
    ],
)
def test_keys_are_taken_out_of_the_detail(leak: str) -> None:
    failure: EngineFailed = refused(401, body(leak), secret="s3cret")

    assert "[key]" in failure.detail
    for secret in ("s3cret", "abc.def", "proj", "abcdefghij"):
        assert secret not in failure.detail


def test_the_detail_is_one_bounded_printable_line() -> None:
    failure = broken_off({"error": {"message": "a\nb\x1b[31m\u202e" + "x " * 9_000}})

    assert failure.detail.startswith("a b [31m x x")
    assert len(failure.detail) <= MAX_DETAIL
    assert failure.detail.isprintable()


def test_an_error_that_is_no_text_is_still_told() -> None:
    assert broken_off({"error": {"message": {"nested": 1}}}).detail == "{'nested': 1}"
    assert broken_off({"error": ["x"]}).detail == "['x']"
    assert broken_off("plain words").detail == "plain words"

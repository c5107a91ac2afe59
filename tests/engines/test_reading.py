"""What the bytes of one response mean, without a network. Names in docstrings are cases of the bug log."""

import json
import random

import pytest

from backend.engines.events import Delta, Failure, Finish, Reasoning, Usage
from backend.engines.reading import AnswerReader
from tests.engines.support import Heard, read
from tests.fakes.script import DONE, END, T, error, event, finish, usage

FAMILY = "Grüße 漢字 👩\u200d👩\u200d👧\u200d👦 🌍"


def delta(**fields: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": None}]})


def bytewise(stream: bytes) -> Heard:
    return read(*[stream[i : i + 1] for i in range(len(stream))])


def test_text_then_reason_then_usage() -> None:
    heard = read(T("Hel"), T("lo"), finish(), usage(12, 2), DONE)

    assert heard.events == [Delta("Hel"), Delta("lo"), Finish("stop"), Usage(12, 2, None)]
    assert heard.failure is None


def test_all_events_of_a_read_come_as_one_batch() -> None:
    assert AnswerReader().feed(T("a") + T("b") + finish()) == [Delta("a"), Delta("b"), Finish("stop")]


@pytest.mark.parametrize("mark", ["🌍".encode()[:2], "\u200d".encode()[:2]])
def test_a_character_cut_by_a_write_is_whole(mark: bytes) -> None:
    """STR-01"""
    stream = T(FAMILY) + END
    place = stream.index(mark) + 2

    assert read(stream[:place], stream[place:]).text == FAMILY
    assert bytewise(stream).text == FAMILY


def test_a_family_cut_over_deltas_is_put_together() -> None:
    """STR-01"""
    heard = read(*[T(part) for part in ("Grüße 漢字 👩", "\u200d", "👩\u200d👧", "\u200d👦", " 🌍")], END)

    assert heard.text == FAMILY
    assert (len(heard.text.encode()), len(heard.text)) == (45, 18)
    assert "\ufffd" not in heard.text


def test_unusual_lines_are_read() -> None:
    """STR-02"""
    chunk = b'data:{"choices":[{"delta":{"content":"ok"}}]}'
    stream = b": warm-up\r\n\r\nretry: 3000\r\nid: 7\r\nevent: message\r\n" + chunk + b"\r\n\r\n"

    for ends in (b"\r\n", b"\r", b"\n"):
        assert read(stream.replace(b"\r\n", ends)).text == "ok"


def test_an_event_over_two_data_lines_is_one() -> None:
    """STR-03"""
    assert read(b'data: {"choices":[{"delta":\ndata: {"content":"two"}}]}\n\n').text == "two"


def test_the_last_event_is_used_without_a_blank_line() -> None:
    """STR-03"""
    assert read(T("a"), finish().rstrip()).failure is None
    assert read(T("a"), finish().rstrip()).reasons == ["stop"]


def test_half_an_event_at_the_end_is_no_answer() -> None:
    """STR-03"""
    heard = read(T("a"), finish().rstrip()[:-5])

    assert heard.text == "a"
    assert heard.kind is Failure.CUT


def test_empty_choices_do_no_harm() -> None:
    """STR-04"""
    heard = read(event({"choices": [], "prompt_filter_results": []}), T("Hi"), finish(), usage(12, 1), DONE)

    assert heard.text == "Hi"
    assert heard.usage == [Usage(12, 1)]
    assert heard.failure is None


def test_missing_content_is_no_text() -> None:
    """STR-05"""
    choices: list[object] = [
        [{"delta": {"role": "assistant", "content": ""}}],
        [{"delta": {"content": None}}],
        [{"delta": {}}],
        [{"index": 0}],
        [{"delta": None}],
        None,
        [None],
        "text",
        {"delta": {"content": "y"}},
        [{"delta": {"content": 5}, "finish_reason": 0}],
        [{"delta": "text"}],
    ]

    heard = read(*[event({"choices": choice}) for choice in choices], event({}), event([1]), event(None), T("x"), END)

    assert heard.text == "x"
    assert heard.failure is None


def test_text_beside_the_finish_reason_is_kept() -> None:
    """STR-06"""
    last = event({"choices": [{"delta": {"content": "def"}, "finish_reason": "length"}]})

    heard = read(T("abc"), last, DONE)

    assert heard.text == "abcdef"
    assert heard.events[-1] == Finish("length")


def test_done_after_text_is_a_whole_answer() -> None:
    """STR-07"""
    heard = read(T("Hello"), DONE)

    assert heard.text == "Hello"
    assert heard.failure is None
    assert heard.reasons == []


def test_a_clean_end_in_the_middle_is_a_cut() -> None:
    """STR-08"""
    heard = read(T("Hello wor"))

    assert heard.text == "Hello wor"
    assert heard.kind is Failure.CUT


def test_an_error_inside_the_stream_fails_and_keeps_the_text() -> None:
    """STR-09"""
    heard = read(T("a"), T("b"), error("CUDA out of memory"), DONE)

    assert heard.text == "ab"
    assert heard.failure is not None
    assert heard.kind is Failure.DEAD
    assert str(heard.failure) == "The engine reported a fault of its own."
    assert heard.failure.detail == "CUDA out of memory"


def test_text_in_the_same_read_as_the_error_is_kept() -> None:
    """STR-09"""
    heard = read(T("a") + T("b") + error("boom") + DONE)

    assert heard.text == "ab"
    assert heard.kind is Failure.DEAD


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (error("", code=500), Failure.DEAD),
        (event({"error": "a bare string"}), Failure.DEAD),
        (event({"object": "error", "message": "The request queue is full.", "code": 503}), Failure.OVERLOADED),
        (event({"error": {"code": 400, "message": "x", "type": "exceed_context_size_error"}}), Failure.OVERFLOW),
        (b'event: error\ndata: {"message":"Context size has been exceeded."}\n\n', Failure.OVERFLOW),
        (b"event: error\ndata: model went away\n\n", Failure.DEAD),
        (event({"error": {"message": "slow down", "http_status_code": 429}}), Failure.OVERLOADED),
        (event({"choices": [{"delta": {}, "finish_reason": "error", "error": {"message": "x"}}]}), Failure.DEAD),
    ],
)
def test_every_shape_of_an_error_is_one(stream: bytes, kind: Failure) -> None:
    """STR-09"""
    assert read(T("a"), stream, DONE).kind is kind
    assert read(stream).kind is kind


def test_an_error_field_that_is_null_is_none() -> None:
    assert read(event({"error": None, "choices": [{"delta": {"content": "x"}}]}), END).text == "x"


def test_a_bare_json_error_is_heard_before_the_stream_ends() -> None:
    """STR-10"""
    reader = AnswerReader()

    events = reader.feed(T("a") + b'{"error":{"message":"boom"')
    still_open = reader.failure
    reader.feed(b"}}\n")

    assert events == [Delta("a")]
    assert still_open is None
    assert reader.failure is not None
    assert reader.failure.detail == "boom"


def test_a_whole_completion_is_an_answer() -> None:
    """STR-11"""
    heard = read(b'{"choices":[{"message":{"content":"whole"}}]}')

    assert heard.text == "whole"
    assert heard.failure is None


def test_a_message_that_repeats_the_stream_is_not_taken_twice() -> None:
    last = event({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]})

    assert read(T("Hel"), T("lo"), last, DONE).text == "Hello"


def test_a_page_is_no_answer() -> None:
    """STR-11"""
    heard = read(b"<!doctype html>\n\n<title>Sign in</title>\n\n")

    assert heard.kind is Failure.NONSENSE


def test_an_endless_thought_is_kept_and_is_no_text() -> None:
    """SEM-01"""
    heard = read(T("<thi"), T("nk>let me see"), T(" 2+2"), END)

    assert (heard.reasoning, heard.text) == ("let me see 2+2", "")
    assert heard.reasons == ["stop"]
    assert heard.failure is None


def test_talking_about_the_tag_is_text() -> None:
    """SEM-02"""
    text = "Models write `<think>` first.\n\n<thinking> is another.\n\n```xml\n<think>a</think>\n```\n"

    heard = read(*[T(character) for character in text], END)

    assert (heard.reasoning, heard.text) == ("", text)


def test_a_text_that_is_continued_does_not_begin_to_think() -> None:
    assert read(T("<think>"), T("x"), END, begins=False).text == "<think>x"


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_in_its_own_field_is_kept_apart(field: str) -> None:
    """SEM-03"""
    streamed = read(delta(**{field: "six times", "content": None}), delta(**{field: " seven"}), T("42"), END)
    message = {"content": "42", field: "six times seven"}
    whole = read(json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode())

    for heard in (streamed, whole):
        assert (heard.reasoning, heard.text) == ("six times seven", "42")
        assert heard.failure is None


def test_reasoning_told_under_both_names_is_taken_once() -> None:
    """SEM-03"""
    assert read(delta(reasoning="hm", reasoning_content="hm"), T("42"), END).events[0] == Reasoning("hm")
    assert read(delta(reasoning=None, reasoning_content="hm"), T("42"), END).reasoning == "hm"


def test_nul_is_dropped() -> None:
    """TXT-01"""
    assert read(event({"choices": [{"delta": {"content": "a\0b"}}]}), T("\0"), END).text == "ab"


def test_lone_surrogates_are_replaced_and_pairs_are_joined() -> None:
    """TXT-02"""
    stream = b"".join(
        b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % text
        for text in (rb"a\ud800b", rb"x\udfffy", rb"\ud83d\ude00", rb"\ud83d", rb"\ude00", rb"z\ud83d")
    )

    heard = read(stream, END)

    assert heard.text == "a\ufffdbx\ufffdy😀😀z\ufffd"
    assert heard.text.encode()
    assert bytewise(stream + END).text == heard.text


def test_broken_utf8_inside_an_event_is_replaced() -> None:
    assert read(b'data: {"choices":[{"delta":{"content":"a\xff"}}]}\n\n', END).text == "a\ufffd"


def test_numbers_that_are_not_json_do_no_harm() -> None:
    chunk = b'data: {"choices":[{"delta":{"content":"x"},"logprobs":{"content":[{"logprob":-Infinity}]}}]}\n\n'

    assert read(chunk, END).text == "x"


def test_a_chunk_that_cannot_be_read_is_not_passed_over() -> None:
    heard = read(T("a"), b'data: {"choices":[{"del\n\n', T("b"), END)

    assert heard.text == "a"
    assert heard.kind is Failure.NONSENSE


def test_words_that_are_no_events_are_passed_over() -> None:
    assert read(b"data: ping\n\n", b"data:\n\n", b": x\n\n", T("a"), END).text == "a"


def test_frames_that_end_with_a_space_are_read() -> None:
    assert read(T("a").replace(b"\n\n", b" \n\n"), END.replace(b"]\n\n", b"] \n\n")).failure is None


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (b"", Failure.CUT),
        (b": keep-alive\n\n", Failure.CUT),
        (DONE, Failure.CUT),  # without a reason it is no whole answer, so another engine may give one
        (delta(role="assistant", content="") + DONE, Failure.CUT),
        (delta(role="assistant") + finish() + usage(5, 0) + DONE, Failure.EMPTY),
        (delta(role="assistant", content=""), Failure.CUT),
        (b"upstream connect error", Failure.NONSENSE),
    ],
)
def test_an_answer_without_text_is_a_failure(stream: bytes, kind: Failure) -> None:
    assert read(stream).kind is kind


@pytest.mark.parametrize("reason", ["content_filter", "tool_calls", "abort"])
def test_a_reason_that_explains_the_lack_of_text_is_passed_on(reason: str) -> None:
    heard = read(delta(role="assistant"), finish(reason), DONE)

    assert heard.events == [Finish(reason)]
    assert heard.failure is None


def test_words_of_other_engines_for_a_reason_are_translated() -> None:
    assert read(T("a"), finish("stop_sequence"), DONE).reasons == ["stop"]


def test_tool_calls_are_not_text() -> None:
    call = {"id": "t", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}

    assert read(delta(tool_calls=[call]), T("a"), END).text == "a"


def test_other_choices_are_not_ours() -> None:
    other = event({"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]})

    heard = read(other, T("yes"), finish("length"), DONE)

    assert heard.text == "yes"
    assert heard.reasons == ["length"]


def test_usage_is_told_again_only_when_it_changes() -> None:
    cached = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}

    heard = read(T("a"), usage(9, 1), usage(9, 1), event({"choices": [], "usage": cached}), END)

    assert heard.usage == [Usage(9, 1), Usage(9, 2, 8)]


@pytest.mark.parametrize(
    "counts",
    [
        {},
        [],
        "many",
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": 2**40, "completion_tokens": 1},
        {"prompt_tokens": True, "completion_tokens": 1},
        {"prompt_tokens": None, "completion_tokens": None},
    ],
)
def test_usage_that_makes_no_sense_is_passed_over(counts: object) -> None:
    heard = read(T("a"), event({"choices": [], "usage": counts}), END)

    assert heard.usage == []
    assert heard.failure is None


def test_an_answer_that_outgrows_the_limit_is_ended() -> None:
    reader = AnswerReader(max_characters=10)

    events = reader.feed(T("12345") + T("67890") + T("x") + T("y"))

    assert events == [Delta("12345"), Delta("67890")]
    assert reader.is_over
    assert reader.failure is not None
    assert reader.failure.kind is Failure.NONSENSE


def test_an_event_that_outgrows_the_limit_ends_the_answer() -> None:
    heard = read(T("a"), b"data: " + b"x" * (1 << 20) + b"x\n\n", T("b"), END)

    assert heard.text == "a"
    assert heard.kind is Failure.NONSENSE


def test_nothing_after_done_is_read() -> None:
    heard = read(T("a") + DONE + T("b") + b'{"error":"late"}')

    assert heard.text == "a"
    assert heard.failure is None


def test_any_cut_gives_the_same_answer() -> None:
    stream = T("<think>hm</think>") + T(FAMILY).replace(b"\n\n", b"\r\n\r\n") + b": x\n\n" + END
    whole = read(stream)
    dice = random.Random(7)

    for _ in range(200):
        cuts = sorted(dice.sample(range(len(stream)), 6))
        pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
        heard = read(*pieces)
        assert (heard.text, heard.reasoning, heard.reasons) == (whole.text, whole.reasoning, whole.reasons)

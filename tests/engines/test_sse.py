from hypothesis import given, settings, strategies as st

from backend.engines.sse import EventParser, ServerEvent


def parse(*pieces: bytes, limit: int = 1 << 20) -> list[ServerEvent]:
    parser = EventParser(limit)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close()


def test_whole_events_of_one_read_come_together() -> None:
    parser = EventParser()

    events = parser.feed(b'data: {"a":1}\n\ndata: {"b":2}\n\ndata: [DONE]\n\n')

    assert events == [(b"", b'{"a":1}'), (b"", b'{"b":2}'), (b"", b"[DONE]")]


def test_an_event_is_given_out_with_its_last_byte_and_not_before() -> None:
    parser = EventParser()

    assert parser.feed(b'data: {"a":1}\n') == []
    assert parser.feed(b"\ndata: ") == [(b"", b'{"a":1}')]


def test_legal_but_unusual_lines_are_read() -> None:
    """STR-02"""
    stream = b': warm-up\r\n\r\nretry: 3000\r\nid: 7\r\nevent: message\r\ndata:{"choices":[]}\r\n\r\n'

    assert parse(stream) == [(b"message", b'{"choices":[]}')]
    assert parse(stream.replace(b"\r\n", b"\r")) == [(b"message", b'{"choices":[]}')]
    assert parse(stream.replace(b"\r\n", b"\n")) == [(b"message", b'{"choices":[]}')]


def test_an_event_that_ends_with_a_bare_carriage_return_does_not_wait_for_more() -> None:
    parser = EventParser()

    assert parser.feed(b"data: a\r\r") == [(b"", b"a")]
    assert parser.feed(b"\ndata: b\r\n\r") == [(b"", b"b")]
    assert parser.feed(b"\n") == []


def test_data_lines_are_joined_by_a_line_feed() -> None:
    """STR-03"""
    assert parse(b'data: {"choices":\ndata: []}\n\n') == [(b"", b'{"choices":\n[]}')]


def test_one_space_after_the_colon_is_not_part_of_the_data() -> None:
    assert parse(b"data:x\n\ndata: x\n\ndata:  x\n\n") == [(b"", b"x"), (b"", b"x"), (b"", b" x")]


def test_an_event_without_data_is_none() -> None:
    assert parse(b": keep-alive\n\nevent: ping\n\nid: 4\n\n\n\n") == []


def test_the_last_event_needs_no_blank_line() -> None:
    """STR-03"""
    assert parse(b"data: a\n\ndata: b") == [(b"", b"a"), (b"", b"b")]


def test_a_byte_order_mark_is_passed_over() -> None:
    assert parse(b"\xef\xbb\xbf", b"data: a\n\n") == [(b"", b"a")]


def test_bare_json_counts_as_data() -> None:
    """STR-10"""
    assert parse(b'data: a\n\n{"error":\n {"message":"boom"}}\n\n') == [
        (b"", b"a"),
        (b"", b'{"error":\n {"message":"boom"}}'),
    ]


def test_bare_json_without_an_end_can_be_seen_early() -> None:
    """STR-10"""
    parser = EventParser()

    parser.feed(b'data: a\n\n{"error":{"message":"boom"}')
    early = parser.pending()
    parser.feed(b"}")

    assert parser.pending() == early + b"}"
    assert parser.close() == [(b"", early + b"}")]


def test_an_event_in_the_making_is_not_taken_for_bare_json() -> None:
    parser = EventParser()

    parser.feed(b'data: {"a":1}')

    assert parser.pending() == b""


def test_an_event_beyond_the_limit_ends_the_reading_and_keeps_what_came_before() -> None:
    parser = EventParser(max_event_bytes=20)

    events = parser.feed(b"data: a\n\ndata: " + b"x" * 30 + b"\n\ndata: b\n\n")

    assert events == [(b"", b"a")]
    assert parser.too_long
    assert parser.feed(b"data: c\n\n") == []


def test_an_event_that_never_ends_is_not_collected_for_ever() -> None:
    parser = EventParser(max_event_bytes=1000)

    for _ in range(20):
        parser.feed(b"x" * 100)

    assert parser.too_long


def by_the_book(stream: bytes) -> list[ServerEvent]:
    """The rules of the standard, one line at a time, for comparison."""
    events: list[ServerEvent] = []
    name, data = b"", list[bytes]()
    for line in [*stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), b""]:
        field, _colon, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data:
                events.append((name, b"\n".join(data)))
            name, data = b"", []
        elif field == b"event":
            name = value.strip()
        elif field == b"data":
            data.append(value)
    return events


LINES = [
    b"",
    b": keep-alive",
    b":",
    b"data: [DONE]",
    b"data",
    b"data:x",
    b"data:  two spaces",
    'data: {"t":"Grüße 漢字 👩\u200d👧 🌍"}'.encode(),
    b"event: error",
    b"event:",
    b"id: 7",
    b"retry: 3000",
    b"unknown",
]
streams = st.lists(st.sampled_from([line + end for line in LINES for end in (b"\n", b"\r\n", b"\r")]), max_size=12).map(
    b"".join
)
cuts = st.lists(st.integers(0, 250), max_size=8)


@settings(max_examples=2000, deadline=None)
@given(stream=streams, cuts=cuts)
def test_no_way_of_cutting_the_bytes_changes_the_events(stream: bytes, cuts: list[int]) -> None:
    """STR-01"""
    places = sorted({cut % (len(stream) + 1) for cut in cuts})
    pieces = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]

    assert parse(*pieces) == parse(stream) == by_the_book(stream)


noise = st.lists(st.sampled_from([b"data: ", b"\n", b"\r", b"{", b"}", b":", b"\xef\xbb\xbf", b"\xff", b" ", b"x" * 9]))


@settings(max_examples=300, deadline=None)
@given(stream=noise.map(b"".join), limit=st.integers(1, 30))
def test_any_bytes_can_be_fed_one_by_one(stream: bytes, limit: int) -> None:
    whole, bytewise = EventParser(limit), EventParser(limit)

    at_once = whole.feed(stream)
    one_by_one = [event for i in range(len(stream)) for event in bytewise.feed(stream[i : i + 1])]

    assert at_once == one_by_one
    assert whole.too_long == bytewise.too_long

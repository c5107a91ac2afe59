import re

from backend.core.clock import now
from backend.engines.metrics import Load
from web.admin.sparks import in_a_line, readings


def test_the_newest_value_stands_in_words_beside_its_line() -> None:
    loads = [Load(now(), running=2, waiting=0, kv=0.5), Load(now(), running=4, waiting=1, kv=0.71)]

    running, kv = readings(loads, "east")

    assert (running.name, running.value, running.beside) == ("Running", "4", "1 waiting")
    assert (kv.name, kv.value) == ("KV cache", "71 %")
    assert "Now 4, 1 waiting; at most 4 in the last 2 readings." in running.picture
    assert re.findall(r' d="([^"]+)"', kv.picture)[1] == "M0.0 14.5L120.0 9.2"
    assert in_a_line(loads[-1]) == "4 running, 1 waiting, KV cache 71 %"


def test_where_nothing_was_told_the_line_has_a_gap() -> None:
    loads = [Load(now(), ttft=seconds) for seconds in (0.1, 0.2, None, 0.4, None)]

    (first,) = readings(loads, "east")

    assert first.value == "nothing new"
    assert re.findall(r' d="([^"]+)"', first.picture)[1].count("M") == 2


def test_an_engine_that_tells_nothing_has_no_charts() -> None:
    assert readings([], "east") == []
    assert readings([Load(now())], "east") == []
    assert in_a_line(None) == in_a_line(Load(now())) == ""

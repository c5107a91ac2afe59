import xml.etree.ElementTree as ET

import pytest

from backend.bench import chart, table
from backend.bench.results import Ended, Level
from tests.bench.support import level, measurement

# In words


def test_it_says_where_it_is_comfortable_and_what_one_request_at_a_time_would_have_said() -> None:
    found = measurement(
        level(1),
        level(2, speed_p50=45.0, per_second=76.0),
        level(4, speed_p50=12.0, per_second=80.0),
        level(8, speed_p50=9.9, per_second=80.0),
    )

    assert found.meaning == (
        "Up to 2 people at once each read at 45 tokens/s and wait at most 0.40 s for the first word; with 4, each "
        "reads at 12 tokens/s. A benchmark with one request at a time would have said 50 tokens/s and 0.20 s to the "
        "first word, while each of 8 gets 9.9 tokens/s after 0.20 s; in all the engine writes up to 80 tokens/s, "
        "reached with 2 people."
    )


@pytest.mark.parametrize(
    ("beyond", "why"),
    [
        (level(2, first_p95=7.3), "with 2, one in twenty waits 7.3 s or longer for the first word."),
        (level(2, failures={"Busy.": 2}, answered=4), "with 2, 2 of 6 answers failed."),
        (level(2, speed_p50=3.14), "with 2, each reads at 3.1 tokens/s."),
    ],
)
def test_it_says_what_comes_first_beyond_that(beyond: Level, why: str) -> None:
    assert why in measurement(level(1), beyond).meaning


def test_one_person_alone_may_be_too_many() -> None:
    said = measurement(level(1, speed_p50=4.0)).meaning

    assert said == "Even for one person it is not comfortable: each reads at 4.0 tokens/s."


def test_an_engine_that_serves_one_after_the_other_is_told_as_one() -> None:
    said = measurement(level(1), level(2, per_second=41.0, first_p95=6.0)).meaning

    assert "several people only share that: in all it writes no more for them (41 tokens/s)" in said


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (Ended.TIME, "The time was over"),
        (Ended.TOKENS, "more tokens than allowed"),
        (Ended.CANCELLED, "ended by hand"),
        (Ended.PEOPLE, "people were waiting"),
        (Ended.LOST, "the process that measured ended"),
    ],
)
def test_it_says_why_it_ended_early(ended: Ended, words: str) -> None:
    assert words in measurement(level(1), ended=ended).meaning


def test_nothing_measured_is_said_with_its_reason() -> None:
    failed = measurement(ended=Ended.FAILED, problem="The engine cannot be reached.")

    assert failed.meaning == "Nothing could be measured: The engine cannot be reached."
    assert measurement(ended=None).meaning == ""


def test_estimates_are_marked_in_the_words_and_in_the_table() -> None:
    found = measurement(level(1, estimated=True))

    assert "The engine did not count its tokens" in found.meaning
    assert "~50.0" in table.row(found.levels[0])
    assert "~ is an estimate" in "\n".join(table.foot(found))


def test_columns_stand_under_their_heads() -> None:
    *_above, head = table.head()
    row = table.row(level(8, first_p50=None, failures={"Busy.": 2}))

    assert len(head) == len(row)
    assert row.split() == ["8", "24", "-", "0.40", "s", "50.0", "45.0", "320.0", "2", "10.0"]


# In a picture

HOSTILE = "</title><script>alert(1)</script>\"'&\x01\ufffe\u202e"


def drawn(text: str) -> ET.Element:
    return ET.fromstring(text)


def words_in(picture: ET.Element) -> str:
    return " ".join(part for part in picture.itertext() if part)


def test_a_picture_tells_everything_to_whoever_cannot_see_it() -> None:
    picture = drawn(chart.svg(measurement(level(1), level(2), level(4))))

    named = {element.get("id"): element.text for element in picture}
    labels = (picture.get("aria-labelledby") or "").split()
    assert picture.get("role") == "img"
    assert named[labels[0]] == "linden-8b on gpu-1"
    assert "4 at once: 50 tokens/s each, 160 in all, first word after 0.2 s (p95 0.4 s)." in str(named[labels[1]])
    assert "prefers-color-scheme:dark" in words_in(picture)


def test_a_hostile_name_stays_text() -> None:
    for alone in (True, False):
        picture = drawn(chart.svg(measurement(level(1), level(2), model=HOSTILE, engine=HOSTILE), alone=alone))

        assert "<script>alert(1)</script>" in words_in(picture)
        assert [element.tag for element in picture.iter() if "script" in element.tag] == []


def test_in_a_page_it_brings_no_style() -> None:
    assert "<style" not in chart.svg(measurement(level(1)), alone=False)


def test_points_that_are_not_known_are_left_out_and_all_others_lie_within() -> None:
    levels = (level(1, first_p50=None, first_p95=None), level(2, per_second=123456.0), level(3, speed_p50=None))
    picture = drawn(chart.svg(measurement(*levels)))

    points = [element for element in picture.iter() if element.tag.endswith("circle")]
    assert len(points) == 2 + 3 + 2 + 2
    assert all(0 <= float(point.get("cx", "-1")) <= 960 for point in points)
    assert all(0 <= float(point.get("cy", "-1")) <= 250 for point in points)
    assert "nan" not in chart.svg(measurement(level(1, per_second=0.0, speed_p50=None, first_p50=0.0, first_p95=0.0)))

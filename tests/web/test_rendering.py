"""Templates to replies, and moments to the viewer's own clock."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from jinja2 import UndefinedError
from starlette.requests import Request

from backend.accounts.models import Theme
from backend.core.ids import new_id
from web import rendering
from web.company import Company
from web.rendering import STATIC, clock_time, date_and_time, find_zone, iso, page, partial, static, templates, zone_of
from web.viewer import Viewer


def request_of(chosen: str | None = None, browser: str | None = None, *, signed_in: bool = True) -> Request:
    """From somebody with these time zones in their settings and in their session."""
    state: dict[str, Any] = {"support_id": "k3f9-x2mq", "company": Company("Acme")}
    if signed_in:
        state["viewer"] = Viewer(
            new_id(), "Alice", "a@corp.example", False, frozenset(), "A", Theme.SYSTEM, (chosen, browser)
        )
    return Request({"type": "http", "method": "GET", "path": "/x", "headers": [], "query_string": b"", "state": state})


ERROR: dict[str, Any] = {
    "status_code": 404,
    "heading": "There is nothing here",
    "sentence": "Tom & <b>Jerry</b>",
    "ways": [("New chat", "/")],
    "moment": datetime(2026, 11, 30, 23, 30, tzinfo=UTC),
}


def test_a_page_is_drawn_with_what_every_page_has() -> None:
    reply = page(request_of("Europe/Berlin"), "error.html", status=404, **ERROR)

    body = bytes(reply.body).decode()
    assert reply.status_code == 404
    assert "k3f9-x2mq" in body
    assert "1 December 2026, 00:30" in body
    assert 'datetime="2026-11-30T23:30:00+00:00"' in body


def test_text_is_text_in_every_template() -> None:
    reply = page(request_of(), "error.html", **ERROR)

    assert b"Tom &amp; &lt;b&gt;Jerry&lt;/b&gt;" in reply.body


def test_a_fragment_has_its_own_status() -> None:
    reply = partial(request_of(), "_toast.html", status=409, message="No.", serious=False)

    assert (reply.status_code, reply.media_type) == (409, "text/html")


def test_a_name_that_a_route_forgot_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="sentence"):
        page(request_of(), "error.html", **{name: value for name, value in ERROR.items() if name != "sentence"})


def test_somebody_who_is_not_signed_in_can_be_shown_a_page() -> None:
    reply = page(request_of(signed_in=False), "error.html", **ERROR)

    assert b"30 November 2026, 23:30" in reply.body


def test_the_address_of_a_static_file_changes_with_its_content(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "STATIC", tmp_path)
    (tmp_path / "a.css").write_text("one")
    before = static.__wrapped__("a.css")
    (tmp_path / "a.css").write_text("two")

    after = static.__wrapped__("a.css")

    assert before.startswith("/static/a.css?v=")
    assert before != after


def test_a_static_file_that_is_missing_is_noticed() -> None:
    assert static("app.css").startswith("/static/app.css?v=")
    assert (STATIC / "app.css").is_file()
    with pytest.raises(FileNotFoundError):
        static("nothing.css")


def test_templates_are_made_once() -> None:
    assert templates() is templates()


# Time zones


@pytest.mark.parametrize(
    ("chosen", "browser", "zone"),
    [
        ("Pacific/Auckland", "Europe/Berlin", "Pacific/Auckland"),
        (None, "Europe/Berlin", "Europe/Berlin"),
        ("", "Europe/Berlin", "Europe/Berlin"),
        ("Made/Up", "Europe/Berlin", "Europe/Berlin"),
        (None, "../../etc/passwd", "UTC"),
        (None, None, "UTC"),
    ],
)
def test_the_zone_is_the_chosen_one_else_the_browsers_else_utc(
    chosen: str | None, browser: str | None, zone: str
) -> None:
    assert zone_of(request_of(chosen, browser)).key == zone


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "Nowhere",
        "Europe",
        "../UTC",
        "/etc/passwd",
        "Europe/Berlin\n",
        "a\0b",
        "\ud800",
        "x/" * 5_000,
        "UTC" * 200,
    ],
)
def test_a_zone_that_somebody_made_up_is_none(name: str) -> None:
    assert find_zone(name) is None


@pytest.mark.parametrize(
    ("zone", "time", "day"),
    [
        ("UTC", "23:30", "28 March 2026, 23:30"),
        ("Europe/Berlin", "00:30", "29 March 2026, 00:30"),
        ("Pacific/Tongatapu", "12:30", "29 March 2026, 12:30"),  # UTC+13
        ("Etc/GMT+8", "15:30", "28 March 2026, 15:30"),  # UTC-8
        ("Asia/Kathmandu", "05:15", "29 March 2026, 05:15"),
    ],
)
def test_a_moment_is_shown_by_the_viewers_clock(zone: str, time: str, day: str) -> None:
    moment = datetime(2026, 3, 28, 23, 30, tzinfo=UTC)

    assert clock_time(moment, ZoneInfo(zone)) == time
    assert date_and_time(moment, ZoneInfo(zone)) == day


def test_the_clock_changes_with_the_season() -> None:
    berlin = ZoneInfo("Europe/Berlin")

    assert clock_time(datetime(2026, 3, 29, 0, 59, tzinfo=UTC), berlin) == "01:59"
    assert clock_time(datetime(2026, 3, 29, 1, 0, tzinfo=UTC), berlin) == "03:00"
    assert clock_time(datetime(2026, 10, 25, 0, 30, tzinfo=UTC), berlin) == "02:30"
    assert clock_time(datetime(2026, 10, 25, 1, 30, tzinfo=UTC), berlin) == "02:30"


def test_for_machines_a_moment_is_in_utc_and_says_so() -> None:
    assert (
        iso(datetime(2026, 3, 29, 12, 30, 5, 999, tzinfo=timezone(timedelta(hours=13)))) == "2026-03-28T23:30:05+00:00"
    )

"""Days as the viewer's own calendar has them (TXT-06)."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from web.chat.days import Group, by_day

BERLIN = ZoneInfo("Europe/Berlin")
TONGA = ZoneInfo("Pacific/Tongatapu")  # UTC+13
PACIFIC = ZoneInfo("Etc/GMT+8")  # UTC-8
LOS_ANGELES = ZoneInfo("America/Los_Angeles")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")  # its clocks change by half an hour
APIA = ZoneInfo("Pacific/Apia")  # left out 30 December 2011


@dataclass(frozen=True)
class Chat:
    updated_at: datetime


def at(local: str, zone: ZoneInfo = BERLIN, *, fold: int = 0) -> datetime:
    """A time on the wall there, as it is stored."""
    return datetime.fromisoformat(local).replace(tzinfo=zone, fold=fold).astimezone(UTC)


def labels(now: datetime, zone: ZoneInfo, *moments: datetime) -> list[str]:
    """Under which heading each of these comes, by itself."""
    found = [by_day([Chat(moment)], now, zone) for moment in moments]
    return [group.label for (group,) in found]


def test_conversations_stand_under_their_days_newest_first() -> None:
    now = at("2026-03-20 12:00")
    moments = ["2026-03-20 11:00", "2026-03-20 01:00", "2026-03-19 12:00", "2026-03-15 12:00", "2026-03-02 12:00",
               "2026-02-20 12:00", "2025-12-24 12:00", "2025-03-20 12:00"]  # fmt: skip
    chats = [Chat(at(moment)) for moment in moments]

    groups = by_day(chats, now, BERLIN)

    assert groups == [
        Group("Today", chats[0:2]),
        Group("Yesterday", chats[2:3]),
        Group("Previous 7 days", chats[3:4]),
        Group("March", chats[4:5]),
        Group("February", chats[5:6]),
        Group("December 2025", chats[6:7]),
        Group("March 2025", chats[7:8]),
    ]


def test_the_next_page_does_not_repeat_the_heading_it_goes_on_under() -> None:
    now, shown = at("2026-03-20 12:00"), at("2026-03-19 12:00")
    chats = [Chat(at("2026-03-19 09:00")), Chat(at("2026-03-15 12:00"))]

    going_on = by_day(chats, now, BERLIN, after=shown)
    beginning = by_day(chats[1:], now, BERLIN, after=shown)

    assert [group.label for group in going_on] == ["", "Previous 7 days"]
    assert [group.label for group in beginning] == ["Previous 7 days"]


def test_nothing_has_no_headings() -> None:
    assert by_day([], at("2026-03-20 12:00"), BERLIN) == []


@pytest.mark.parametrize("zone", [ZoneInfo("UTC"), BERLIN, TONGA, PACIFIC, LOS_ANGELES, ZoneInfo("Asia/Kathmandu")])
def test_a_day_begins_at_the_viewers_midnight(zone: ZoneInfo) -> None:
    """Half an hour before and after it, wherever the server is."""
    late, early = at("2026-06-10 23:30", zone), at("2026-06-11 00:30", zone)

    assert labels(at("2026-06-10 23:45", zone), zone, late) == ["Today"]
    assert labels(at("2026-06-11 00:45", zone), zone, early, late) == ["Today", "Yesterday"]
    assert labels(at("2026-06-11 23:45", zone), zone, early, late) == ["Today", "Yesterday"]
    assert labels(at("2026-06-12 00:00", zone), zone, early, late) == ["Yesterday", "Previous 7 days"]


def test_the_same_moment_is_another_day_elsewhere() -> None:
    """23:30 in UTC is noon of the next day in UTC+13 and the afternoon of the same day in UTC-8."""
    moment = datetime(2026, 6, 10, 23, 30, tzinfo=UTC)
    now = datetime(2026, 6, 11, 8, 30, tzinfo=UTC)

    assert labels(now, ZoneInfo("UTC"), moment) == ["Yesterday"]
    assert labels(now, TONGA, moment) == ["Today"]
    assert labels(now, PACIFIC, moment) == ["Yesterday"]
    assert labels(now - timedelta(hours=1), PACIFIC, moment) == ["Today"]


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        (BERLIN, "2026-03-29"),  # of 23 hours
        (BERLIN, "2026-10-25"),  # of 25 hours
        (LOS_ANGELES, "2026-03-08"),
        (LOS_ANGELES, "2026-11-01"),
        (LORD_HOWE, "2026-04-05"),
        (LORD_HOWE, "2026-10-04"),
    ],
)
def test_days_on_which_the_clocks_change_are_days(zone: ZoneInfo, day: str) -> None:
    """Dates are compared, not hours: 24 hours before is not yesterday on all of them."""
    date = datetime.fromisoformat(day)
    before, after = ((date + timedelta(days=days)).strftime("%Y-%m-%d") for days in (-1, 1))
    moments = [
        at(f"{day} 23:30", zone),
        at(f"{day} 00:30", zone),
        at(f"{before} 23:30", zone),
        at(f"{before} 00:30", zone),
    ]

    assert labels(at(f"{day} 23:45", zone), zone, *moments) == ["Today", "Today", "Yesterday", "Yesterday"]
    assert labels(at(f"{after} 00:15", zone), zone, *moments[:2]) == ["Yesterday", "Yesterday"]
    assert labels(at(f"{after} 23:45", zone), zone, *moments[:2]) == ["Yesterday", "Yesterday"]


def test_an_hour_that_comes_twice_stays_on_its_day() -> None:
    twice = [at("2026-10-25 02:30", fold=0), at("2026-10-25 02:30", fold=1)]

    assert twice[1] - twice[0] == timedelta(hours=1)
    assert labels(at("2026-10-25 03:00"), BERLIN, *twice) == ["Today", "Today"]
    assert labels(at("2026-10-26 02:30"), BERLIN, *twice) == ["Yesterday", "Yesterday"]


def test_where_a_day_was_left_out_the_one_before_is_two_days_ago() -> None:
    """Samoa jumped over the date line: after Thursday the 29th came Saturday the 31st."""
    now = at("2011-12-31 12:00", APIA)

    assert labels(now, APIA, at("2011-12-29 23:30", APIA)) == ["Previous 7 days"]


@pytest.mark.parametrize(
    ("moment", "label"),
    [
        ("2026-03-13 23:59", "Previous 7 days"),
        ("2026-03-13 00:00", "Previous 7 days"),
        ("2026-03-12 23:59", "March"),
        ("2026-03-01 00:00", "March"),
        ("2026-02-28 23:59", "February"),
        ("2026-01-01 00:00", "January"),
        ("2025-12-31 23:59", "December 2025"),
    ],
)
def test_older_ones_stand_under_a_week_then_their_month(moment: str, label: str) -> None:
    assert labels(at("2026-03-20 12:00"), BERLIN, at(moment)) == [label]


def test_early_in_january_last_week_is_still_last_week() -> None:
    now = at("2026-01-03 12:00")

    assert labels(now, BERLIN, at("2025-12-31 12:00"), at("2025-12-26 12:00")) == ["Previous 7 days", "December 2025"]


def test_a_clock_that_runs_ahead_makes_no_day_of_its_own() -> None:
    """A conversation from a server whose clock is a minute ahead, just before midnight."""
    assert labels(at("2026-03-20 23:59"), BERLIN, at("2026-03-21 00:01")) == ["Today"]


zones = st.sampled_from([ZoneInfo("UTC"), BERLIN, TONGA, PACIFIC, LOS_ANGELES, LORD_HOWE, APIA])
moments = st.datetimes(*map(datetime.fromisoformat, ("2010-01-01", "2030-01-01")), timezones=st.just(UTC))


@settings(deadline=None)
@given(st.lists(moments, min_size=1, max_size=30), moments, zones)
def test_every_conversation_stands_under_one_heading_and_no_heading_comes_twice(
    found: list[datetime], now: datetime, zone: ZoneInfo
) -> None:
    chats = [Chat(moment) for moment in sorted(found, reverse=True)]

    groups = by_day(chats, now, zone)

    assert [chat for group in groups for chat in group.items] == chats
    assert len({group.label for group in groups}) == len(groups)


@settings(deadline=None)
@given(moments, zones, st.integers(0, 250))
def test_as_time_goes_by_a_conversation_only_moves_down(moment: datetime, zone: ZoneInfo, hours: int) -> None:
    order = ["Today", "Yesterday", "Previous 7 days"]

    ages = [labels(moment + timedelta(hours=each), zone, moment)[0] for each in range(0, hours + 1, 7)]

    ranks = [order.index(label) if label in order else len(order) for label in ages]
    assert ranks == sorted(ranks)

"""The headings of the sidebar: days as the viewer's own calendar has them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from typing import Protocol, TypeVar
from zoneinfo import ZoneInfo

from backend.core.i18n import _

TODAY = _("Today")


class _Dated(Protocol):
    @property
    def updated_at(self) -> datetime: ...


Item = TypeVar("Item", bound=_Dated)


@dataclass(frozen=True)
class Group:
    label: str
    items: Sequence[_Dated]


def by_day(items: Iterable[Item], now: datetime, zone: ZoneInfo, *, after: datetime | None = None) -> list[Group]:
    """`items`, newest first, under Today, Yesterday, Previous 7 days, then by month.

    A day begins at the viewer's midnight, also on the days when the clocks change: dates are compared, not hours.
    `after` is the time of the last item already shown; its heading is not repeated, the first group's label is ''.
    """
    today = now.astimezone(zone).date()

    def label(moment: datetime) -> str:
        return _label(moment.astimezone(zone).date(), today)

    shown = label(after) if after else None
    grouped = groupby(items, key=lambda item: label(item.updated_at))
    return [Group("" if heading == shown else heading, list(members)) for heading, members in grouped]


def _label(day: date, today: date) -> str:
    age = (today - day).days
    if age <= 0:
        return TODAY
    if age == 1:
        return _("Yesterday")
    if age <= 7:
        return _("Previous 7 days")
    month = _MONTHS[day.month - 1]
    return month if day.year == today.year else f"{month} {day.year}"


_MONTHS = (
    _("January"),
    _("February"),
    _("March"),
    _("April"),
    _("May"),
    _("June"),
    _("July"),
    _("August"),
    _("September"),
    _("October"),
    _("November"),
    _("December"),
)

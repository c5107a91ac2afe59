"""The one clock. Times are aware and UTC everywhere; a person's own zone is applied only when a page is drawn."""

from datetime import UTC, datetime


def now() -> datetime:
    return datetime.now(UTC)

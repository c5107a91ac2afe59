"""What the kinds of engines are called."""

from backend.engines import dialects


def kind_name(kind: str | None) -> str:
    """Nothing for one that is not known yet."""
    return dialects.of(kind).name if kind else ""

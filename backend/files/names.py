"""How files are called and how large they are, in words that can be shown anywhere."""

from pathlib import PurePosixPath

from backend.core.i18n import _
from backend.core.text import one_line
from backend.files.models import MAX_NAME

_LONGEST_ENDING = 12
_SCALE = ((1024 * 1024 * 1024, "GB"), (1024 * 1024, "MB"), (1024, "kB"))


def safe_name(given: str) -> str:
    """The last part of a path from anywhere, on one line, without what is invisible or turns the writing around it.

    A name that is too long loses its middle, so that one still sees what kind of file it is.
    """
    last = given.replace("\\", "/").rstrip("/").rpartition("/")[2]
    # The same letters may come composed or not; what is left alone is what people see.
    name = one_line(last, 4 * MAX_NAME).strip(" .\u2026") if not last.startswith(".") else one_line(last, MAX_NAME)
    if not name.strip("."):
        return _("File")
    if len(name) <= MAX_NAME:
        return name
    ending = PurePosixPath(name).suffix
    ending = ending if len(ending) <= _LONGEST_ENDING else ""
    return name[: MAX_NAME - len(ending) - 1].rstrip() + "…" + ending


def human_size(count: int) -> str:
    """`12 kB`, `3.4 MB`: two digits say enough."""
    for unit, word in _SCALE:
        if count >= unit:
            amount = count / unit
            return f"{amount:.1f} {word}" if amount < 9.95 and round(amount, 1) % 1 else f"{amount:.0f} {word}"
    return _("{count} bytes").format(count=count)

"""Where an answer came from, in words: `messages.provenance` as its reader sees it."""

from collections.abc import Sequence
from typing import Any

from backend.conversations.models import Message, Status
from backend.core.i18n import _, ngettext


def summary(known: dict[str, Any]) -> str:
    """How much was written, and how fast, in a few words."""
    parts = [*known.get("earlier", ()), known]
    count = _written(parts)
    if not count:
        return ""
    if len(parts) > 1:
        return _("{count}, in {parts} parts").format(count=count, parts=len(parts))
    seconds = known["seconds"] - known.get("first_token_seconds", 0)
    if seconds <= 0:
        return count
    return _("{count}, {rate:.0f} per second").format(count=count, rate=known["completion_tokens"] / seconds)


def _written(parts: Sequence[dict[str, Any]]) -> str:
    tokens = sum(part.get("completion_tokens") or 0 for part in parts)
    return ngettext("{tokens:,} token", "{tokens:,} tokens", tokens).format(tokens=tokens) if tokens else ""


def facts(message: Message) -> list[tuple[str, str]]:
    """Where an answer came from, as pairs of a term and what holds for it; of one in several parts the last counts,
    and what was written is the sum."""
    known = message.provenance
    parts = [*known.get("earlier", ()), known]
    engine = " ".join(str(part) for part in (known.get("engine_kind"), known.get("engine_version")) if part)
    read = _("{tokens:,} tokens").format(tokens=known.get("prompt_tokens") or 0)
    if known.get("cached_tokens"):
        read += _(", {tokens:,} from cache").format(tokens=known["cached_tokens"])
    rows = [
        (_("Model"), message.model_name),
        (_("Engine"), ", ".join(part for part in (known.get("engine"), engine) if part)),
        (_("Known there as"), known.get("upstream_name")),
        (_("First token"), _seconds(known.get("first_token_seconds"))),
        (_("Whole answer"), _seconds(known.get("seconds"))),
        (_("Read"), read if known.get("prompt_tokens") else None),
        (_("Written"), _written(parts)),
        *_stitches(known),
        (_("Ended"), _ended(message)),
    ]
    return [(term, value) for term, value in rows if value]


def _stitches(known: dict[str, Any]) -> list[tuple[str, str]]:
    """How often an answer was taken up again, by itself and by a press of Continue."""
    seams, by_itself = len(known.get("earlier", ())), known.get("resumed", 0)
    times = [(_("Went on after an interruption"), by_itself), (_("Continued when asked"), seams - by_itself)]
    return [(term, ngettext("Once", "{n} times", n).format(n=n)) for term, n in times if n > 0]


def _ended(message: Message) -> str:
    if message.status is Status.DONE and message.ended_by == "length":
        return _("At its limit of length")
    return {
        Status.DONE: _("Finished by itself"),
        Status.STOPPED: _("Stopped by you"),
        Status.INTERRUPTED: _("Interrupted"),
        Status.FAILED: _("Failed"),
    }.get(message.status, "")


def _seconds(value: float | None) -> str | None:
    return None if value is None else _("{seconds:.2f} s").format(seconds=value)

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
    rate = _rate(known)
    return _("{count}, {rate:.0f} per second").format(count=count, rate=rate) if rate else count


def _written(parts: Sequence[dict[str, Any]]) -> str:
    tokens = sum(part.get("completion_tokens") or 0 for part in parts)
    return ngettext("{tokens:,} token", "{tokens:,} tokens", tokens).format(tokens=tokens) if tokens else ""


def _rate(known: dict[str, Any]) -> float | None:
    """Tokens per second, from the first one on."""
    seconds = (known.get("seconds") or 0) - (known.get("first_token_seconds") or 0)
    return (known.get("completion_tokens") or 0) / seconds if seconds > 0 else None


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
        (_("Asked in vain before"), ", ".join(each["engine"] for each in known.get("tries", ()))),
        (_("Known there as"), known.get("upstream_name")),
        (_("Revision"), known.get("revision")),
        (_("Settings"), _parameters(known)),
        (_("First token"), _seconds(known.get("first_token_seconds"))),
        (_("Whole answer"), _seconds(known.get("seconds"))),
        (_("Read"), read if known.get("prompt_tokens") else None),
        (_("Written"), _written(parts)),
        (_("Speed"), _("{rate:.1f} tokens per second").format(rate=rate) if (rate := _rate(known)) else None),
        *_stitches(known),
        (_("Ended"), _ended(message)),
    ]
    return [(term, value) for term, value in rows if value]


def _parameters(known: dict[str, Any]) -> str:
    """With which it was made, as far as they were not left to the engine."""
    used = known.get("parameters") or {}
    words = {
        "temperature": _("temperature {value}"),
        "max_tokens": _("at most {value:,} tokens"),
        "thinking": _("thinking: {value}"),
        "json": _("JSON"),
    }
    return ", ".join(text.format(value=used[name]) for name, text in words.items() if name in used)


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

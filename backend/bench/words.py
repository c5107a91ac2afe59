"""Capacity in words: the answer as a sentence, and as lines for a terminal."""

from collections.abc import Iterator

from backend.bench import capacity
from backend.bench.capacity import GIB, Capacity, Setup
from backend.core.i18n import _, ngettext
from backend.engines.room import Room


def answer(setup: Setup, found: Capacity) -> str:
    if found.missing:
        return _("It does not fit: {missing} of memory are missing before the first conversation.").format(
            missing=gib(found.missing)
        )
    if not found.people:
        return _(
            "The model fits, but not one conversation of {context} tokens: there is room for {tokens} tokens."
        ).format(context=f"{setup.context:,}", tokens=f"{found.tokens:,}")
    return _(
        "{people} with conversations of {context} tokens fit at the same time. The cache holds {tokens} tokens, of "
        "{bytes} bytes each."
    ).format(
        people=people(found.people),
        context=f"{setup.context:,}",
        tokens=f"{found.tokens:,}",
        bytes=f"{found.cache_per_token:,.0f}",
    )


def answer_of(room: Room, context: int) -> str:
    """For a running engine."""
    if room.tokens is not None:
        return _("It has room for {tokens} tokens: {people} with conversations of {context} tokens.").format(
            tokens=f"{room.tokens:,}", people=people(capacity.people_in(room, context)), context=f"{context:,}"
        )
    return _("It takes {people} at the same time, each with a conversation of at most {context} tokens.").format(
        people=people(room.slots or 0), context=f"{room.context or 0:,}"
    )


def terminal(setup: Setup) -> Iterator[str]:
    found = capacity.of(setup)
    yield answer(setup, found)
    yield ""
    yield f"{_('weights'):>16} {gib(found.weights):>10}"
    yield f"{_('working memory'):>16} {gib(found.working):>10}"
    yield f"{_('KV cache'):>16} {gib(found.cache):>10}"
    yield ""
    yield from _table(capacity.by_context(found.tokens))
    yield ""
    for what, changed in capacity.what_if(setup):
        yield _("with {what}: {people}").format(what=what, people=people(capacity.of(changed).people))


def terminal_of(room: Room, context: int) -> Iterator[str]:
    yield answer_of(room, context)
    yield ""
    yield from _table(capacity.by_context_in(room))


def _table(rows: list[tuple[int, int]]) -> Iterator[str]:
    for context, count in rows:
        yield _("{context} tokens: {people}").format(context=f"{context:>9,}", people=people(count))


def people(count: int) -> str:
    return ngettext("one person", "{count} people", count).format(count=f"{count:,}") if count else _("nobody")


def gib(amount: float) -> str:
    return f"{amount / GIB:,.1f} GiB"

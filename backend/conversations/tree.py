"""The messages of a conversation as a tree: pure functions over its rows, which are read with one range scan.

Postgres could walk the tree itself, but one index descent for each message costs more than reading all of them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from backend.conversations.models import Message, Speaker


class Node(Protocol):
    """A row of `messages`, as an object of the ORM or as plain SQL returned it."""

    @property
    def id(self) -> UUID: ...
    @property
    def parent_id(self) -> UUID | None: ...


N = TypeVar("N", bound=Node)


class PathRow(NamedTuple):
    """What the writer of an answer has to know of a message: the columns of `statements.MESSAGES`, in their order."""

    id: UUID
    parent_id: UUID | None
    speaker: str
    text: str
    instruction: str = ""
    context_tokens: int | None = None
    context_from: UUID | None = None
    has_files: bool = False
    is_welcome: bool = True  # its owner may still have answers
    model_id: UUID | None = None
    deployment_id: UUID | None = None  # where an answer came from


def path(messages: Iterable[N], leaf_id: UUID | None) -> list[N]:
    """The branch that ends at `leaf_id`, oldest first: what a reader sees and an engine is shown. Empty without it."""
    nodes = {message.id: message for message in messages}
    steps: list[N] = []
    node = nodes.get(leaf_id) if leaf_id else None
    while node is not None:
        steps.append(node)
        node = nodes.get(node.parent_id) if node.parent_id else None
    return steps[::-1]


def versions(messages: Iterable[Message]) -> Callable[[Message], Sequence[UUID]]:
    """For each message: itself and what was said instead of it, oldest first.

    Without what was deleted, unless something follows it that was not: there would be no way to that any more.
    """
    messages = list(messages)
    parents = {message.id: message.parent_id for message in messages}
    followed: set[UUID | None] = {None}
    for message in messages:
        parent = None if message.deleted_at else message.parent_id
        while parent not in followed:
            followed.add(parent)
            parent = parents.get(parent) if parent else None
    places: dict[tuple[UUID | None, Speaker], list[Message]] = {}
    for message in sorted(messages, key=lambda each: each.id):
        places.setdefault((message.parent_id, message.speaker), []).append(message)

    def of(message: Message) -> Sequence[UUID]:
        beside = places[message.parent_id, message.speaker]
        return [each.id for each in beside if not each.deleted_at or each.id == message.id or each.id in followed]

    return of


def newest_below(messages: Iterable[N], message_id: UUID) -> UUID:
    """Where the branch through a message ends that was written last, or the message itself: ids grow with time."""
    followers: dict[UUID | None, list[UUID]] = {}
    for message in messages:
        followers.setdefault(message.parent_id, []).append(message.id)
    ends, unseen = [], [message_id]
    while unseen:
        node = unseen.pop()
        if node in followers:
            unseen += followers[node]
        else:
            ends.append(node)
    return max(ends)

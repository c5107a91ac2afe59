"""A conversation as a tree."""

from dataclasses import dataclass
from uuid import UUID

from hypothesis import given, strategies as st

from backend.conversations import tree
from backend.core.ids import new_id


@dataclass(frozen=True)
class Row:
    id: UUID
    parent_id: UUID | None


@st.composite
def trees(draw: st.DrawFn) -> list[Row]:
    """Every row follows an earlier one, or begins the conversation."""
    rows: list[Row] = []
    for _number in range(draw(st.integers(0, 30))):
        parent = draw(st.sampled_from([None, *(row.id for row in rows)]))
        rows.append(Row(new_id(), parent))
    return rows


def test_a_path_is_one_branch_oldest_first() -> None:
    one = Row(new_id(), None)
    failed, better = Row(new_id(), one.id), Row(new_id(), one.id)
    last = Row(new_id(), better.id)

    assert tree.path([last, failed, one, better], last.id) == [one, better, last]
    assert tree.path([last, failed, one, better], failed.id) == [one, failed]


def test_without_its_leaf_a_path_is_empty() -> None:
    assert tree.path([Row(new_id(), None)], None) == []
    assert tree.path([Row(new_id(), None)], new_id()) == []


@given(trees())
def test_every_message_ends_a_path_that_begins_at_the_beginning(rows: list[Row]) -> None:
    for row in rows:
        path = tree.path(rows, row.id)
        assert path[0].parent_id is None
        assert path[-1] is row
        assert [step.parent_id for step in path[1:]] == [step.id for step in path[:-1]]


@given(trees())
def test_the_newest_below_is_a_leaf_whose_path_leads_through_the_message(rows: list[Row]) -> None:
    for row in rows:
        newest = tree.newest_below(rows, row.id)
        assert row in tree.path(rows, newest)
        assert not any(other.parent_id == newest for other in rows)


def test_a_branch_ends_at_its_end_also_where_clocks_of_hosts_differ() -> None:
    """The id of what follows may be smaller then."""
    late, early, earlier = sorted((new_id() for _number in range(3)), reverse=True)
    rows = [Row(late, None), Row(early, late), Row(earlier, early)]

    assert tree.newest_below(rows, late) == earlier

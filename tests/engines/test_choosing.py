"""A pure decision: everything it is told is in its arguments."""

from collections import Counter
from collections.abc import Sequence
from typing import cast
from uuid import UUID, uuid5

import pytest
from hypothesis import given, settings, strategies as st

from backend.engines.choosing import Busy, NoEngineAvailable, choose
from backend.engines.client import EngineClient
from backend.engines.snapshot import Endpoint

SPACE = UUID(int=0)
NO_CLIENT = cast(EngineClient, None)  # a decision talks to nobody
AWAY = "The engine cannot be reached."


def endpoint(number: int, problem: str | None = None) -> Endpoint:
    return Endpoint(
        deployment_id=uuid5(SPACE, f"deployment {number}"),
        engine_id=uuid5(SPACE, f"engine {number}"),
        engine_name=f"engine-{number}",
        engine_kind="vllm",
        engine_version=None,
        upstream_name="linden",
        context_length=None,
        client=NO_CLIENT,
        problem=problem,
        since=None,
        continues=True,
        sees=False,
    )


def some(count: int, away: Sequence[int] = ()) -> list[Endpoint]:
    return [endpoint(number, AWAY if number in away else None) for number in range(count)]


def named(chosen: Endpoint) -> int:
    return int(chosen.engine_name.removeprefix("engine-"))


conversations = st.uuids()
pools = st.integers(1, 8).map(some)
work = st.builds(Busy, st.integers(0, 6), st.sampled_from([0, 0, 0, 1, 3]), st.sampled_from([None, 1, 2, 4]))


def test_conversations_spread_over_the_engines_and_stay_where_they_are() -> None:
    endpoints = some(3)
    chats = [uuid5(SPACE, f"conversation {number}") for number in range(600)]

    first = {chat: named(choose(endpoints, chat, {})) for chat in chats}

    assert {chat: named(choose(endpoints, chat, {})) for chat in chats} == first
    assert min(Counter(first.values()).values()) > 150


def test_without_a_conversation_the_least_busy_engine_is_taken() -> None:
    endpoints = some(3, away=[0])
    busy = {endpoints[1].deployment_id: Busy(2), endpoints[2].deployment_id: Busy(1)}

    assert named(choose(endpoints, None, {})) == 1
    assert named(choose(endpoints, None, busy)) == 2


def test_work_is_compared_by_slots_where_all_tell_theirs() -> None:
    large, small = some(2)

    busy = {large.deployment_id: Busy(6, slots=16), small.deployment_id: Busy(3, slots=4)}

    assert choose([small, large], None, busy) is large


def test_a_full_favourite_spills_to_the_least_busy_of_the_others() -> None:
    endpoints = some(3)
    chat = uuid5(SPACE, "conversation")
    favourite = choose(endpoints, chat, {})
    busier, idler = (each for each in endpoints if each is not favourite)
    others = {busier.deployment_id: Busy(3, slots=4), idler.deployment_id: Busy(1, slots=4)}

    def chosen(work: Busy) -> Endpoint:
        return choose(endpoints, chat, {favourite.deployment_id: work} | others)

    assert chosen(Busy(3, slots=4)) is favourite
    assert chosen(Busy(4, slots=4)) is idler
    assert chosen(Busy(90)) is favourite  # it did not say how much it takes
    assert chosen(Busy(90, waiting=1)) is idler


def test_the_reader_is_told_why_there_is_none() -> None:
    endpoints = some(2)

    with pytest.raises(NoEngineAvailable, match="cannot be reached") as away:
        choose(some(2, away=[0, 1]), SPACE, {})
    with pytest.raises(NoEngineAvailable, match="tried again in a moment"):
        choose(endpoints, SPACE, {}, [each.deployment_id for each in endpoints])
    with pytest.raises(NoEngineAvailable, match="No engine serves"):
        choose([], SPACE, {})

    assert away.value.status == 503


@settings(deadline=None)
@given(endpoints=pools, chat=conversations, data=st.data())
def test_what_is_excluded_or_away_is_never_chosen(endpoints: list[Endpoint], chat: UUID, data: st.DataObject) -> None:
    ids = [each.deployment_id for each in endpoints]
    excluded = data.draw(st.sets(st.sampled_from(ids)))
    away = data.draw(st.sets(st.integers(0, len(endpoints) - 1)))
    busy = data.draw(st.dictionaries(st.sampled_from(ids), work))
    endpoints = [endpoint(number, AWAY if number in away else None) for number in range(len(endpoints))]
    usable = [each for each in endpoints if each.problem is None and each.deployment_id not in excluded]

    for affinity in (chat, None):
        if usable:
            assert choose(endpoints, affinity, busy, excluded) in usable
        else:
            with pytest.raises(NoEngineAvailable):
                choose(endpoints, affinity, busy, excluded)


@settings(deadline=None)
@given(endpoints=pools, chat=conversations, data=st.data())
def test_the_same_question_has_the_same_answer_in_whatever_order(
    endpoints: list[Endpoint], chat: UUID, data: st.DataObject
) -> None:
    busy = data.draw(st.dictionaries(st.sampled_from([each.deployment_id for each in endpoints]), work))
    shuffled = data.draw(st.permutations(endpoints))

    assert choose(shuffled, chat, busy) is choose(endpoints, chat, busy)


@settings(deadline=None)
@given(count=st.integers(2, 8), chat=conversations, data=st.data())
def test_an_engine_that_comes_or_goes_moves_only_its_own_conversations(
    count: int, chat: UUID, data: st.DataObject
) -> None:
    gone = data.draw(st.integers(0, count - 1))
    with_it = named(choose(some(count), chat, {}))
    without = named(choose(some(count, away=[gone]), chat, {}))

    assert without != gone
    if with_it != gone:
        assert without == with_it


@settings(deadline=None)
@given(endpoints=pools, chat=conversations, data=st.data())
def test_a_conversation_leaves_its_favourite_only_when_that_is_full(
    endpoints: list[Endpoint], chat: UUID, data: st.DataObject
) -> None:
    busy = data.draw(st.dictionaries(st.sampled_from([each.deployment_id for each in endpoints]), work))
    favourite, chosen = choose(endpoints, chat, {}), choose(endpoints, chat, busy)

    if chosen is not favourite:
        assert busy[favourite.deployment_id].is_full
    if any(not busy.get(each.deployment_id, Busy()).is_full for each in endpoints):
        assert not busy.get(chosen.deployment_id, Busy()).is_full

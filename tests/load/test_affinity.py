"""Two real llama.cpp servers: a conversation goes where its beginning is still in the cache."""

import pytest

from tests.load.affinity import measure

pytestmark = [pytest.mark.whole, pytest.mark.xdist_group("whole"), pytest.mark.long]


async def test_what_a_conversation_said_before_is_not_read_again(database: str) -> None:
    pooled, in_turn = await measure(database, chats=2, turns=3)

    assert all(len(set(chat.engines)) == 1 for chat in pooled.chats)
    assert pooled.share >= 0.9
    assert in_turn.share < pooled.share

"""How much of a conversation a model is shown."""

from collections.abc import Iterator

import pytest

from backend.conversations import context
from backend.conversations.context import Window
from backend.conversations.models import Speaker, Status
from backend.conversations.prompt import Step
from backend.core.errors import TooLarge
from backend.core.ids import new_id
from tests.conversations.conftest import Desk
from tests.fakes.engine import FakeEngine, finish, usage
from tests.fakes.script import DONE, T

WORD = "seven !"  # two tokens by estimate


def conversation(turns: int, words: int = 50, *, counted: int | None = None) -> list[Step]:
    """Questions and answers of `words` × 2 tokens; the last answer is being written."""
    path = []
    for number in range(turns):
        path.append(Step(new_id(), Speaker.PERSON, WORD * words))
        last = number == turns - 1
        path.append(Step(new_id(), Speaker.MODEL, "" if last else WORD * words, context_tokens=counted))
    return path


def test_what_the_engine_counted_is_trusted_and_the_rest_is_estimated() -> None:
    path = conversation(2, counted=None)
    path[1] = Step(path[1].id, Speaker.MODEL, "short", context_tokens=777)

    assert context.tokens_of(path) == 777 + (100 + 5) + 5


def test_a_conversation_nobody_counted_is_estimated_with_its_system_prompt() -> None:
    assert context.tokens_of(conversation(1), WORD * 10) == 20 + (100 + 5) + 5


def test_a_cut_leaves_the_newest_turns_in_three_fifths_of_the_window() -> None:
    path = conversation(20)
    window = Window.of(1_000, None)

    left = context.cut(path, context.tokens_of(path), window)

    assert left[-1] is path[-1]
    assert left[0].speaker == Speaker.PERSON
    assert 400 < context.tokens_of(left) <= 600


def test_the_last_question_always_stays() -> None:
    path = conversation(3, words=5_000)

    assert context.cut(path, context.tokens_of(path), Window.of(1_000, None)) == path[-2:]


def test_a_cut_stays_where_it_is_until_it_is_made_anew() -> None:
    path = conversation(4)
    path[5] = Step(path[5].id, Speaker.MODEL, "third", context_from=path[2].id)

    assert context.kept(path) == path[2:]
    assert context.kept(path[:4]) == path[:4], "on another branch it never was"


@pytest.mark.parametrize(("longest", "for_prompt"), [(None, 3_000), (100, 3_900), (100_000, 3_000)])
def test_a_quarter_of_the_window_is_kept_for_the_answer_unless_it_is_shorter(
    longest: int | None, for_prompt: int
) -> None:
    assert Window.of(4_000, longest).for_prompt == for_prompt


# With an engine


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with FakeEngine(models=["fake-8b"], window=600) as running:
        yield running


async def test_a_long_conversation_goes_on_with_its_newest_messages(desk: Desk, engine: FakeEngine) -> None:
    """Cut rarely and for good: between two cuts the beginning of the prompt stays the same."""
    engine.script = ("word " * 40,)
    turn = await desk.ask("word " * 40)
    answers = [await desk.ended(turn)]
    for _number in range(11):
        turn = await desk.ask("word " * 40, turn.conversation)
        answers.append(await desk.ended(turn))

    assert all(answer.status is Status.DONE for answer in answers)
    beginnings = [answer.context_from for answer in answers]
    assert beginnings[0] is None
    cuts = len(set(beginnings)) - 1
    assert 1 <= cuts <= 4, beginnings
    assert all(asked.prompt_tokens <= 600 for asked in engine.requests)


async def test_more_tokens_than_the_window_has_are_not_believed(desk: Desk, engine: FakeEngine) -> None:
    engine.plan((T("Fine."), finish(), usage(1_500, 5), DONE), (T("Fine."), finish(), usage(500, 5), DONE))
    turn = await desk.ask("Hello")

    wrong = await desk.ended(turn)
    right = await desk.ended(await desk.ask("And now?", turn.conversation))

    assert (wrong.context_tokens, right.context_tokens) == (None, 505)
    assert wrong.provenance["prompt_tokens"] == 1_500, "what the engine told is kept as it told it"


async def test_a_question_that_cannot_fit_says_by_how_much(desk: Desk, engine: FakeEngine) -> None:
    answer = await desk.ended(await desk.ask("word " * 700))

    assert answer.status is Status.FAILED
    assert answer.provenance["failure"] == "overflow"
    assert "over by" in answer.reason
    assert not engine.requests, "the engine was not bothered with it"


async def test_what_no_model_of_this_size_can_read_is_refused_at_once(desk: Desk, engine: FakeEngine) -> None:
    with pytest.raises(TooLarge, match="over by about 1,836 tokens"):
        await desk.ask("x" * 8_000)


async def test_the_longest_answer_is_fitted_to_the_room(desk: Desk, engine: FakeEngine, owner_url: str) -> None:
    import psycopg

    async with await psycopg.AsyncConnection.connect(owner_url, autocommit=True) as connection:
        await connection.execute("UPDATE models SET max_tokens = 590")
    await desk.registry.reload()

    await desk.ended(await desk.ask("word " * 40))

    asked = engine.requests[-1]
    assert asked.body["max_tokens"] + asked.prompt_tokens <= 600
    assert asked.body["max_tokens"] > 400

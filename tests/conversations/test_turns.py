"""A turn from start to finish."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
import pytest

from backend.accounts.models import User
from backend.conversations import statements, writing
from backend.conversations.asking import AnswerInProgress
from backend.conversations.models import Status
from backend.core.direct import Direct
from backend.core.errors import BadInput, Conflict, Forbidden, NotFound, TooLarge, Unavailable
from backend.core.ids import new_id
from backend.core.settings import Settings
from tests.conversations.conftest import Desk
from tests.fakes.engine import DONE, END, HANG_UP, RESET, STALL, FakeEngine, T, Thought, error, finish, refusal


async def test_an_answer_is_written_and_stored(desk: Desk, engine: FakeEngine) -> None:
    engine.script = ("Par", "is.")

    turn = await desk.ask("What is the capital of France?")
    answer = await desk.ended(turn)

    assert (answer.status, answer.text, answer.ended_by) == (Status.DONE, "Paris.", "stop")
    assert answer.parent_id == turn.question.id
    assert answer.model_name == desk.registry.offers[0].name
    assert answer.provenance["completion_tokens"] == 2
    assert turn.conversation.title == "What is the capital of France?"


async def test_the_next_question_shows_the_engine_the_whole_path(desk: Desk, engine: FakeEngine) -> None:
    engine.plan(("One.",), ("Two.",))
    first = await desk.ask("1?")
    await desk.ended(first)

    second = await desk.ask("2?", first.conversation)
    await desk.ended(second)

    assert engine.requests[-1].messages == [
        {"role": "user", "content": "1?"},
        {"role": "assistant", "content": "One."},
        {"role": "user", "content": "2?"},
    ]


async def test_the_prompt_only_grows_at_its_end(desk: Desk, engine: FakeEngine) -> None:
    conversation = None
    for number in range(4):
        turn = await desk.ask(f"Question {number}", conversation)
        await desk.ended(turn)
        conversation = turn.conversation

    prompts = [asked.messages for asked in engine.requests]

    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(prompts))
    salts = {asked.body["cache_salt"] for asked in engine.requests}
    assert len(salts) == 1
    assert str(desk.owner.id) not in salts.pop()


async def test_the_next_message_may_go_to_another_model(desk: Desk, engine: FakeEngine) -> None:
    """Each answer remembers which model gave it."""
    small, large = sorted(desk.registry.offers, key=lambda offer: offer.name != "fake-8b")
    first = await desk.ask("Hello", model_id=small.id)
    await desk.ended(first)

    second = await desk.ask("Hello again", first.conversation, model_id=large.id)
    await desk.ended(second)

    answers = [message for message in await desk.messages(first.conversation.id) if message.model_name]
    assert [answer.model_name for answer in answers] == ["fake-8b", "fake-70b"]
    assert [asked.body["model"] for asked in engine.requests] == ["fake-8b", "fake-70b"]
    assert (await desk.conversation(first.conversation.id)).model_id == large.id


async def test_a_second_question_has_to_wait(desk: Desk, engine: FakeEngine) -> None:
    engine.hold()
    first = await desk.ask("One?")

    with pytest.raises(AnswerInProgress):
        await desk.ask("Two?", first.conversation)

    engine.release()
    await desk.ended(first)
    assert (await desk.ended(await desk.ask("Two?", first.conversation))).status is Status.DONE


async def test_of_two_questions_at_the_same_moment_one_wins(desk: Desk, engine: FakeEngine) -> None:
    begun = await desk.ask("Hello")
    await desk.ended(begun)
    engine.hold()

    results = await asyncio.gather(
        *(desk.ask(f"{number}?", begun.conversation) for number in range(4)), return_exceptions=True
    )
    engine.release()

    refused = [result for result in results if isinstance(result, AnswerInProgress)]
    assert len(refused) == 3
    assert len(await desk.messages(begun.conversation.id)) == 4


async def test_the_same_send_is_the_same_turn(desk: Desk, engine: FakeEngine) -> None:
    """LIFE-06: posted twice at the same moment, and again after it ended."""
    key = new_id()

    twice = await asyncio.gather(desk.ask("Hello", key=key), desk.ask("Hello", key=key))
    await desk.ended(twice[0])
    late = await desk.ask("Hello", key=key)

    assert {turn.answer.id for turn in (*twice, late)} == {twice[0].answer.id}
    assert {turn.conversation.id for turn in (*twice, late)} == {twice[0].conversation.id}
    assert len(engine.requests) == 1
    with pytest.raises(Conflict):
        await desk.ask("Something else", key=key)


async def test_stop_keeps_what_was_shown_and_hangs_up(desk: Desk, engine: FakeEngine) -> None:
    go_on = asyncio.Event()
    engine.script = ("Well, ", "this ", go_on, "takes long.")
    turn = await desk.ask("Tell me everything")
    live = desk.turns.live(turn.answer.id)
    assert live is not None
    while live.text != "Well, this ":
        await live.news(live.version)

    answer = await desk.stop(turn.answer.id)

    assert (answer.status, answer.text) == (Status.STOPPED, "Well, this ")
    await engine.until(lambda fake: bool(fake.aborted) and fake.running == 0)
    again = await desk.ask("Something shorter", turn.conversation)
    go_on.set()
    assert (await desk.ended(again)).status is Status.DONE


async def test_roles_alternate_after_a_stop_before_the_first_token(desk: Desk, engine: FakeEngine) -> None:
    """SEM-04: also after a failed turn. Neighbouring questions are joined by an empty line."""
    engine.alternating = True
    engine.hold()
    first = await desk.ask("A")
    await engine.until(lambda fake: fake.running == 1)
    await desk.stop(first.answer.id)
    engine.release()
    engine.plan(refusal(500, "EngineCore encountered an issue."), ("Fine.",))

    failed = await desk.ended(await desk.ask("B", first.conversation))
    third = await desk.ended(await desk.ask("C", first.conversation))

    assert failed.status is Status.FAILED
    assert third.text == "Fine."
    assert engine.requests[-1].messages == [{"role": "user", "content": "A\n\nB\n\nC"}]


@pytest.mark.parametrize("idle_seconds", [0.5])
@pytest.mark.parametrize(
    ("script", "status", "text"),
    [
        ([T("Hello wor")], Status.INTERRUPTED, "Hello wor"),  # STR-08
        ([T("a"), T("b"), error("CUDA out of memory"), b"data: [DONE]\n\n"], Status.FAILED, "ab"),  # STR-09
        ([T("a"), STALL], Status.INTERRUPTED, "a"),  # STR-10
        ([*(T("x") for _ in range(40)), RESET], Status.INTERRUPTED, "x" * 40),  # STR-13
        ([T("a"), HANG_UP], Status.INTERRUPTED, "a"),
        ([T("a"), finish("abort"), DONE], Status.INTERRUPTED, "a"),
        ([END], Status.FAILED, ""),
        (refusal(400, "This model's maximum context length is 10 tokens."), Status.FAILED, ""),
    ],
)
async def test_what_goes_wrong_ends_in_words(
    desk: Desk, engine: FakeEngine, script: list[bytes], status: Status, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine.plan(script)

    turn = await desk.ask("Hello")
    answer = await desk.ended(turn)

    assert (answer.status, answer.text) == (status, text)
    assert answer.reason.endswith(".")
    assert "CUDA" not in answer.reason
    assert "Traceback" not in caplog.text
    assert (await desk.ended(await desk.ask("Again", turn.conversation))).status is Status.DONE


async def test_an_engine_that_is_away_fails_the_answer(desk: Desk, engine: FakeEngine) -> None:
    engine.stop()

    answer = await desk.ended(await desk.ask("Hello"))

    assert answer.status is Status.FAILED
    assert answer.reason


async def test_an_answer_that_only_thinks_is_done_without_text(desk: Desk, engine: FakeEngine) -> None:
    """SEM-01: the thinking never comes back to the engine."""
    engine.plan((Thought("let me see"),), ("4",))

    first = await desk.ask("2+2?")
    thought = await desk.ended(first)
    await desk.ended(await desk.ask("Well?", first.conversation))

    assert (thought.text, thought.reasoning) == ("", "let me see")
    assert "let me see" not in str(engine.requests[-1].messages)


async def test_a_running_answer_is_saved_piece_by_piece(desk: Desk, engine: FakeEngine, owner_url: str) -> None:
    go_on = asyncio.Event()
    engine.script = ("One ", "two ", go_on, "three.")
    turn = await desk.ask("Count")

    async def saved() -> str:
        async with await psycopg.AsyncConnection.connect(owner_url) as connection:
            found = await connection.execute("SELECT string_agg(text, '' ORDER BY number) FROM answer_parts")
            row = await found.fetchone()
        return (row[0] if row else None) or ""

    async with asyncio.timeout(5):
        while await saved() != "One two ":
            await asyncio.sleep(0.02)
    assert (await desk.message(turn.answer.id)).status is Status.STREAMING
    go_on.set()
    answer = await desk.ended(turn)

    assert answer.text == "One two three."
    assert await saved() == ""


async def test_an_answer_whose_process_died_starts_again_from_its_question(desk: Desk, engine: FakeEngine) -> None:
    """LIFE-05: nothing stays "streaming"; one that had no text yet is begun anew."""
    engine.hold()
    turn = await desk.ask("Hello")
    lost = await desk.lose(turn)
    await desk.taken_over(turn)
    engine.release()

    answer = await desk.ended(turn)

    assert (answer.status, answer.text, answer.attempt) == (Status.DONE, "You asked: Hello", 2)
    await lost.end()
    assert (await desk.message(turn.answer.id)).attempt == 2, "a writer that was given up changes nothing"


async def test_a_writer_that_lost_its_row_hangs_up(desk: Desk, engine: FakeEngine, owner_url: str) -> None:
    engine.hold()
    turn = await desk.ask("Hello")
    await engine.until(lambda fake: fake.running == 1)

    async with await psycopg.AsyncConnection.connect(owner_url, autocommit=True) as connection:
        await connection.execute("UPDATE messages SET attempt = 7 WHERE id = %s", [turn.answer.id])

    await engine.until(lambda fake: fake.running == 0)


async def test_leaving_drains_and_leaves_the_rest_to_another_process(desk: Desk, engine: FakeEngine) -> None:
    engine.script = ("Half of ", STALL)
    turn = await desk.ask("Hello")
    live = desk.turns.live(turn.answer.id)
    assert live is not None
    while not live.text:
        await live.news(live.version)

    desk.turns.begin_drain()
    with pytest.raises(Unavailable):
        await desk.ask("Another")
    async with asyncio.timeout(5):
        while desk.turns.live(turn.answer.id):
            await asyncio.sleep(0.01)

    rows = await desk.direct.as_worker(statements.PROGRESS, {"answer": turn.answer.id})
    assert (rows[0].status, rows[0].text) == ("streaming", "Half of ")
    assert (await desk.message(turn.answer.id)).heartbeat_at.year == 1970  # type: ignore[union-attr]
    await engine.until(lambda fake: fake.running == 0)


async def test_trying_again_is_a_new_answer_beside_the_old_one(desk: Desk, engine: FakeEngine) -> None:
    engine.plan(refusal(500, "no"), ("Yes.",))
    turn = await desk.ask("Hello")
    failed = await desk.ended(turn)

    again = await desk.turns.regenerate(failed)
    async with asyncio.timeout(5):
        while (answer := await desk.message(again.id)).status.running:
            await asyncio.sleep(0.01)

    assert answer.text == "Yes."
    assert answer.parent_id == failed.parent_id
    assert (await desk.message(failed.id)).status is Status.FAILED
    assert [message.id for message in await desk.path(again.id)] == [turn.question.id, again.id]


async def test_usage_is_counted_once(desk: Desk, engine: FakeEngine, owner_url: str) -> None:
    """STR-04: also where the usage comes in a chunk with no choices; estimated where none comes."""
    engine.plan(("a", "b", "c"), [T("no usage here"), END])
    turn = await desk.ask("Hello")
    await desk.ended(turn)
    await desk.ended(await desk.ask("Hello", turn.conversation))

    async with await psycopg.AsyncConnection.connect(owner_url) as connection:
        found = await connection.execute("SELECT completion_tokens, estimated, user_id FROM usage ORDER BY id")
        rows = await found.fetchall()

    assert rows == [(3, False, desk.owner.id), (4, True, desk.owner.id)]


@pytest.mark.parametrize("text", ["", "   ", "\n\n", "\0"])
async def test_nothing_is_not_sent(desk: Desk, engine: FakeEngine, text: str) -> None:
    with pytest.raises(BadInput):
        await desk.ask(text)

    assert not engine.requests


async def test_text_is_made_storable(desk: Desk, engine: FakeEngine) -> None:
    """TXT-01, TXT-02: NUL is dropped and a lone surrogate replaced, from people and from models."""
    engine.plan([T("a\0b"), b'data: {"choices":[{"delta":{"content":"\\ud800 \\ud83d\\ude00"}}]}\n\n', END])

    turn = await desk.ask("x\0y\udfffz\r\n1")
    answer = await desk.ended(turn)

    assert turn.question.text == "xy\ufffdz\n1"
    assert answer.text == "ab\ufffd 😀"


async def test_a_message_may_have_exactly_the_limit(desk: Desk, settings: Settings) -> None:
    limit = settings.message_bytes
    longest = "x" * (limit - 4) + "😀"

    turn = await desk.ask(longest)
    with pytest.raises(TooLarge):
        await desk.ask(longest + "x")

    assert len(turn.question.text.encode()) == limit


async def test_an_unknown_model_is_refused(desk: Desk) -> None:
    with pytest.raises(BadInput):
        await desk.ask("Hello", model_id=uuid4())


async def test_a_parent_of_another_conversation_is_refused(desk: Desk, bob: User) -> None:
    one, other = await desk.ask("One"), await desk.ask("Other")
    await desk.ended(one)
    await desk.ended(other)

    with pytest.raises(NotFound):
        await desk.ask("Smuggled", one.conversation, after=other.answer.id)

    assert len(await desk.messages(one.conversation.id)) == 2


async def test_rows_of_one_person_are_invisible_to_another_below_the_queries(desk: Desk, bob: User) -> None:
    """The second net: even a select without a WHERE shows a stranger nothing."""
    turn = await desk.ask("Hello")
    await desk.ended(turn)

    async with desk.db.as_person(bob.id) as session:
        assert await session.get(type(turn.question), turn.question.id) is None
    async with desk.db.begin() as session:
        assert await session.get(type(turn.question), turn.question.id) is None
    async with desk.db.as_person(desk.owner.id) as session:
        assert await session.get(type(turn.question), turn.question.id) is not None


async def test_a_database_that_goes_away_for_a_moment_loses_no_answer(
    desk: Desk, engine: FakeEngine, postgres: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of an answer waits for the database to come back."""
    real, tries = Direct.as_worker, []

    async def away_twice(self: Direct, statement: LiteralString, values: Mapping[str, object]) -> Sequence[Any]:
        if statement is statements.END:
            tries.append(1)
            if len(tries) < 3:
                raise psycopg.OperationalError("gone")
        return await real(self, statement, values)

    monkeypatch.setattr(Direct, "as_worker", away_twice)
    engine.script = ("Here.",)

    answer = await desk.ended(await desk.ask("Hello"))

    assert (answer.status, answer.text, len(tries)) == (Status.DONE, "Here.", 3)


async def test_an_answer_stopped_before_its_first_step_blocks_nothing(desk: Desk) -> None:
    """A task that is cancelled before it ran never comes to its own clean-up."""
    turn = await desk.ask("Hello")
    desk.turns.stop_all(owner_id=desk.owner.id)

    answer = await desk.stop(turn.answer.id)

    assert answer.status is Status.STOPPED
    assert desk.turns.live(turn.answer.id) is None
    assert (await desk.ended(await desk.ask("Again", turn.conversation))).status is Status.DONE


async def test_somebody_deactivated_while_sending_gets_no_answer(
    desk: Desk, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question is stored, and before anybody here knows of it comes the word that its person has to stop."""
    real = Direct.as_person

    async def and_then(self: Direct, person_id: UUID, *asked: Any) -> list[Sequence[Any]]:
        rows = await real(self, person_id, *asked)
        desk.turns.stop_all(owner_id=person_id)
        return rows

    monkeypatch.setattr(Direct, "as_person", and_then)
    turn = await desk.ask("Hello")

    answer = await desk.ended(turn)

    assert answer.status is Status.STOPPED
    assert not engine.requests


async def test_a_deactivated_person_stores_nothing(desk: Desk, engine: FakeEngine, owner_url: str) -> None:
    before = await desk.ask("Hello")
    await desk.ended(before)
    async with await psycopg.AsyncConnection.connect(owner_url, autocommit=True) as other:
        await other.execute("UPDATE users SET disabled_at = now() WHERE id = %s", [desk.owner.id])

    with pytest.raises(Forbidden, match="deactivated"):
        await desk.ask("Again")
    with pytest.raises(NotFound):
        await desk.ask("Again", before.conversation)

    assert len(await desk.messages(before.conversation.id)) == 2


async def test_an_engine_that_is_away_leaves_a_way_on(desk: Desk, engine: FakeEngine) -> None:
    engine.plan(refusal(401, "Unauthorized"))

    answer = await desk.ended(await desk.ask("Hello"))

    assert answer.reason.endswith("Choose another model, or tell your administrator.")


async def test_an_answer_whose_facts_no_column_holds_ends_without_them(
    desk: Desk, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = writing._last_row
    monkeypatch.setattr(writing, "_last_row", lambda *given: real(*given) | {"context_tokens": 2**40})
    engine.script = ("Here.",)

    answer = await desk.ended(await desk.ask("Hello"))

    assert (answer.status, answer.text, answer.attempt) == (Status.DONE, "Here.", 1)


async def test_a_long_reason_is_cut(desk: Desk, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_advice", lambda: "word " * 200)
    engine.plan(refusal(401, "Unauthorized"))

    answer = await desk.ended(await desk.ask("Hello"))

    assert answer.status is Status.FAILED
    assert len(answer.reason) <= 300


async def test_the_answer_of_somebody_deactivated_ends_although_nobody_was_told(
    desk: Desk, engine: FakeEngine, owner_url: str
) -> None:
    """The word of it may be lost on its way between processes."""
    engine.script = ("Half ", STALL)
    turn = await desk.ask("Hello")
    await desk.written(turn, "Half ")

    async with await psycopg.AsyncConnection.connect(owner_url, autocommit=True) as other:
        await other.execute("UPDATE users SET disabled_at = now() WHERE id = %s", [desk.owner.id])

    await engine.until(lambda fake: fake.running == 0)
    assert (await desk.ended(turn)).text == "Half "


async def test_a_key_of_another_conversation_is_not_the_same_send(desk: Desk, engine: FakeEngine) -> None:
    key = new_id()
    one, other = await desk.ask("Hello", key=key), await desk.ask("Elsewhere")
    await desk.ended(one)
    await desk.ended(other)

    with pytest.raises(Conflict):
        await desk.ask("Hello", other.conversation, key=key)

"""The tree below a conversation: edited questions, other answers, answers that go on, deleted messages, forks."""

import asyncio

import pytest

from backend.conversations import service
from backend.conversations.asking import AnswerInProgress, Turn
from backend.conversations.models import Conversation, Message, Status
from backend.core.errors import BadInput, Conflict, NotFound
from tests.conversations.conftest import Desk
from tests.fakes.engine import STALL, FakeEngine, finish, refusal


async def shown(desk: Desk, turn: Turn) -> list[str]:
    """The texts of the branch that is shown."""
    leaf = (await desk.conversation(turn.conversation.id)).leaf_id
    assert leaf is not None
    return [message.text for message in await desk.path(leaf)]


async def until_ended(desk: Desk, answer: Message) -> Message:
    async with asyncio.timeout(5):
        while (row := await desk.message(answer.id)).status.running:
            await asyncio.sleep(0.01)
    return row


async def step_to(desk: Desk, message: Message) -> None:
    async with desk.db.as_person(desk.owner.id) as session:
        await service.show(session, await session.get_one(Message, message.id))


async def test_an_edited_question_begins_a_branch_beside_the_first(desk: Desk, engine: FakeEngine) -> None:
    engine.plan(("One.",), ("Two.",), ("Other two.",))
    first = await desk.ask("1?")
    await desk.ended(first)
    second = await desk.ask("2?", first.conversation)
    await desk.ended(second)

    edited = await desk.ask("2, really?", first.conversation, edits=second.question.id)
    await desk.ended(edited)

    assert edited.question.parent_id == first.answer.id
    assert await shown(desk, first) == ["1?", "One.", "2, really?", "Other two."]
    assert [said["content"] for said in engine.requests[-1].messages] == ["1?", "One.", "2, really?"]
    assert (await desk.message(second.answer.id)).text == "Two.", "nothing is overwritten"


async def test_the_first_question_can_be_edited_too(desk: Desk, engine: FakeEngine) -> None:
    engine.plan(("One.",), ("Uno.",))
    first = await desk.ask("1?")
    await desk.ended(first)

    edited = await desk.ask("¿1?", first.conversation, edits=first.question.id)
    await desk.ended(edited)

    assert edited.question.parent_id is None
    assert await shown(desk, first) == ["¿1?", "Uno."]


async def test_stepping_shows_what_was_written_last_below(desk: Desk, engine: FakeEngine) -> None:
    """And the next question follows what is shown."""
    engine.plan(("One.",), ("Two.",), ("Uno.",), ("Three.",))
    first = await desk.ask("1?")
    await desk.ended(first)
    await desk.ended(await desk.ask("2?", first.conversation))
    await desk.ended(await desk.ask("¿1?", first.conversation, edits=first.question.id))

    await step_to(desk, first.question)
    third = await desk.ask("3?", first.conversation)
    await desk.ended(third)

    assert await shown(desk, first) == ["1?", "One.", "2?", "Two.", "3?", "Three."]


async def test_another_answer_may_come_from_another_model_with_a_wish(desk: Desk, engine: FakeEngine) -> None:
    engine.plan(("A long answer.",), ("Short.",), ("More.",))
    small, large = sorted(desk.registry.offers, key=lambda offer: offer.name != "fake-8b")
    turn = await desk.ask("Hello", model_id=small.id)
    whole = await desk.ended(turn)

    again = await until_ended(desk, await desk.turns.regenerate(whole, large.id, " Shorter, please. "))
    await desk.ended(await desk.ask("And now?", turn.conversation))

    assert (again.text, again.model_name, again.instruction) == ("Short.", "fake-70b", "Shorter, please.")
    assert [asked.body["model"] for asked in engine.requests][1] == "fake-70b"
    prompts = [[said["content"] for said in asked.messages] for asked in engine.requests]
    assert prompts[1] == ["Hello\n\nShorter, please."]
    assert prompts[2] == ["Hello\n\nShorter, please.", "Short.", "And now?"], "the beginning stays as it was sent"


async def test_another_answer_waits_for_the_one_being_written(desk: Desk, engine: FakeEngine) -> None:
    engine.hold()
    turn = await desk.ask("Hello")

    with pytest.raises(AnswerInProgress):
        await desk.turns.regenerate(await desk.message(turn.answer.id))
    with pytest.raises(AnswerInProgress):
        await desk.ask("Hi", turn.conversation, edits=turn.question.id)

    engine.release()


async def test_only_ones_own_questions_are_edited(desk: Desk, engine: FakeEngine) -> None:
    turn, other = await desk.ask("Hello"), await desk.ask("Elsewhere")
    await desk.ended(turn)
    await desk.ended(other)

    for stranger in (other.question.id, turn.answer.id):
        with pytest.raises(NotFound):
            await desk.ask("Hi", turn.conversation, edits=stranger)

    assert len(await desk.messages(turn.conversation.id)) == 2


# Going on


@pytest.mark.parametrize("ending", ["stopped", "at its limit"])
async def test_an_answer_goes_on_where_it_ended(desk: Desk, engine: FakeEngine, ending: str) -> None:
    """The engine is given the text so far, so only what comes after it is written."""
    engine.script = ("One, ", "two, ", STALL, "three.")
    if ending == "at its limit":
        engine.plan(("One, ", "two, ", finish("length")))
    turn = await desk.ask("Count")
    if ending == "stopped":
        await desk.written(turn, "One, two, ")
        await desk.stop(turn.answer.id)
    half = await desk.ended(turn)
    engine.script = ("One, ", "two, ", "three.")

    assert desk.turns.can_proceed(half)
    await desk.turns.proceed(half)
    whole = await desk.ended(turn)

    assert (whole.id, whole.status, whole.text) == (half.id, Status.DONE, "One, two, three.")
    assert engine.requests[-1].body["continue_final_message"] is True
    assert engine.requests[-1].messages[-1] == {"role": "assistant", "content": "One, two,"}
    assert len(whole.provenance["earlier"]) == 1


async def test_where_the_engine_cannot_go_on_only_a_new_turn_does(desk: Desk, engine: FakeEngine) -> None:
    engine.continues = False
    await desk.probed_again(engine)
    engine.plan(("Half of it", finish("length")))
    half = await desk.ended(await desk.ask("Tell me"))

    assert not desk.turns.can_proceed(half)


async def test_a_whole_answer_does_not_go_on(desk: Desk, engine: FakeEngine) -> None:
    turn = await desk.ask("Hello")
    whole = await desk.ended(turn)

    with pytest.raises(Conflict):
        await desk.turns.proceed(whole)


async def test_only_the_last_answer_shown_goes_on(desk: Desk, engine: FakeEngine) -> None:
    engine.plan(("Half", finish("length")), ("Yes.",))
    turn = await desk.ask("Hello")
    half = await desk.ended(turn)
    await desk.ended(await desk.ask("Next", turn.conversation))

    with pytest.raises(Conflict):
        await desk.turns.proceed(half)


async def test_an_answer_whose_process_died_goes_on_by_itself(desk: Desk, engine: FakeEngine) -> None:
    """LIFE-05: the text that was saved stays as it was, and the rest is added to it."""
    engine.script = ("One, ", "two, ", STALL)
    turn = await desk.ask("Count")
    await desk.written(turn, "One, two, ")
    lost = await desk.lose(turn)
    engine.script = ("One, ", "two, ", "three.")

    whole = await desk.ended(turn)

    assert (whole.status, whole.text, whole.attempt, whole.resumed) == (Status.DONE, "One, two, three.", 2, 1)
    assert whole.provenance["resumed"] == 1
    await lost.hang_up()


async def test_an_answer_that_kills_its_process_again_and_again_is_given_up(desk: Desk, engine: FakeEngine) -> None:
    engine.script = ("One, ", STALL)
    turn = await desk.ask("Count")
    lost = []
    for attempt in range(1, 4):
        async with asyncio.timeout(5):
            while (live := desk.turns.live(turn.answer.id)) is None or live.attempt != attempt or not live.text:
                await asyncio.sleep(0.01)
        lost.append(await desk.lose(turn))

    answer = await desk.ended(turn)
    for one in lost:
        await one.hang_up()

    assert (answer.status, answer.text) == (Status.INTERRUPTED, "One,")


# Deleting and forking


async def test_a_deleted_message_is_empty_hidden_and_not_sent(desk: Desk, engine: FakeEngine) -> None:
    """SEM-04: neighbours of one role are joined."""
    engine.alternating = True
    turn = await desk.ask("A")
    await desk.ended(turn)

    async with desk.db.as_person(desk.owner.id) as session:
        await service.empty(session, await session.get_one(Message, turn.answer.id))
    second = await desk.ask("B", turn.conversation)
    answer = await desk.ended(second)

    row = await desk.message(turn.answer.id)
    assert (row.text, row.deleted_at is not None) == ("", True)
    assert engine.requests[-1].messages == [{"role": "user", "content": "A\n\nB"}]
    assert answer.status is Status.DONE


async def test_a_deleted_message_makes_room(desk: Desk, engine: FakeEngine) -> None:
    """What was counted with it is no count any more; what was said before it is."""
    turn = await desk.ask("A")
    answers = [await desk.ended(turn)]
    for text in ("B " * 500, "C"):
        turn = await desk.ask(text, turn.conversation)
        answers.append(await desk.ended(turn))

    async with desk.db.as_person(desk.owner.id) as session:
        assert answers[1].parent_id
        await service.empty(session, await session.get_one(Message, answers[1].parent_id))

    counted = [(await desk.message(answer.id)).context_tokens for answer in answers]
    assert all(answer.context_tokens for answer in answers)
    assert counted == [answers[0].context_tokens, None, None]


async def test_a_deleted_version_leaves_its_place_to_the_one_beside_it(desk: Desk, engine: FakeEngine) -> None:
    engine.plan(("One.",), ("Two.",))
    turn = await desk.ask("A")
    second = await until_ended(desk, await desk.turns.regenerate(await desk.ended(turn)))

    async with desk.db.as_person(desk.owner.id) as session:
        await service.empty(session, await session.get_one(Message, second.id))
        assert (await session.get_one(Conversation, turn.conversation.id)).leaf_id == turn.answer.id
        await service.empty(session, await session.get_one(Message, turn.answer.id))

    assert (await desk.conversation(turn.conversation.id)).leaf_id == turn.answer.id  # nothing else is left


async def test_a_running_answer_is_not_emptied(desk: Desk, engine: FakeEngine) -> None:
    engine.hold()
    turn = await desk.ask("A")

    async with desk.db.as_person(desk.owner.id) as session:
        with pytest.raises(Conflict):
            await service.empty(session, await session.get_one(Message, turn.answer.id))

    engine.release()


async def test_a_fork_has_copies_up_to_a_message(desk: Desk, engine: FakeEngine) -> None:
    engine.plan(("One.",), ("Two.",), ("Other.",))
    first = await desk.ask("1?")
    await desk.ended(first)
    await desk.ended(await desk.ask("2?", first.conversation))

    async with desk.db.as_person(desk.owner.id) as session:
        forked = await service.fork(session, await session.get_one(Message, first.answer.id))
    other = await desk.ask("3?", forked)
    await desk.ended(other)

    assert forked.title == "1?, continued"
    assert await shown(desk, other) == ["1?", "One.", "3?", "Other."]
    assert await shown(desk, first) == ["1?", "One.", "2?", "Two."]
    copies = {message.id for message in await desk.messages(forked.id)}
    assert not copies & {message.id for message in await desk.messages(first.conversation.id)}


async def test_a_model_that_is_gone_answers_nothing_again(desk: Desk, engine: FakeEngine) -> None:
    engine.plan(refusal(500, "no"))
    failed = await desk.ended(await desk.ask("Hello"))
    failed.model_id = None

    with pytest.raises(BadInput):
        await desk.turns.regenerate(failed)
    with pytest.raises(BadInput):
        await desk.turns.proceed(failed)


async def test_an_answer_that_was_whole_but_for_its_last_row_is_done(desk: Desk, engine: FakeEngine) -> None:
    """The engine, asked to go on, has nothing to add."""
    engine.script = ("All there is.", STALL)
    turn = await desk.ask("Tell me")
    await desk.written(turn, "All there is.")
    lost = await desk.lose(turn)
    engine.script = ("All there is.",)

    answer = await desk.ended(turn)

    assert (answer.status, answer.text) == (Status.DONE, "All there is.")
    await lost.hang_up()


async def test_a_message_that_is_taken_up_in_the_same_moment_is_not_deleted(desk: Desk, engine: FakeEngine) -> None:
    """The two would make a row that is deleted and never ends."""
    engine.script = ("Half ", STALL)
    turn = await desk.ask("Tell me")
    await desk.written(turn, "Half ")
    half = await desk.stop(turn.answer.id)

    async with desk.db.as_person(desk.owner.id) as session:
        loaded = await session.get_one(Message, turn.answer.id)
        await desk.turns.proceed(half)
        with pytest.raises(Conflict):
            await service.empty(session, loaded)

    assert (await desk.stop(turn.answer.id)).text.startswith("Half")


@pytest.mark.parametrize("status", [400, 500])
async def test_an_answer_that_cannot_go_on_after_all_stays_interrupted(
    desk: Desk, engine: FakeEngine, status: int
) -> None:
    """With its text and the way on it had."""
    engine.plan(("Half", finish("length")), refusal(status, "no"))
    turn = await desk.ask("Tell me")
    half = await desk.ended(turn)

    await desk.turns.proceed(half)
    answer = await desk.ended(turn)

    assert (answer.status, answer.text) == (Status.INTERRUPTED, "Half")
    assert answer.reason


async def test_an_answer_that_is_taken_over_waits_for_an_engine_that_starts(desk: Desk, engine: FakeEngine) -> None:
    engine.script = ("One, ", STALL)
    turn = await desk.ask("Count")
    await desk.written(turn, "One, ")
    lost = await desk.lose(turn)
    loading = refusal(503, "Loading model")
    engine.plan(*[loading] * 6)  # the client asks twice each time
    engine.script = ("One, ", "two.")

    answer = await desk.ended(turn)

    assert (answer.status, answer.text) == (Status.DONE, "One, two.")
    await lost.hang_up()


async def test_two_presses_of_continue_are_one_new_turn(desk: Desk, engine: FakeEngine) -> None:
    """Where the engine cannot pick an answer up; neither does a whole answer go on in this way."""
    engine.continues = False
    await desk.probed_again(engine)
    engine.plan(("Half", finish("length")), ("The rest.",))
    turn = await desk.ask("Tell me")
    half = await desk.ended(turn)

    first = await desk.turns.proceed(half)
    rest = await until_ended(desk, await desk.message(first))
    second = await desk.turns.proceed(half)

    assert first == second != half.id
    assert await shown(desk, turn) == ["Tell me", "Half", "Please go on exactly where you stopped.", "The rest."]
    with pytest.raises(Conflict):
        await desk.turns.proceed(rest)


async def test_an_answer_whose_question_was_deleted_is_not_asked_for_again(desk: Desk, engine: FakeEngine) -> None:
    engine.plan(("Half", finish("length")))
    turn = await desk.ask("Tell me")
    half = await desk.ended(turn)
    async with desk.db.as_person(desk.owner.id) as session:
        await service.empty(session, await session.get_one(Message, turn.question.id))

    await desk.turns.proceed(half)
    answer = await desk.ended(turn)
    again = await until_ended(desk, await desk.turns.regenerate(answer))

    assert (answer.status, answer.text) == (Status.INTERRUPTED, "Half")
    assert again.status is Status.FAILED
    assert answer.reason == again.reason == "The question of this answer was deleted. Ask it again."
    assert len(engine.requests) == 1

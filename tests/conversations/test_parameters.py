"""What a person chose beside the question: kept with the conversation and with each answer, used wherever one is
written, and never more than the model leaves to people."""

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import update

from backend.conversations import service
from backend.conversations.asking import Question, Turn
from backend.conversations.models import Conversation, Message
from backend.core.errors import BadInput
from backend.core.ids import new_id
from backend.engines.models import Model
from backend.engines.parameters import Parameters
from tests.conversations.conftest import Desk
from tests.fakes.engine import STALL, FakeEngine, finish

CHOSEN = Parameters(0.3, 77, "off", True)


@pytest.fixture
async def desk(desk: Desk) -> Desk:
    """The models leave temperature and length to people, thinking and JSON not."""
    await rule(desk, adjustable=["temperature", "max_tokens"], temperature=1.0, thinking="on")
    return desk


async def rule(desk: Desk, **values: Any) -> None:
    async with desk.db.begin() as session:
        await session.execute(update(Model).values(**values))
    await desk.registry.reload()


async def ask(
    desk: Desk, text: str, to: Conversation | None = None, chosen: Parameters | None = None, **more: UUID
) -> Turn:
    question = Question(text, desk.model_id, new_id(), parameters=chosen, **more)  # type: ignore[arg-type]
    return await desk.turns.ask(desk.owner.id, to.id if to else None, question)


def sent(engine: FakeEngine) -> tuple[object, object, object]:
    body = engine.questions[-1].body
    return body.get("temperature"), body.get("max_tokens"), body.get("response_format")


async def test_what_was_chosen_is_used_and_kept(desk: Desk, engine: FakeEngine) -> None:
    turn = await ask(desk, "Hello", chosen=CHOSEN)
    answer = await desk.ended(turn)

    assert sent(engine) == (0.3, 77, None)
    assert answer.parameters == CHOSEN.stored()
    assert (await desk.conversation(turn.conversation.id)).parameters == CHOSEN.stored()
    assert answer.provenance["parameters"] == {"temperature": 0.3, "max_tokens": 77, "thinking": "on"}
    assert turn.conversation.parameters == CHOSEN.stored()


async def test_json_is_asked_for_where_the_model_leaves_it_to_people(desk: Desk, engine: FakeEngine) -> None:
    await rule(desk, adjustable=["json"])

    await desk.ended(await ask(desk, "Hello", chosen=CHOSEN))

    assert sent(engine) == (1.0, None, {"type": "json_object"})


async def test_it_holds_for_the_next_questions_until_something_else_is_chosen(desk: Desk, engine: FakeEngine) -> None:
    first = await ask(desk, "One?", chosen=CHOSEN)
    await desk.ended(first)

    await desk.ended(await ask(desk, "Two?", first.conversation))
    second = sent(engine)
    await desk.ended(await ask(desk, "Three?", first.conversation, Parameters()))

    assert second == (0.3, 77, None)
    assert sent(engine) == (1.0, None, None)
    assert (await desk.conversation(first.conversation.id)).parameters == {}


async def test_an_edited_question_and_another_answer_have_it_too(desk: Desk, engine: FakeEngine) -> None:
    turn = await ask(desk, "Hello", chosen=CHOSEN)
    answer = await desk.ended(turn)

    again = await desk.turns.regenerate(answer)
    await desk.ended(Turn(turn.conversation, turn.question, again))
    regenerated = sent(engine)
    await desk.ended(await ask(desk, "Hi", turn.conversation, edits=turn.question.id))
    edited = sent(engine)
    other = await desk.turns.regenerate(answer, parameters=Parameters(temperature=0))
    await desk.ended(Turn(turn.conversation, turn.question, other))

    assert regenerated == edited == (0.3, 77, None)
    assert sent(engine) == (0, None, None)
    assert (await desk.message(again.id)).parameters == CHOSEN.stored()


async def test_an_answer_that_goes_on_keeps_what_it_began_with(desk: Desk, engine: FakeEngine) -> None:
    engine.plan(("One, ", "two, ", finish("length")))
    turn = await ask(desk, "Count", chosen=CHOSEN)
    half = await desk.ended(turn)
    async with desk.db.as_worker() as session:  # something else was chosen since
        await session.execute(update(Conversation).values(parameters={"temperature": 2}))

    await desk.turns.proceed(half)
    await desk.ended(turn)

    assert sent(engine) == (0.3, 77, None)


async def test_an_answer_that_is_taken_over_keeps_it(desk: Desk, engine: FakeEngine) -> None:
    engine.script = ("One, ", "two, ", STALL)
    turn = await ask(desk, "Count", chosen=CHOSEN)
    await desk.written(turn, "One, two, ")
    lost = await desk.lose(turn)
    engine.script = ("three.",)

    await desk.taken_over(turn)
    answer = await desk.ended(turn)
    await lost.hang_up()

    assert sent(engine) == (0.3, 77, None)
    assert answer.parameters == CHOSEN.stored()


async def test_a_choice_that_is_taken_back_holds_no_longer(desk: Desk, engine: FakeEngine) -> None:
    turn = await ask(desk, "Hello", chosen=CHOSEN)
    answer = await desk.ended(turn)
    await rule(desk, adjustable=[])

    again = await desk.turns.regenerate(answer)
    await desk.ended(Turn(turn.conversation, turn.question, again))

    assert sent(engine) == (1.0, None, None)


async def test_the_fallback_answers_for_a_model_that_has_gone(desk: Desk, engine: FakeEngine) -> None:
    """Again and on; to begin with what is gone stays refused."""
    first, second = desk.registry.offers[:2]
    engine.plan(("One, ", finish("length")))
    turn = await desk.ask("Count", model_id=first.id)
    half = await desk.ended(turn)
    async with desk.db.begin() as session:
        gone = await session.get_one(Model, first.id)
        gone.retired_at, gone.fallback_id = gone.created_at, second.id
    await desk.registry.reload()

    assert not desk.turns.can_proceed(half)
    onward = await desk.message(await desk.turns.proceed(half))
    await desk.ended(Turn(turn.conversation, turn.question, onward))
    again = await desk.turns.regenerate(half)
    await desk.ended(Turn(turn.conversation, turn.question, again))

    assert (onward.model_id, again.model_id) == (second.id, second.id)
    with pytest.raises(BadInput, match="not here any more"):
        await desk.ask("Hello", model_id=first.id)
    with pytest.raises(BadInput, match="not here any more"):
        await desk.turns.regenerate(half, first.id)


async def test_a_model_in_maintenance_is_refused_by_name(desk: Desk, engine: FakeEngine) -> None:
    first = desk.registry.offers[0]
    async with desk.db.begin() as session:
        away = await session.get_one(Model, first.id)
        away.maintenance_until = away.created_at.replace(year=2100)
    await desk.registry.reload()

    with pytest.raises(BadInput, match=f"“{first.name}” is under maintenance"):
        await desk.ask("Hello", model_id=first.id)

    assert not engine.questions


async def test_a_forked_answer_keeps_what_it_was_made_with(desk: Desk) -> None:
    turn = await ask(desk, "Hello", chosen=CHOSEN)
    await desk.ended(turn)

    async with desk.db.as_person(desk.owner.id) as session:
        forked = await service.fork(session, await session.get_one(Message, turn.answer.id))

    assert forked.parameters == CHOSEN.stored()
    assert [message.parameters for message in await desk.messages(forked.id)] == [{}, CHOSEN.stored()]

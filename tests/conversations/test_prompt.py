"""What an engine is shown of a conversation."""

from uuid import uuid4

import pytest
from hypothesis import given, settings, strategies as st

from backend.conversations import prompt
from backend.conversations.models import Message, Speaker, Status
from backend.engines.client import ChatMessage


def asked(text: str) -> Message:
    return Message(id=uuid4(), speaker=Speaker.PERSON, text=text, status=Status.DONE, reasoning="")


def answered(text: str, status: Status = Status.DONE, reasoning: str = "") -> Message:
    return Message(id=uuid4(), speaker=Speaker.MODEL, text=text, status=status, reasoning=reasoning)


def user(content: str) -> ChatMessage:
    return {"role": "user", "content": content}


def assistant(content: str) -> ChatMessage:
    return {"role": "assistant", "content": content}


def test_questions_and_answers_take_turns() -> None:
    path = [asked("1?"), answered("One."), asked("2?"), answered("", Status.QUEUED)]

    assert prompt.build(path) == [user("1?"), assistant("One."), user("2?")]


def test_a_system_prompt_comes_first() -> None:
    assert prompt.build([asked("1?")], "Be brief.") == [{"role": "system", "content": "Be brief."}, user("1?")]


def test_for_a_model_without_a_system_role_it_opens_the_first_question() -> None:
    path = [asked("1?"), answered("One."), asked("2?")]

    assert prompt.build(path, "Be brief.", system_role=False) == [
        user("Be brief.\n\n1?"),
        assistant("One."),
        user("2?"),
    ]


@pytest.mark.parametrize("status", [Status.STOPPED, Status.FAILED, Status.INTERRUPTED, Status.DONE, Status.QUEUED])
@pytest.mark.parametrize("text", ["", " ", "\n\n"])
def test_an_answer_without_text_is_left_out(status: Status, text: str) -> None:
    """SEM-04: the engine would refuse two questions in a row."""
    path = [asked("A"), answered(text, status), asked("B")]

    assert prompt.build(path) == [user("A\n\nB")]


@pytest.mark.parametrize("status", [Status.STOPPED, Status.FAILED, Status.INTERRUPTED])
def test_what_was_written_before_an_answer_ended_is_kept(status: Status) -> None:
    path = [asked("A"), answered("Half of", status), asked("B")]

    assert prompt.build(path) == [user("A"), assistant("Half of"), user("B")]


def test_reasoning_is_never_sent_back() -> None:
    """SEM-01."""
    path = [asked("2+2?"), answered("4", reasoning="let me see"), asked("Sure?"), answered("", reasoning="hm")]

    assert "let me see" not in str(prompt.build(path))
    assert "hm" not in str(prompt.build(path))


def test_text_is_sent_as_it_was_written() -> None:
    text = "  two  spaces\n\n\tand a tab, 😀 <|im_end|> "

    assert prompt.build([asked(text)]) == [user(text)]


texts = st.text("ab \n", max_size=4)
paths = st.lists(st.one_of(st.builds(asked, texts), st.builds(answered, texts)), max_size=12)
system_prompts = st.sampled_from(["", "SYSTEM"])


@settings(deadline=None)
@given(paths, system_prompts, st.booleans())
def test_roles_alternate_and_begin_with_the_person(path: list[Message], system: str, system_role: bool) -> None:
    """Whatever was stopped, failed, emptied or asked twice: many chat templates refuse anything else."""
    messages = prompt.build(path, system, system_role=system_role)

    roles = [message["role"] for message in messages]
    if system and system_role:
        assert roles.pop(0) == "system"
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)
    assert all(message["content"].strip() for message in messages)


@settings(deadline=None)
@given(paths, system_prompts, st.booleans())
def test_nothing_that_was_said_since_the_first_question_is_lost(
    path: list[Message], system: str, system_role: bool
) -> None:
    messages = prompt.build(path, system, system_role=system_role)

    sent = "".join(message["content"] for message in messages)
    said = [message for message in path if message.text.strip()]
    while said and said[0].speaker is Speaker.MODEL:
        said.pop(0)
    for message in said:
        head, found, sent = sent.partition(message.text)
        assert found, "everything is there, in its order"
        assert head in ("", "\n\n", system, system + "\n\n")


@settings(deadline=None)
@given(paths, st.text("ab", min_size=1, max_size=3))
def test_a_prompt_only_grows_at_its_end(path: list[Message], question: str) -> None:
    """The engine has the beginning in its prefix cache. A turn adds one answer with text and one question."""
    path = [*path, asked("before")]
    before = prompt.build(path, "Be brief.")

    after = prompt.build([*path, answered("then"), asked(question)], "Be brief.")

    assert after == [*before, assistant("then"), user(question)]


def test_the_path_is_not_changed_by_looking_at_it() -> None:
    path = [asked("A"), answered(""), asked("B")]

    first, second = prompt.build(path), prompt.build(path)

    assert first == second
    assert [message.text for message in path] == ["A", "", "B"]

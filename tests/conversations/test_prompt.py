"""What an engine is shown of a conversation."""

from uuid import uuid4

import pytest
from hypothesis import given, settings, strategies as st

from backend.conversations import prompt
from backend.conversations.models import Speaker
from backend.conversations.prompt import Step
from backend.engines.client import ChatMessage, Part


def asked(text: str) -> Step:
    return Step(uuid4(), Speaker.PERSON, text)


def answered(text: str, instruction: str = "") -> Step:
    return Step(uuid4(), Speaker.MODEL, text, instruction)


def user(content: str) -> ChatMessage:
    return {"role": "user", "content": content}


def assistant(content: str) -> ChatMessage:
    return {"role": "assistant", "content": content}


def test_questions_and_answers_take_turns() -> None:
    path = [asked("1?"), answered("One."), asked("2?"), answered("")]

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


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
def test_an_answer_without_text_is_left_out(text: str) -> None:
    """SEM-04: the engine would refuse two questions in a row."""
    path = [asked("A"), answered(text), asked("B")]

    assert prompt.build(path) == [user("A\n\nB")]


def test_what_was_asked_of_an_answer_follows_its_question() -> None:
    """Also in later turns: what the engine has in its prefix cache does not change."""
    path = [asked("A"), answered("Half of", "Shorter, please."), asked("B")]

    assert prompt.build(path) == [user("A\n\nShorter, please."), assistant("Half of"), user("B")]


def test_pictures_and_text_of_neighbours_are_one_message() -> None:
    picture: Part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    text: Part = {"type": "text", "text": "What is this?"}
    path = [asked("Look:"), answered(""), Step(uuid4(), Speaker.PERSON, [picture, text])]

    messages = prompt.build(path)

    assert [message["role"] for message in messages] == ["user"]
    assert messages[0]["content"] == [{"type": "text", "text": "Look:"}, picture, text]


def test_text_is_sent_as_it_was_written() -> None:
    text = "  two  spaces\n\n\tand a tab, 😀 <|im_end|> "

    assert prompt.build([asked(text)]) == [user(text)]


texts = st.text("ab \n", max_size=4)
paths = st.lists(st.one_of(st.builds(asked, texts), st.builds(answered, texts)), max_size=12)
system_prompts = st.sampled_from(["", "SYSTEM"])


@settings(deadline=None)
@given(paths, system_prompts, st.booleans())
def test_roles_alternate_and_begin_with_the_person(path: list[Step], system: str, system_role: bool) -> None:
    """Whatever was stopped, failed, emptied or asked twice: many chat templates refuse anything else."""
    messages = prompt.build(path, system, system_role=system_role)

    roles = [message["role"] for message in messages]
    if system and system_role:
        assert roles.pop(0) == "system"
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)
    assert all(str(message["content"]).strip() for message in messages)


@settings(deadline=None)
@given(paths, system_prompts, st.booleans())
def test_nothing_that_was_said_since_the_first_question_is_lost(
    path: list[Step], system: str, system_role: bool
) -> None:
    messages = prompt.build(path, system, system_role=system_role)

    sent = "".join(str(message["content"]) for message in messages)
    said = [message for message in path if not message.is_empty]
    while said and said[0].speaker == Speaker.MODEL:
        said.pop(0)
    for message in said:
        head, found, sent = sent.partition(str(message.content))
        assert found, "everything is there, in its order"
        assert head in ("", "\n\n", system, system + "\n\n")


@settings(deadline=None)
@given(paths, st.text("ab", min_size=1, max_size=3))
def test_a_prompt_only_grows_at_its_end(path: list[Step], question: str) -> None:
    """The engine has the beginning in its prefix cache. A turn adds one answer with text and one question."""
    path = [*path, asked("before")]
    before = prompt.build(path, "Be brief.")

    after = prompt.build([*path, answered("then"), asked(question)], "Be brief.")

    assert after == [*before, assistant("then"), user(question)]


def test_the_path_is_not_changed_by_looking_at_it() -> None:
    path = [asked("A"), answered(""), asked("B")]

    first, second = prompt.build(path), prompt.build(path)

    assert first == second
    assert [message.content for message in path] == ["A", "", "B"]

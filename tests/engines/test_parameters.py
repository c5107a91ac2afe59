"""What a person may choose of an answer, and what holds in the end."""

import pytest

from backend.core.errors import BadInput
from backend.core.ids import new_id
from backend.engines.parameters import Parameters
from backend.engines.snapshot import Offer


def an_offer(*adjustable: str) -> Offer:
    return Offer(new_id(), "Linden", "", "", True, 0.5, 400, (), thinking="off", adjustable=frozenset(adjustable))


def test_what_was_typed_is_read_and_stored_and_read_again() -> None:
    chosen = Parameters.typed({"temperature": " 0,7 ", "max_tokens": "300", "thinking": "high", "json": "1"})

    assert chosen == Parameters(0.7, 300, "high", True)
    assert Parameters.read(chosen.stored()) == chosen
    assert Parameters.typed({"temperature": "", "thinking": ""}).stored() == {}
    assert Parameters.read({"temperature": 0, "what": "else"}) == Parameters(0)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("temperature", "2.1"),
        ("temperature", "-0.1"),
        ("temperature", "nan"),
        ("temperature", "inf"),
        ("temperature", "warm"),
        ("max_tokens", "0"),
        ("max_tokens", "1000001"),
        ("max_tokens", "1e3"),
        ("max_tokens", "٣"),
        ("max_tokens", "9" * 5_000),
        ("thinking", "hard"),
    ],
)
def test_what_is_out_of_bounds_gets_a_sentence(field: str, text: str) -> None:
    with pytest.raises(BadInput) as caught:
        Parameters.typed({field: text})

    assert caught.value.fields.keys() == {field}
    assert str(caught.value).endswith(".")


def test_only_what_the_model_leaves_to_people_counts() -> None:
    chosen = Parameters(1.5, 50, "high", True)

    assert chosen.within(an_offer()) == Parameters(0.5, 400, "off", False)
    assert chosen.within(an_offer("temperature", "json")) == Parameters(1.5, 400, "off", True)
    assert Parameters(temperature=0).within(an_offer("temperature")).temperature == 0
    assert Parameters().within(an_offer("temperature", "max_tokens", "thinking", "json")) == Parameters(0.5, 400, "off")

"""How an answer is to be made: what a model has by default, and what its person chose within that.

    typed()      from a form, with a sentence for each field that cannot be taken
    read()       from a row; what is no parameter there is passed over
    within()     what holds for a model: only what its people may adjust, and its own values for the rest

What a person chose is stored as chosen, and `within` is asked anew for every answer: an admin who takes a choice back
takes it back at once.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from backend.core.errors import BadInput
from backend.core.i18n import _
from backend.core.text import decimal, whole
from backend.engines.request import Thinking
from backend.engines.snapshot import Offer

#: What an admin may leave to people.
ADJUSTABLE: Final = ("temperature", "max_tokens", "thinking", "json")

#: Whether and how much a model thinks before it answers; "" is as it does by itself.
THINKING: Final[tuple[Thinking, ...]] = ("off", "on", "low", "medium", "high")

#: What an engine is asked for where the answer has to be JSON.
JSON_ANSWER: Final = {"type": "json_object"}

MAX_TEMPERATURE, MAX_TOKENS = 2, 1_000_000


@dataclass(frozen=True, slots=True)
class Parameters:
    temperature: float | None = None
    max_tokens: int | None = None
    thinking: Thinking = ""
    json: bool = False

    @classmethod
    def typed(cls, fields: Mapping[str, str]) -> Self:
        """Raises BadInput with a sentence per field; what is not among the fields is as the model does."""
        wrong: dict[str, str] = {}
        chosen = cls(
            temperature=typed_temperature(fields.get("temperature", ""), wrong),
            max_tokens=typed_count(fields.get("max_tokens", ""), "max_tokens", MAX_TOKENS, wrong),
            thinking=typed_thinking(fields.get("thinking", ""), wrong),
            json=bool(fields.get("json")),
        )
        if wrong:
            raise BadInput(" ".join(wrong.values()), fields=wrong)
        return chosen

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        return cls(**{name: stored[name] for name in ADJUSTABLE if name in stored})

    def stored(self) -> dict[str, Any]:
        """Without what is as the model does it; a temperature of 0 is not."""
        left_alone = (None, "", False)
        chosen = asdict(self).items()
        return {name: value for name, value in chosen if not any(value is nothing for nothing in left_alone)}

    def within(self, offer: Offer) -> "Parameters":
        own = Parameters(offer.temperature, offer.max_tokens, offer.thinking)
        chosen = {name: value for name, value in self.stored().items() if name in offer.adjustable}
        return Parameters(**(asdict(own) | chosen))


#: Everything is as the model does it.
AS_THE_MODEL_DOES: Final = Parameters()


def typed_temperature(text: str, wrong: dict[str, str]) -> float | None:
    """None for nothing; a sentence in `wrong` for what is no number of that size."""
    if not text.strip():
        return None
    if 0 <= (number := decimal(text)) <= MAX_TEMPERATURE:
        return round(number, 2)
    wrong["temperature"] = _("The temperature is a number from 0 to {most}.").format(most=MAX_TEMPERATURE)
    return None


def typed_count(text: str, field: str, most: int, wrong: dict[str, str]) -> int | None:
    if not text.strip():
        return None
    if 1 <= (number := whole(text)) <= most:
        return number
    wrong[field] = _("This is a whole number from 1 to {most:,}.").format(most=most)
    return None


def typed_thinking(text: str, wrong: dict[str, str]) -> Thinking:
    if text:
        for known in THINKING:
            if known == text:
                return known
        wrong["thinking"] = _("There is no such way of thinking.")
    return ""

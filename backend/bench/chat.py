"""The chats of a measurement: what somebody in an office asks, the same in every run but for a mark in front.

The mark is fresh for each run and each chat: engines keep what they have read (prefix cache) and would answer a
repeated question from memory, which flatters. Within a chat the cache works as it does for people, because a turn
repeats all that came before it.
"""

from collections.abc import Iterable, Sequence

from backend.engines.request import ChatMessage

LONGEST_SYSTEM = 700
LONGEST_QUESTION = 1_000
"""Characters. Bounded, so that a run costs what it says and two runs can be compared; a test holds every chat to it."""

_SYSTEM = (
    "[{mark}] You are the assistant of a company that plans and builds heating systems. You help its people with "
    "texts, tables, calculations and programs. Answer in the language of the question. Write in whole sentences, get "
    "to the point, and say so when you are not sure or when something is missing. Use headings and lists only where "
    "they help. Never invent names, numbers or sources. What people show you is confidential and stays in the house."
)

_NOTES = (
    "[{mark}] These are my notes from the meeting about the project in {place}. The delivery of the pumps is late by "
    "two weeks, because the supplier has changed the seal and tests it again. The customer knows that and agrees, if "
    "the second building is warm by the middle of October. {name} wants to move three fitters from the site in {other} "
    "for ten days; that costs 4,300 in travel and nights, and saves about 9,000 in penalties. The drawings of the "
    "cellar show the old position of the tank, so somebody has to measure again before the pipes are cut. The bill for "
    "the first part was paid, that for the second was not, and nobody has asked why. Open is also who talks to the "
    "city about the road that has to be closed for a morning. Summarise this in one paragraph, then list what has to "
    "be done, by whom and in which order, with a reason for each point. Write at least 250 words."
)

_FOLLOW_UPS = (
    "Now write the email in which I tell the customer in {place} about it. Friendly, without blaming anybody, with the "
    "dates as far as they are known and the two questions we have. Write at least 250 words.",
    "My boss asks whether moving the fitters pays. Show the calculation step by step, say what it leaves out, and what "
    "would have to be true for it not to pay. Write at least 250 words.",
    "Explain to a new colleague why the position of the tank matters before the pipes are cut, as if to somebody who "
    "knows offices but no building sites. Write at least 250 words.",
    "Make a checklist for the next meeting from all of this, with what I should ask {name} first. Write at least 250 "
    "words.",
)

_PLACES = ("Lübeck", "Graz", "Utrecht", "Turku", "Porto", "Leeds", "Brno", "Aarhus")
_NAMES = ("Yildiz", "Okafor", "Novak", "Larsen", "Duarte", "Meyer", "Haddad", "Costa")


class Chat:
    """One person's conversation; the answers that come are put into it, as the product does."""

    def __init__(self, mark: str, level: int, person: int) -> None:
        place, other = _PLACES[person % len(_PLACES)], _PLACES[(person + 3) % len(_PLACES)]
        self._words = {"place": place, "other": other, "name": _NAMES[person % len(_NAMES)]}
        self.mark = f"{mark}-{level}-{person}"
        self._turn = 0
        self._messages: list[ChatMessage] = [{"role": "system", "content": _SYSTEM.format(mark=mark)}]

    def ask(self) -> Sequence[ChatMessage]:
        """The whole conversation with its next question."""
        self._messages.append({"role": "user", "content": self._question()})
        self._turn += 1
        return tuple(self._messages)

    def hear(self, answer: str) -> None:
        self._messages.append({"role": "assistant", "content": answer})

    def _question(self) -> str:
        if self._turn == 0:
            return _NOTES.format(mark=self.mark, **self._words)
        return _FOLLOW_UPS[(self._turn - 1) % len(_FOLLOW_UPS)].format(**self._words)


def characters_of(messages: Iterable[ChatMessage]) -> int:
    return sum(len(message["content"]) for message in messages)

"""Asks an engine as people will: some of them at once, each in a chat of several turns, nobody waiting for the others.

    measuring = Measuring(client, target, plan)
    await measuring.run()           # bounded by the plan; may be cancelled at any time
    measuring.measurement           # what is known so far, also while it runs and after a cancellation

Leaving `run` in any way closes every connection, and only that makes an engine stop. All of a level press Enter at the
same moment, which is the worst that people can do; from then on each asks as soon as the answer before is complete.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from backend.bench import chat, meaning, results
from backend.bench.chat import Chat
from backend.bench.plan import Plan
from backend.bench.results import Ended, Level, Measurement, Sample
from backend.core.clock import now
from backend.engines.client import EngineClient
from backend.engines.events import Delta, EngineFailed, Event, Failure, Reasoning, Usage
from backend.engines.request import ChatMessage, ChatRequest

_WARM_UP_TOKENS = 8
_LAST = 2  # of the three classes of `ChatRequest.priority`


@dataclass(frozen=True, slots=True)
class Target:
    """What is measured, under the names it goes by."""

    engine: str
    model: str
    kind: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a measurement is: how many of the answers of the present level are there."""

    people: int = 0
    answers: int = 0
    of: int = 0


class Measuring:
    def __init__(
        self,
        client: EngineClient,
        target: Target,
        plan: Plan,
        *,
        on_level: Callable[[Level], None] = lambda _level: None,
    ) -> None:
        self._client = client
        self._target = target
        self._plan = plan
        self._on_level = on_level
        self._mark = secrets.token_hex(6)
        self._made_at = now()
        self._warm_up: float | None = None
        self._levels: list[Level] = []
        self._people = 0  # of the level that is being measured
        self._samples: list[Sample] = []
        self._problem = ""
        self._ended: Ended | None = None
        self.calls: list[Sample] = []
        """Every request there was, for whoever counts usage; they may be taken out of here."""

    @property
    def progress(self) -> Progress:
        return Progress(self._people, len(self._samples), self._people * self._plan.turns)

    @property
    def measurement(self) -> Measurement:
        found = Measurement(
            made_at=self._made_at,
            engine=self._target.engine,
            kind=self._target.kind,
            version=self._target.version,
            model=self._target.model,
            mark=self._mark,
            plan=self._plan,
            levels=tuple(self._levels),
            ended=self._ended,
            warm_up=self._warm_up,
            problem=self._problem,
            thinks=any(sample.thought for sample in self.calls),
        )
        return replace(found, meaning=meaning.of(found))

    async def run(self) -> None:
        """Sets `measurement.ended`; only why it was cancelled is for the one who cancels to say (`end`)."""
        try:
            async with asyncio.timeout(self._plan.seconds):
                self._ended = await self._measure()
        except TimeoutError:
            self._ended = Ended.TIME
        finally:
            self._close_level()

    def end(self, because: Ended) -> None:
        self._ended = self._ended or because

    async def _measure(self) -> Ended:
        if not await self._warmed_up():
            return Ended.FAILED
        left = self._plan.tokens
        for people in self._plan.levels:
            left -= people * self._plan.tokens_of_a_chat
            if left < 0:
                return Ended.TOKENS
            self._people = people
            async with asyncio.TaskGroup() as group:
                for person in range(people):
                    group.create_task(self._chat(people, person))
            level = self._close_level()
            if level is None or not level.answered:
                self._problem = next(iter(level.failures), "") if level else ""
                return Ended.FAILED
        return Ended.DONE

    async def _warmed_up(self) -> bool:
        """One short answer that is not counted: an engine may have to load the model, and compiles as it goes."""
        messages: list[ChatMessage] = [{"role": "user", "content": f"[{self._mark}] Say hello."}]
        answer = await self._ask(messages, _WARM_UP_TOKENS, session=self._mark)
        if answer.failure and answer.failure.kind is not Failure.EMPTY:  # a few tokens may stand for nothing
            self._problem = _words(answer.failure)
            return False
        self._warm_up = round(answer.ended - answer.asked, 3)
        return True

    async def _chat(self, people: int, person: int) -> None:
        """One person's turns. After a failure the next question is asked all the same, as people do."""
        conversation = Chat(self._mark, people, person)
        for _turn in range(self._plan.turns):
            answer = await self._ask(
                conversation.ask(), self._plan.answer_tokens, session=conversation.mark, samples=self._samples
            )
            conversation.hear(answer.text or "…")

    async def _ask(
        self, messages: Sequence[ChatMessage], max_tokens: int, *, session: str, samples: list[Sample] | None = None
    ) -> "_Answer":
        """One answer, or as much of it as came; it leaves its sample behind even when it is cancelled.

        As for people, a router keeps a chat on one engine, and no chat finds in the cache what another one read. Where
        the engine knows priorities, theirs come first.
        """
        answer = _Answer(chat.characters_of(messages))
        request = ChatRequest(
            self._target.model, messages, max_tokens=max_tokens, salt=session, session=session, priority=_LAST
        )
        try:
            async with aclosing(self._client.answer(request)) as batches:
                async for events in batches:
                    answer.take(events)
            answer.finished = True
        except EngineFailed as failure:
            answer.failure = failure
        finally:
            answer.ended = time.monotonic()
            sample = answer.sample()
            self.calls.append(sample)
            if samples is not None:
                samples.append(sample)
        return answer

    def _close_level(self) -> Level | None:
        """What was gathered becomes a level, if at least one answer came or failed; cut off in the middle, too."""
        samples, self._samples = self._samples, []
        people, self._people = self._people, 0
        if not any(sample.finished or sample.failure for sample in samples):
            return None
        self._levels.append(results.level_of(people, samples))
        self._on_level(self._levels[-1])
        return self._levels[-1]


class _Answer:
    """One answer as it comes."""

    def __init__(self, prompt_characters: int) -> None:
        self.asked = self.ended = time.monotonic()
        self.text = ""
        self.failure: EngineFailed | None = None
        self.finished = False
        self._prompt_characters = prompt_characters
        self._first: float | None = None
        self._last: float | None = None
        self._thoughts = 0  # characters
        self._usage: Usage | None = None

    def take(self, events: Sequence[Event]) -> None:
        moment = time.monotonic()
        for event in events:
            match event:
                case Delta():
                    self.text += event.text
                case Reasoning():
                    self._thoughts += len(event.text)
                case Usage():
                    self._usage = event
                    continue
                case _:
                    continue
            self._first = self._first or moment
            self._last = moment

    def sample(self) -> Sample:
        return Sample(
            asked=self.asked,
            ended=self.ended,
            first=self._first,
            last=self._last,
            characters=len(self.text) + self._thoughts,
            prompt_characters=self._prompt_characters,
            usage=self._usage,
            failure=_words(self.failure) if self.failure else None,
            finished=self.finished,
            thought=self._thoughts > 0,
        )


def _words(failure: EngineFailed) -> str:
    """The sentence for people, and for whoever measures the engine's own words beside it."""
    return f"{failure} ({failure.detail})" if failure.detail else str(failure)

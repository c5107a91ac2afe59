"""The statements of a running answer: heartbeat and parts while it is written, the final row when it ends.

All of them compare `attempt` and that the row is still running. A writer that was given up changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import case, delete, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from backend.conversations import queries
from backend.conversations.live import LiveAnswer, Phase
from backend.conversations.models import AnswerPart, Message, Status
from backend.core.clock import now
from backend.core.i18n import _


@dataclass
class Saved:
    """How much of a live answer its parts hold already, in characters, and how many parts there are."""

    text: int = 0
    reasoning: int = 0
    parts: int = 0


@dataclass(frozen=True)
class Save:
    """One answer in a round of saving: everything since `saved`, as it stood when the round began."""

    answer_id: UUID
    live: LiveAnswer
    saved: Saved
    text: str = field(init=False)
    reasoning: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.live.text[self.saved.text :])
        object.__setattr__(self, "reasoning", self.live.reasoning[self.saved.reasoning :])

    @property
    def key(self) -> tuple[UUID, int]:
        return self.answer_id, self.live.attempt

    @property
    def row(self) -> dict[str, Any]:
        return {
            "message_id": self.answer_id,
            "attempt": self.live.attempt,
            "number": self.saved.parts,
            "text": self.text,
            "reasoning": self.reasoning,
        }

    def done(self) -> None:
        """Remember it, once the transaction is committed."""
        if self.text or self.reasoning:
            self.saved.text += len(self.text)
            self.saved.reasoning += len(self.reasoning)
            self.saved.parts += 1


async def save(session: AsyncSession, round_: Sequence[Save]) -> set[UUID]:
    """Heartbeats and new parts of all running answers, in two statements; returns those that are still ours."""
    started = [one.answer_id for one in round_ if one.live.phase is not Phase.WAITING]
    ours = set(
        await session.scalars(
            update(Message)
            .where(
                tuple_(Message.id, Message.attempt).in_([one.key for one in round_]),
                Message.status.in_(queries.RUNNING),
            )
            .values(heartbeat_at=now(), status=case((Message.id.in_(started), Status.STREAMING), else_=Message.status))
            .returning(Message.id)
        )
    )
    rows = [one.row for one in round_ if one.answer_id in ours and (one.text or one.reasoning)]
    if rows:
        new = insert(AnswerPart)
        # Only we can have taken the number, in a commit whose success we did not hear of; the newer text is longer.
        new = new.on_conflict_do_update(
            index_elements=[AnswerPart.message_id, AnswerPart.attempt, AnswerPart.number],
            set_={"text": new.excluded.text, "reasoning": new.excluded.reasoning},
        )
        await session.execute(new, rows)
    return ours


async def store_end(
    session: AsyncSession, answer_id: UUID, live: LiveAnswer, status: Status, reason: str, provenance: dict[str, Any]
) -> bool:
    """Fold everything into the row; False when somebody else ended the answer meanwhile."""
    stored = await session.scalar(
        update(Message)
        .where(Message.id == answer_id, Message.attempt == live.attempt, Message.status.in_(queries.RUNNING))
        .values(
            text=live.text,
            reasoning=live.reasoning,
            status=status,
            reason=reason,
            ended_by=live.ended_by,
            finished_at=now(),
            provenance=provenance,
        )
        .returning(Message.id)
    )
    if stored is None:
        return False
    await session.execute(delete(AnswerPart).where(AnswerPart.message_id == answer_id))
    return True


async def close(session: AsyncSession, answer: Message, status: Status) -> None:
    """End an answer that nobody writes any more, from what it had saved; its writer, should it live, is fenced off."""
    parts = (await session.scalars(queries.parts_of(answer.id, answer.attempt))).all()
    answer.text += "".join(part.text for part in parts)
    answer.reasoning += "".join(part.reasoning for part in parts)
    answer.status = status
    answer.reason = reason_of(status)
    answer.finished_at = now()
    answer.attempt += 1
    await session.execute(delete(AnswerPart).where(AnswerPart.message_id == answer.id))


def reason_of(status: Status) -> str:
    """Why an answer ended when it was not the engine that ended it."""
    if status is not Status.INTERRUPTED:
        return ""
    return _("The server restarted here. The last words before it may be missing.")

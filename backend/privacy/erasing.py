"""Having somebody gone: their account with everything in it, everywhere, and a certificate that says so.

What they used stays counted, without saying that it was they. It happens in one transaction: nobody is half gone, and
there is no certificate of what was not done. Before, it can be looked at (`preview`), and nothing is changed by that.
"""

from typing import Final
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from backend.accounts import service as accounts, throttle
from backend.accounts.models import User, normal_email
from backend.audit import service as audit
from backend.audit.service import Action, Target
from backend.conversations.models import Conversation
from backend.core.db import Sessions
from backend.core.errors import BadInput, NotFound
from backend.core.i18n import _
from backend.privacy import belongings
from backend.privacy.belongings import Counts
from backend.privacy.models import Erasure

_AT_A_TIME: Final = 200  # conversations: each statement has some seconds


async def preview(db: Sessions, person_id: UUID) -> Counts:
    """What would be removed, and what would stay without a name."""
    async with db.as_worker() as session:
        return await belongings.count(session, person_id)


def require_address(person: User, typed: str) -> None:
    """Raise BadInput unless the address was typed: a click alone must not do it."""
    if normal_email(typed) != person.email:
        wrong = _("This is not the address {email}, so nothing was removed.").format(email=person.email)
        raise BadInput(wrong, fields={"address": wrong})


async def erase(session: AsyncSession, person: User, by_id: UUID) -> Erasure:
    """In a session of a worker, in which it was decided that this may be done. Raises Conflict for the last one who
    administers everything."""
    await accounts.disable(session, person)  # signs out, stops what runs, and keeps the last administrator
    await session.flush()
    await session.execute(select(User.id).where(User.id == person.id).with_for_update())  # nothing new of theirs comes
    counts = await belongings.count(session, person.id)
    await _remove_conversations(session, person.id)
    await throttle.forget(session, person.email)
    await belongings.remove(session, person.id)
    session.expunge(person)
    await audit.forget_name(session, person.id)
    certificate = Erasure(person_id=person.id, by_id=by_id, removed=counts.removed, kept=counts.kept)
    session.add(certificate)
    removed = {"removed": counts.removed, "kept": counts.kept}
    await audit.record(session, Action.PERSON_ERASED, Target("person", person.id), after=removed)
    await session.flush()
    return certificate


async def find(session: AsyncSession, erasure_id: UUID) -> Erasure:
    found = await session.scalar(select(Erasure).where(Erasure.id == erasure_id))
    if found is None:
        raise NotFound(_("There is no such certificate."))
    return found


async def _remove_conversations(session: AsyncSession, person_id: UUID) -> None:
    """Bit by bit, because there may be more than one statement can take along in its time."""
    some = select(Conversation.id).where(Conversation.owner_id == person_id).limit(_AT_A_TIME)
    removed = delete(Conversation).where(Conversation.id.in_(some)).returning(Conversation.id)
    while (await session.scalars(removed)).all():
        pass

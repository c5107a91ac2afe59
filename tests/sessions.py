"""Time that goes by for somebody who is signed in."""

from datetime import timedelta

from sqlalchemy import update

from backend.accounts import sessions
from backend.accounts.models import LoginSession, User
from backend.core.db import Sessions


async def grow_old(site: Sessions, person: User) -> None:
    """A quarter of an hour since they signed in; `site` are the sessions of the site, which hear of it at once."""
    async with site.begin() as session:
        earlier = LoginSession.authenticated_at - timedelta(minutes=16)
        await session.execute(update(LoginSession).values(authenticated_at=earlier))
        await sessions.changed(session, person.id)

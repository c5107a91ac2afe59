"""What routes of every part of the site ask for."""

from typing import Annotated, Any

from fastapi import Depends, Request

from backend.accounts import queries
from backend.accounts.models import User
from backend.accounts.passwords import Passwords
from backend.bench.runs import Runs
from backend.conversations.titles import Titles
from backend.conversations.turns import Turns
from backend.core.db import Session, Sessions
from backend.core.errors import NotSignedIn
from backend.core.i18n import _
from backend.core.settings import Settings
from backend.engines.registry import Registry
from backend.files.extracting import Extractor
from backend.files.service import Limits
from backend.identity.entrance import Doors
from web.streaming import OpenStreams
from web.viewer import Viewer


async def current_user(request: Request) -> Viewer:
    """The policy table has let them in already (`web/policy.py`)."""
    viewer: Viewer = request.state.viewer
    return viewer


CurrentUser = Annotated[Viewer, Depends(current_user)]


async def own_row(viewer: CurrentUser, session: Session) -> User:
    found = await session.scalar(queries.person(viewer.id))
    if found is None:
        raise NotSignedIn(_("Please sign in."))
    return found


#: For routes that change the person who asks; what others read of them is remembered and costs nothing.
OwnRow = Annotated[User, Depends(own_row)]


def _from_state(name: str) -> Any:
    """One of the long-lived things that `backend/main.py` puts into the state."""

    async def read(request: Request) -> object:  # plain ones would be run in a thread
        return getattr(request.state, name)

    return Depends(read)


DeploymentSettings = Annotated[Settings, _from_state("settings")]
AllSessions = Annotated[Sessions, _from_state("sessions")]
Hasher = Annotated[Passwords, _from_state("passwords")]
RunningTurns = Annotated[Turns, _from_state("turns")]
TitleMaker = Annotated[Titles, _from_state("titles")]
Models = Annotated[Registry, _from_state("registry")]
FileReader = Annotated[Extractor, _from_state("extractor")]
FileLimits = Annotated[Limits, _from_state("limits")]
IdentityDoors = Annotated[Doors, _from_state("doors")]
Streams = Annotated[OpenStreams, _from_state("streams")]
Bench = Annotated[Runs, _from_state("bench")]

"""What routes of every part of the site ask for."""

from typing import Annotated, Any

from fastapi import Depends, Request

from backend.accounts.models import User
from backend.accounts.passwords import Passwords
from backend.conversations.titles import Titles
from backend.conversations.turns import Turns
from backend.core.db import Sessions
from backend.core.settings import Settings
from backend.engines.registry import Registry
from web.streaming import OpenStreams


def current_user(request: Request) -> User:
    """The policy table has let them in already (`web/policy.py`)."""
    user: User = request.state.login.user
    return user


CurrentUser = Annotated[User, Depends(current_user)]


def _from_state(name: str) -> Any:
    """One of the long-lived things that `backend/main.py` puts into the state."""

    def read(request: Request) -> object:
        return getattr(request.state, name)

    return Depends(read)


DeploymentSettings = Annotated[Settings, _from_state("settings")]
AllSessions = Annotated[Sessions, _from_state("sessions")]
Hasher = Annotated[Passwords, _from_state("passwords")]
RunningTurns = Annotated[Turns, _from_state("turns")]
TitleMaker = Annotated[Titles, _from_state("titles")]
Models = Annotated[Registry, _from_state("registry")]
Streams = Annotated[OpenStreams, _from_state("streams")]

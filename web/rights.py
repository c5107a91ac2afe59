"""What whoever asks may do with what is theirs, for routes that have to look into a request to know what it wants.

Where the address alone says it, the table says it, too: `web/policy.py`.
"""

from fastapi import Request

from backend.core.errors import Forbidden
from backend.core.i18n import _
from backend.groups.rights import Right


class NotAllowed(Forbidden):
    """Switched off for this person."""

    def __init__(self) -> None:
        super().__init__(_("This is switched off for you, so nothing was done. Your administrators can allow it."))


def rights_of(request: Request) -> frozenset[Right]:
    """Of the viewer, without asking the database; nobody may anything, nor anybody before it is known what they may."""
    viewer, registry = getattr(request.state, "viewer", None), getattr(request.state, "registry", None)
    rights: frozenset[Right] = registry.rights_of(viewer.id) if viewer and registry else frozenset()
    return rights


def require(request: Request, right: Right) -> None:
    if right not in rights_of(request):
        raise NotAllowed

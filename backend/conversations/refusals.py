"""Refusals that more than one place has to give, each with its one sentence."""

from backend.core.errors import Forbidden, NotFound
from backend.core.i18n import _


class NoSuchConversation(NotFound):
    def __init__(self) -> None:
        super().__init__(_("There is no conversation here. It may have been deleted, or it belongs to somebody else."))


class NoSuchMessage(NotFound):
    def __init__(self) -> None:
        super().__init__(_("There is no message here. It may have been deleted, or it belongs to somebody else."))


class AccountDeactivated(Forbidden):
    """Between the policy, which let the person in, and the row."""

    def __init__(self) -> None:
        super().__init__(_("This account is deactivated."))

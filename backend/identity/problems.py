"""Why somebody was not let in: a sentence for them, and for the log what really happened, never with a token in it."""

from backend.core.errors import AppError
from backend.core.i18n import _


class SignInRefused(AppError):
    """`reason` is for the log and the audit; the person reads the sentence."""

    status = 403

    def __init__(self, sentence: str, *, reason: str, link_to: str = "") -> None:
        super().__init__(sentence)
        self.reason = reason
        self.link_to = link_to


class ReplyRefused(SignInRefused):
    """What came back from the provider, or pretends to, cannot be believed."""

    status = 400

    def __init__(self, reason: str, sentence: str = "") -> None:
        super().__init__(
            sentence or _("What the company sign-in sent back could not be trusted, so nothing was done."),
            reason=reason,
        )


class ProviderAway(SignInRefused):
    """It does not answer, or not as a provider does."""

    status = 503

    def __init__(self, reason: str) -> None:
        super().__init__(
            _("The company sign-in does not answer properly right now. Try again in a moment."), reason=reason
        )

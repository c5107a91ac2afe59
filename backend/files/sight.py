"""Which models see pictures, and what to say when the chosen one does not."""

from collections.abc import Iterable

from backend.core.i18n import _
from backend.engines.snapshot import Offer


def refusal(chosen: Offer | None, offers: Iterable[Offer]) -> str | None:
    """Why a picture cannot be sent to `chosen`, and which model could take it; None when it can."""
    if chosen is not None and chosen.sees:
        return None
    seeing = [offer.name for offer in offers if offer.sees and offer.available]
    blind = _("“{model}” cannot see pictures.").format(model=chosen.name) if chosen else _("No model is chosen.")
    if not seeing:
        return blind + " " + _("No model here can.")
    return blind + " " + _("Choose {models} for them.").format(models=_(" or ").join(f"“{name}”" for name in seeing))

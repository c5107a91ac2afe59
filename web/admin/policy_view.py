"""How pages say where a value comes from."""

from backend.core.i18n import _
from backend.groups.rights import Answer, Source


def source_of(answer: Answer) -> str:
    return {
        Source.ENVIRONMENT: _("fixed by the deployment"),
        Source.CHOSEN: _("chosen here"),
        Source.DEFAULT: _("as it comes"),
    }[answer.source]

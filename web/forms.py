"""What every request that changes something brings: a form, with each field once (but for the files of a message)."""

from dataclasses import dataclass

from fastapi import Request

from backend.core.errors import BadInput
from backend.core.i18n import _

_FORMS = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})
_MOST_FIELDS = 100
_SEVERAL = "file"  # a message may carry more than one


@dataclass(frozen=True)
class Choice:
    """Something that can be ticked or picked; `value` is also what its field is called after."""

    value: str
    label: str
    chosen: bool


async def plain_form(request: Request) -> None:
    """Refuse another kind of body, and a field sent twice: one of the two would be read, and nobody knows which.

    A browser sends an empty form, too, with its type; so a button without fields passes, and a stray call does not.
    """
    if request.method in ("GET", "HEAD"):
        return
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _FORMS:
        raise BadInput(_("This request could not be read, so nothing was done."))
    form = await request.form(max_files=0, max_fields=_MOST_FIELDS)
    once = [name for name, _value in form.multi_items() if name != _SEVERAL]
    if len(once) != len(set(once)):
        raise BadInput(_("A field was sent twice, so nothing was done."))

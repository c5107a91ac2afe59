"""How attachments are put before a model: pure, and the same bytes at every turn, so that prefix caches work."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from backend.core.i18n import _
from backend.engines.client import Part

_TAGS = re.compile(r"file-([0-9]{1,9})", re.IGNORECASE)
_QUOTED = str.maketrans({'"': "'", "<": "‹", ">": "›"})


@dataclass(frozen=True)
class PromptFile:
    """Either the text of a document or a picture as a data URL."""

    name: str
    text: str | None = None
    image: str | None = None


def parts(text: str, files: Sequence[PromptFile], *, sees: bool = True) -> str | list[Part]:
    """A message with what is attached to it: pictures, then the files as marked blocks, then `text` itself.

    A block ends with a tag that occurs nowhere in the message, so nothing inside a file can end it and go on in the
    person's voice. For a model that does not see, a line stands for each picture.
    """
    unseen = _("A picture, which this model cannot see.")
    number = _free_number([text, *(file.text or "" for file in files), *(file.name for file in files)])
    blocks = []
    for file in files:
        name = file.name.translate(_QUOTED)
        if file.text is not None:
            blocks.append(f'<file-{number} name="{name}">\n{file.text}\n</file-{number}>')
        elif not sees:
            blocks.append(f'<file-{number} name="{name}">\n{unseen}\n</file-{number}>')
    whole = "\n\n".join([*blocks, text] if text.strip() else blocks)
    pictures: list[Part] = [
        {"type": "image_url", "image_url": {"url": file.image}} for file in files if file.image is not None and sees
    ]
    if not pictures:
        return whole
    return [*pictures, {"type": "text", "text": whole}] if whole else pictures


def _free_number(texts: Sequence[str]) -> int:
    taken = {int(found) for text in texts for found in _TAGS.findall(text)}
    return next(number for number in range(1, len(taken) + 2) if number not in taken)

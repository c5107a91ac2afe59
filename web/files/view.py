"""An attachment as pages show it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from backend.files.models import File
from backend.files.names import human_size

_THUMBNAIL = 240  # CSS pixels, the longer side


@dataclass(frozen=True)
class FileView:
    id: UUID
    name: str
    size: str
    is_picture: bool
    width: int | None  # as shown, so that nothing moves when the picture arrives
    height: int | None

    @classmethod
    def of(cls, file: File) -> Self:
        blob = file.blob
        if blob.width is None or blob.height is None:
            return cls(file.id, file.name, human_size(blob.size), False, None, None)
        scale = min(1, _THUMBNAIL / max(blob.width, blob.height))
        width, height = (max(1, round(side * scale)) for side in (blob.width, blob.height))
        return cls(file.id, file.name, human_size(blob.size), True, width, height)


def by_message(files: Iterable[File]) -> dict[UUID, list[FileView]]:
    """For the pages of a conversation: what each of its messages carries."""
    carried: dict[UUID, list[FileView]] = {}
    for file in files:
        if file.message_id is not None:
            carried.setdefault(file.message_id, []).append(FileView.of(file))
    return carried

"""Pictures of a request, drawn anew before an engine sees them, as those that people attach are (`backend/files/`).

Programs send the whole conversation each time, and with it the same pictures; so what was drawn is kept for a while, by
its person and the digest of what it was drawn from: nobody learns from its speed that somebody else has sent it, too.
"""

import asyncio
import base64
import binascii
import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from tempfile import TemporaryFile
from uuid import UUID
from weakref import WeakValueDictionary

from backend.core.i18n import _
from backend.files.extracting import Extractor
from backend.files.kinds import HEAD, sort_of
from backend.files.problems import Unreadable
from web.api.errors import Refused

KEPT_BYTES = 16 << 20


class Pictures:
    def __init__(self, extractor: Extractor, *, kept_bytes: int = KEPT_BYTES) -> None:
        self._extractor = extractor
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[tuple[UUID, bytes], str] = OrderedDict()
        self._size = 0
        # One after the other for each person: the reader itself sends away who comes with many at once.
        self._turns: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    async def drawn(self, urls: Iterable[str], person_id: UUID) -> Mapping[str, str]:
        """By the data URL that was sent, one of our own bytes. Raises Refused."""
        return {url: await self._draw(url, person_id) for url in dict.fromkeys(urls)}

    async def _draw(self, url: str, person_id: UUID) -> str:
        key = person_id, hashlib.sha256(url.encode()).digest()
        turn = self._turns.setdefault(person_id, asyncio.Lock())
        async with turn:  # also for the look at what is kept: it may be what is being drawn right now
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return kept
            made = await self._read(await asyncio.to_thread(_decoded, url), person_id)
            self._keep(key, made)
            return made

    async def _read(self, content: bytes, person_id: UUID) -> str:
        if sort_of(content[:HEAD]) != "picture":
            raise _unreadable()
        with TemporaryFile() as file:
            file.write(content)
            try:
                found = await self._extractor.read(file, len(content), person_id)
            except Unreadable:
                raise _unreadable() from None
        if found.content is None:
            raise _unreadable()
        return f"data:image/{found.kind.value};base64,{base64.b64encode(found.content).decode()}"

    def _keep(self, key: tuple[UUID, bytes], made: str) -> None:
        self._size += len(made) - len(self._kept.pop(key, ""))
        self._kept[key] = made
        while self._size > self._kept_bytes:
            _key, oldest = self._kept.popitem(last=False)
            self._size -= len(oldest)


def _decoded(url: str) -> bytes:
    try:
        return base64.b64decode(url.partition(",")[2], validate=True)
    except (binascii.Error, ValueError):
        raise _unreadable() from None


def _unreadable() -> Refused:
    sentence = _("A picture cannot be read: it is damaged, too large, or none of PNG, JPEG, WebP and GIF.")
    return Refused(sentence, param="messages", code="invalid_image")

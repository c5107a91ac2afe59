"""Pictures of programs: drawn once for each person, however they come."""

import asyncio
import base64
from typing import IO, cast
from uuid import UUID

from backend.core.ids import new_id
from backend.files.extracting import Extractor, Found
from backend.files.models import Kind
from web.api.pictures import Pictures

URL = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(32)).decode()


class Reader:
    """Draws everything alike, and counts."""

    def __init__(self) -> None:
        self.readers: list[UUID] = []

    async def read(self, _file: IO[bytes], _size: int, person_id: UUID) -> Found:
        self.readers.append(person_id)
        await asyncio.sleep(0)
        return Found(Kind.PNG, content=b"drawn")


async def test_the_same_picture_is_drawn_once_for_requests_that_come_together() -> None:
    reader, alice = Reader(), new_id()
    pictures = Pictures(cast(Extractor, reader))

    drawn = await asyncio.gather(*(pictures.drawn([URL], alice) for _ in range(3)))

    assert {found[URL] for found in drawn} == {"data:image/png;base64," + base64.b64encode(b"drawn").decode()}
    assert reader.readers == [alice]


async def test_nobody_learns_whether_somebody_else_sent_it() -> None:
    reader, alice, bob = Reader(), new_id(), new_id()
    pictures = Pictures(cast(Extractor, reader))

    for person in (alice, bob, alice):
        await pictures.drawn([URL], person)

    assert reader.readers == [alice, bob]

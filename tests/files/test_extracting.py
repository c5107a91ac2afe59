"""What is read from a file, by a process that may do nothing else."""

import asyncio
import json
import re
import sys
import time
from asyncio.subprocess import PIPE
from collections import Counter
from io import BytesIO
from uuid import UUID, uuid4

import pytest
from PIL import Image

from backend.core.errors import TooMany, Unavailable
from backend.files import extracting
from backend.files.extracting import Extractor, Found, explain
from backend.files.models import Kind
from backend.files.problems import Problem, Unreadable
from tests.files.samples import DESCRIPTION, ORIENTATION, archive, on_disk, pdf, picture, vast_picture, word

MOST = 5_000


async def read(
    content: bytes, *, most: int = MOST, extractor: Extractor | None = None, owner_id: UUID | None = None
) -> Found:
    with on_disk(content) as file:
        return await (extractor or Extractor()).read(file, most, owner_id or uuid4())


async def problem(content: bytes, *, most: int = MOST, extractor: Extractor | None = None) -> Problem:
    with pytest.raises(Unreadable) as raised:
        await read(content, most=most, extractor=extractor)
    return raised.value.problem


async def test_text_is_what_it_says() -> None:
    found = await read("a;b\r\nGröße;5\r\n".encode("cp1252"))

    assert found == Found(Kind.TEXT, "a;b\nGröße;5\n")


async def test_a_pdf_is_read_page_by_page() -> None:
    found = await read(pdf("First page", "Second page"))

    assert found == Found(Kind.PDF, "First page\n\nSecond page")


async def test_a_pdf_that_only_forbids_printing_is_read() -> None:
    assert (await read(pdf("Free to read", password=("", "owner")))).text == "Free to read"


async def test_a_word_file_keeps_headings_and_tables() -> None:
    found = await read(word())

    assert found == Found(Kind.DOCX, "# Minutes\nWe met.\tBriefly.\nwho | what\nAnn | gauge\n\nThe end.")


async def test_a_picture_is_drawn_anew() -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6  # lies on its right side
    exif[DESCRIPTION] = "where she lives"

    found = await read(picture("JPEG", (3000, 1500), exif=exif, comment=b"where she lives"))

    assert (found.kind, found.text, found.width, found.height) == (Kind.JPEG, None, 784, 1568)
    assert found.content is not None
    assert b"where she lives" not in found.content
    with Image.open(BytesIO(found.content)) as image:
        assert (image.format, image.size, dict(image.getexif())) == ("JPEG", (784, 1568), {})
        top = image.getpixel((400, 100))
        assert isinstance(top, tuple) and top[2] > 200 > top[0], "blue was left, and is above now"


@pytest.mark.parametrize(
    ("form", "mode", "kind"),
    [
        ("PNG", "RGBA", Kind.PNG),
        ("GIF", "P", Kind.PNG),
        ("WEBP", "RGB", Kind.JPEG),
        ("JPEG", "CMYK", Kind.JPEG),
    ],
)
async def test_engines_are_given_png_or_jpeg(form: str, mode: str, kind: Kind) -> None:
    found = await read(picture(form, mode=mode))

    assert (found.kind, found.width, found.height) == (kind, 40, 20)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (bytes(range(256)) * 10, Problem.UNKNOWN),
        (archive(xl__workbook=b"<x/>"), Problem.UNKNOWN),
        (b" \n\t\n", Problem.NO_TEXT),
        (b"x" * (MOST + 1), Problem.LONG),
        (b"x" * 1_000_000, Problem.LONG),
        (pdf(*["many words"] * 500), Problem.LONG),
        (pdf("", ""), Problem.NO_TEXT),
        (pdf("secret", password=("please", "owner")), Problem.ENCRYPTED),
        (pdf("cut")[:150], Problem.DAMAGED),
        (word()[:-200], Problem.DAMAGED),
        (archive(word__document=b"<a>" + b" " * 5_000_000), Problem.UNPACKS),
        (archive(word__document=b"<a/>", **{f"p{n}": b"" for n in range(2000)}), Problem.UNPACKS),
        (archive(word__document=b"<not xml"), Problem.DAMAGED),
        (picture("JPEG", (400, 300))[:2000], Problem.DAMAGED),
        (b"\x89PNG\r\n\x1a\n" + b"junk" * 20, Problem.DAMAGED),
    ],
)
async def test_what_cannot_be_read_is_named(content: bytes, expected: Problem) -> None:
    assert await problem(content) is expected


async def test_a_picture_that_would_fill_the_memory_is_not_unpacked() -> None:
    started = time.monotonic()

    found = await problem(vast_picture(60_000, 60_000))

    assert found is Problem.PIXELS
    assert time.monotonic() - started < 5


async def test_entities_of_a_word_file_are_not_followed() -> None:
    lines = '<!ENTITY a "ha">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1 if n else str()};" * 9}">' for n in range(9))
    xml = f'<!DOCTYPE x [{lines}<!ENTITY f SYSTEM "file:///etc/passwd">]><x>&a8;&f;</x>'

    found = await problem(archive(word__document=xml.encode()))

    assert found in (Problem.DAMAGED, Problem.NO_TEXT)


async def test_a_reader_that_takes_too_long_is_killed() -> None:
    started = time.monotonic()

    found = await problem(pdf(*["page"] * 100), extractor=Extractor(seconds=0.02))

    assert found is Problem.SLOW
    assert time.monotonic() - started < 3


async def test_a_reader_has_only_so_much_memory() -> None:
    content = picture("PNG", (3000, 3000), mode="RGBA")

    assert await problem(content, extractor=Extractor(memory=100 * 1024 * 1024)) is Problem.MEMORY


async def test_only_so_many_files_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most_running = 0, 0
    extractor = Extractor(at_once=2)
    run = extractor._run

    async def counted(*arguments: object) -> bytes:
        nonlocal running, most_running
        running += 1
        most_running = max(most_running, running)
        try:
            return await run(*arguments)  # type: ignore[arg-type]
        finally:
            running -= 1

    monkeypatch.setattr(extractor, "_run", counted)

    found = await asyncio.gather(*(read(picture(), extractor=extractor) for _ in range(4)))

    assert [one.kind for one in found] == [Kind.PNG] * 4
    assert most_running == 2


async def test_who_comes_when_too_many_wait_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extracting, "_MOST_WAITING", 2)
    extractor = Extractor(at_once=1)

    found = await asyncio.gather(*(read(picture(), extractor=extractor) for _ in range(3)), return_exceptions=True)

    assert Counter(type(one) for one in found) == {Found: 2, Unavailable: 1}
    assert (await read(picture(), extractor=extractor)).kind is Kind.PNG


async def test_the_files_of_one_person_leave_room_for_those_of_others() -> None:
    extractor, alice, bob = Extractor(at_once=1), uuid4(), uuid4()
    of_alice = [read(picture(), extractor=extractor, owner_id=alice) for _ in range(4)]

    *hers, his = await asyncio.gather(
        *of_alice, read(picture(), extractor=extractor, owner_id=bob), return_exceptions=True
    )

    assert Counter(type(one) for one in hers) == {Found: 3, TooMany: 1}
    assert type(his) is Found
    refused = next(one for one in hers if type(one) is TooMany)
    assert "Your other files are still being read" in str(refused)
    assert (await read(picture(), extractor=extractor, owner_id=alice)).kind is Kind.PNG
    assert not extractor._reading


_ATTEMPTS = """
import json, os, resource, subprocess, socket, sys
from backend.files import child
child.bound(10, 1 << 30)
child._lock()
done = []
for name, attempt in {
    "socket": lambda: socket.create_connection(("127.0.0.1", 9)),
    "lookup": lambda: socket.getaddrinfo("example.org", 80),
    "program": lambda: subprocess.run(["true"]),
    "shell": lambda: os.system("true"),
    "fork": os.fork,
    "write": lambda: open("/tmp/parley-must-not-exist", "w"),
    "environment": lambda: (_ for _ in ()).throw(PermissionError) if "PARLEY_SECRET_KEY" not in os.environ else None,
}.items():
    try:
        attempt()
    except PermissionError:
        continue
    done.append(name)
print(json.dumps([done, resource.getrlimit(resource.RLIMIT_FSIZE), os.nice(0) >= 10]))
"""


async def test_the_reading_process_can_neither_talk_nor_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_SECRET_KEY", "x" * 32)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", _ATTEMPTS, stdout=PIPE, env={"PYTHONPATH": str(extracting._ROOT)}
    )
    said, _nothing = await process.communicate()

    assert json.loads(said) == [[], [0, 0], True]


@pytest.mark.parametrize("one", Problem)
def test_every_problem_is_a_sentence_about_the_file(one: Problem) -> None:
    sentence = explain(one, "{name} plan.pdf", 400_000)

    assert "“{name} plan.pdf”" in sentence
    assert sentence.endswith(".")
    assert not re.search(r"{(most|name)}(?! plan)", sentence)

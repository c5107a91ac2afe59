"""What a file is, and what it is called."""

import pytest

from backend.files.kinds import decode, sort_of
from backend.files.names import human_size, safe_name
from tests.files.samples import archive, pdf, picture

WORDS = "Größe: 5 µm, naïve, “quoted”\n"


@pytest.mark.parametrize(
    ("content", "sort"),
    [
        (b"a,b\n1,2\n", "text"),
        (b"", "text"),
        (pdf("x"), "pdf"),
        (b"\xef\xbb\xbf\r\n" + pdf("x"), "pdf"),
        (archive(a=b""), "zip"),
        (picture("PNG"), "picture"),
        (picture("JPEG"), "picture"),
        (picture("GIF"), "picture"),
        (picture("WEBP"), "picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "text"),
    ],
)
def test_the_content_says_what_it_is(content: bytes, sort: str) -> None:
    assert sort_of(content) == sort


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
def test_text_is_read_in_the_encoding_it_has(encoding: str) -> None:
    assert decode(WORDS.encode(encoding)) == WORDS


def test_coloured_logs_are_text() -> None:
    assert decode(b"\x1b[31mERROR\x1b[0m\tdisk full\r\n") is not None


@pytest.mark.parametrize(
    "content",
    [bytes(range(256)) * 8, b"MZ\x90\x00\x03\x00", b"\x00" * 100, b"\xd0\xcf\x11\xe0" + bytes(range(1, 255)) * 3],
)
def test_what_is_no_text_is_not_taken_for_it(content: bytes) -> None:
    assert decode(content) is None


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("report.csv", "report.csv"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ann\\plan.docx", "plan.docx"),
        ("line\nbreak\ttab\0.txt", "line break tab.txt"),
        ("exe\u202egnp.scr", "exegnp.scr"),
        ("מחיר.pdf", "מחיר.pdf"),
        (".env", ".env"),
        ("<img src=x onerror=alert(1)>.png", "<img src=x onerror=alert(1)>.png"),
        ("", "File"),
        ("..", "File"),
        ("a/", "a"),
        ("\u202e\u2066", "File"),
    ],
)
def test_a_name_is_one_plain_line(given: str, kept: str) -> None:
    assert safe_name(given) == kept


def test_a_name_of_300_characters_keeps_its_beginning_and_its_ending() -> None:
    name = safe_name("x" * 300 + ".markdown")

    assert len(name) == 150
    assert name.startswith("xxx")
    assert name.endswith("x….markdown")


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1 kB"), (1536, "1.5 kB"), (20 << 20, "20 MB"), (31 << 30, "31 GB")],
)
def test_a_size_is_said_in_a_few_digits(count: int, words: str) -> None:
    assert human_size(count) == words

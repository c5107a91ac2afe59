"""The text of PDF and Word files. Runs in the child process only: whoever wrote the file may mean harm."""

import zipfile
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

import docx
from docx.oxml.ns import qn
from pypdf import PasswordType, PdfReader
from pypdf.errors import DependencyError, FileNotDecryptedError

from backend.files.problems import Problem, Unreadable

_MOST_PARTS = 2_000
_MOST_UNPACKED = 100 * 1024 * 1024
_MOST_RATIO = 100
_SMALL = 1024 * 1024  # below that a ratio says nothing


def pdf_text(content: bytes, most: int) -> str:
    """Page by page, with an empty line between them. Raises Unreadable."""
    reader = PdfReader(BytesIO(content))
    try:
        if reader.is_encrypted and reader.decrypt("") is PasswordType.NOT_DECRYPTED:
            raise Unreadable(Problem.ENCRYPTED)  # the empty password only forbids printing or copying
        return _joined((page.extract_text().strip() for page in reader.pages), "\n\n", most)
    except (DependencyError, FileNotDecryptedError) as error:
        raise Unreadable(Problem.ENCRYPTED) from error


def docx_text(content: bytes, most: int) -> str:
    """Paragraphs and tables in order, headings marked as Markdown marks them. Raises Unreadable."""
    _look_inside(content)
    document = docx.Document(BytesIO(content))
    headings = {
        style.style_id: "#" * int(style.name[-1]) + " "
        for style in document.styles
        if style.name and style.name.startswith("Heading ") and style.name[-1] in "123456"
    }
    return _joined(_blocks(document.element.body, headings), "\n", most)


def _look_inside(content: bytes) -> None:
    """Before anything is unpacked: is it a Word file, and does it stay within bounds?"""
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            parts = archive.infolist()
    except zipfile.BadZipFile as error:
        raise Unreadable(Problem.DAMAGED) from error
    unpacked = sum(part.file_size for part in parts)
    swells = any(part.file_size > max(_SMALL, _MOST_RATIO * part.compress_size) for part in parts)
    if len(parts) > _MOST_PARTS or unpacked > _MOST_UNPACKED or swells:
        raise Unreadable(Problem.UNPACKS)
    if "word/document.xml" not in {part.filename for part in parts}:
        raise Unreadable(Problem.UNKNOWN)


def _blocks(element: Any, headings: dict[str, str]) -> Iterator[str]:
    for child in element:
        if child.tag == qn("w:p"):
            style = child.find(f"{qn('w:pPr')}/{qn('w:pStyle')}")
            mark = headings.get(style.get(qn("w:val")), "") if style is not None else ""
            text = "".join(_runs(child)).strip()
            yield mark + text if text else ""
        elif child.tag == qn("w:tbl"):
            for row in child.iterchildren(qn("w:tr")):
                cells = (" ".join(_blocks(cell, headings)).strip() for cell in row.iterchildren(qn("w:tc")))
                yield " | ".join(cells)
            yield ""
        elif child.tag in (qn("w:sdt"), qn("w:sdtContent"), qn("w:ins"), qn("w:customXml")):
            yield from _blocks(child, headings)


def _runs(element: Any) -> Iterator[str]:
    """The text of a paragraph as it reads now: what was inserted is there, what was deleted is not."""
    for child in element:
        if child.tag == qn("w:t"):
            yield child.text or ""
        elif child.tag == qn("w:tab"):
            yield "\t"
        elif child.tag in (qn("w:br"), qn("w:cr")):
            yield "\n"
        elif child.tag not in (qn("w:pPr"), qn("w:rPr"), qn("w:del"), _FALLBACK):
            yield from _runs(child)


# The second copy of a text box, for programs older than 2010.
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"


def _joined(pieces: Iterable[str], between: str, most: int) -> str:
    """Stops as soon as it is too long, however much would follow."""
    kept: list[str] = []
    length = 0
    for piece in pieces:
        length += len(piece) + len(between)
        if length > most + len(between):
            raise Unreadable(Problem.LONG)
        kept.append(piece)
    text = between.join(kept).strip()
    if not text:
        raise Unreadable(Problem.NO_TEXT)
    return text

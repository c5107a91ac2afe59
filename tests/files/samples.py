"""Files as people attach them, made here so that nothing binary lies in the repository."""

import struct
import zipfile
import zlib
from io import BytesIO
from tempfile import TemporaryFile
from typing import IO, Any

import docx
from PIL import Image
from pypdf import PdfWriter

ORIENTATION = 0x0112
DESCRIPTION = 0x010E


def on_disk(content: bytes) -> IO[bytes]:
    """Gone when nobody holds it any more."""
    file = TemporaryFile()  # noqa: SIM115
    file.write(content)
    return file


def pdf(*pages: str, password: tuple[str, str] | None = None) -> bytes:
    """A page for each text; `password` of user and owner."""
    numbers = range(3, 3 + 2 * len(pages), 2)
    objects = ["<</Type/Catalog/Pages 2 0 R>>"]
    objects.append(f"<</Type/Pages/Kids[{' '.join(f'{number} 0 R' for number in numbers)}]/Count {len(pages)}>>")
    font = "<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>"
    for number, text in zip(numbers, pages, strict=True):
        drawn = f"BT /F1 12 Tf 50 700 Td ({text}) Tj ET" if text else "50 50 100 100 re f"
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents {number + 1} 0 R/Resources<</Font{font}>>>>"
        )
        objects.append(f"<</Length {len(drawn)}>>stream\n{drawn}\nendstream")
    written = "%PDF-1.4\n"
    places = []
    for number, one in enumerate(objects, 1):
        places.append(len(written))
        written += f"{number} 0 obj{one} endobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"trailer<</Size {len(objects) + 1}/Root 1 0 R>>\nstartxref\n{len(written)}\n%%EOF"
    content = f"{written}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{end}".encode()
    if password is None:
        return content
    writer = PdfWriter(clone_from=BytesIO(content))
    writer.encrypt(*password, algorithm="AES-256")
    return _saved(writer.write)


def word() -> bytes:
    document = docx.Document()
    document.add_heading("Minutes", 1)
    document.add_paragraph("We met.\tBriefly.")
    table = document.add_table(2, 2)
    for number, text in enumerate(("who", "what", "Ann", "gauge")):
        table.cell(number // 2, number % 2).text = text
    document.add_paragraph("The end.")
    return _saved(document.save)


def archive(**parts: bytes) -> bytes:
    """A ZIP; `word__document` is the part that makes a Word file of it."""
    target = BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in parts.items():
            written.writestr(name.replace("__", "/") + ".xml", content)
    return target.getvalue()


def picture(form: str = "PNG", size: tuple[int, int] = (40, 20), mode: str = "RGB", **options: Any) -> bytes:
    """Blue on the left, red on the right."""
    image = Image.new("RGB", size, "red")
    image.paste("blue", (0, 0, size[0] // 2, size[1]))
    return _saved(lambda target: image.convert(mode).save(target, form, **options))


def vast_picture(width: int, height: int) -> bytes:
    """A PNG of nothing but zeros, the way a decompression bomb is made: every byte of it stands for a thousand."""
    pieces = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(1 + 3 * width) * 50)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in pieces
    )


def _saved(save: Any) -> bytes:
    target = BytesIO()
    save(target)
    return target.getvalue()

"""Pictures, drawn anew: what leaves here was written by us, whatever came in. Runs in the child process only."""

from dataclasses import dataclass
from io import BytesIO

from PIL import Image, ImageOps, UnidentifiedImageError

from backend.files.problems import Problem, Unreadable

LONGEST_SIDE = 1568  # what models look at; they would scale down anything larger by themselves
MOST_PIXELS = 50_000_000
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_MOST_LOSSLESS = 1_500_000  # bytes: beyond that it is a photograph, and every turn would carry it


@dataclass(frozen=True)
class Picture:
    kind: str
    content: bytes
    width: int
    height: int


def redraw(content: bytes) -> Picture:
    """The first frame, upright, at most `LONGEST_SIDE`, without anything that is not a pixel.

    PNG for what was lossless or is transparent, else JPEG: every engine reads these two, and WebP not every one.
    """
    try:
        with Image.open(BytesIO(content), formats=_FORMATS) as opened:
            # The header is believed before one pixel is read, and Pillow reads no more than it says.
            if opened.width * opened.height > MOST_PIXELS:
                raise Unreadable(Problem.PIXELS)
            is_lossless = opened.format in ("PNG", "GIF")
            image = _upright(opened)
    except Image.DecompressionBombError as error:
        raise Unreadable(Problem.PIXELS) from error
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise Unreadable(Problem.DAMAGED) from error
    if is_lossless or image.mode == "RGBA":
        written = _written(image, "PNG", optimize=True)
        if len(written) <= _MOST_LOSSLESS:
            return Picture("png", written, *image.size)
    return Picture("jpeg", _written(_on_white(image), "JPEG", quality=88), *image.size)


def _upright(opened: Image.Image) -> Image.Image:
    """Turned last, when it is small: at full size every step of this would be a copy of 200 MB."""
    opened.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))  # a large JPEG is read at half or a quarter of its size
    mode = "RGBA" if opened.has_transparency_data else "RGB"
    image = opened if opened.mode == mode else opened.convert(mode)
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE), reducing_gap=2.0)
    image = ImageOps.exif_transpose(image)
    image.info = {}  # what Pillow would write again: profiles, comments, resolution
    return image


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode == "RGB":
        return image
    paper = Image.new("RGB", image.size, "white")
    paper.paste(image, mask=image.getchannel("A"))
    return paper


def _written(image: Image.Image, form: str, **options: int | bool) -> bytes:
    target = BytesIO()
    image.save(target, form, **options)
    return target.getvalue()

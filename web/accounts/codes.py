"""The picture that a telephone reads a secret from."""

import io

import segno
from markupsafe import Markup


def picture(text: str) -> Markup:
    """As SVG inside the page: an address of its own would hold the secret. Dark on light whatever the theme is."""
    drawn = io.BytesIO()
    segno.make(text, error="m").save(
        drawn, kind="svg", xmldecl=False, svgns=True, scale=4, border=4, dark="#000", light="#fff", nl=False
    )
    return Markup(drawn.getvalue().decode())  # noqa: S704 - drawn by the library, with no text in it

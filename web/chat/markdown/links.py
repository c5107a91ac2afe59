"""Which addresses an answer may link to."""

import re

REL = "noopener noreferrer nofollow"

# Absolute and written out in full. A browser drops tabs and newlines and reads a backslash as a slash, so an address
# with one of those may be another than it seems; one without a scheme would be a page of ours, such as /logout.
_ADDRESS = re.compile(
    r"https?://(?:[^\s/?#@\\\[\]]+@)?(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?(?:[/?#][^\x00-\x20\x7f\\]*)?"
    r"|mailto:[^\x00-\x20\x7f\\]+",
    re.IGNORECASE,
)


def safe(address: str) -> str | None:
    """The address as it may stand in a link, or None: then only the text of the link is shown."""
    address = address.strip(" ").replace(" ", "%20")
    return address if _ADDRESS.fullmatch(address) else None

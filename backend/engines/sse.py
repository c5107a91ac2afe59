"""Server-sent events, read as they come.

Bytes may be cut anywhere: inside a character, between `\\r` and `\\n`, in the middle of a field name. Nothing is
decoded before an event is whole, so no cut can change the result. Most reads hold whole `data: …\\n\\n` events, and
those cost one split; everything else takes the careful way through `_read_block`.
"""

from typing import TypeAlias

MAX_EVENT_BYTES = 1 << 20
"""An honest chunk has a few hundred bytes; with many log probabilities some thousands."""

_MAX_BARE_BYTES = 16_384
"""`pending` may be asked after every read, so what it looks at stays small."""

_BOM = b"\xef\xbb\xbf"


ServerEvent: TypeAlias = tuple[bytes, bytes]
"""Name and data; the name of an ordinary event is empty. A plain tuple: one is made for every token."""


class EventParser:
    """Bytes in, complete events out.

    Two liberties beside the standard. A block that begins with `{` counts as data: servers drop bare JSON errors into
    an open stream. And what is left when the stream ends counts as an event, for `close` to hand out.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.too_long = False
        """An event outgrew the limit; nothing after it is read."""
        self._limit = max_event_bytes
        self._rest = bytearray()
        self._after_cr = False

    def feed(self, data: bytes) -> list[ServerEvent]:
        if self.too_long:
            return []
        if self._after_cr or b"\r" in data:
            data = self._with_line_feeds(data)
        rest = self._rest
        if rest:
            # Only the seam and the new bytes can hold an end; a long event in many reads stays linear.
            if (rest[-1] != 0x0A or data[:1] != b"\n") and b"\n\n" not in data:
                return self._keep(data)
            data = bytes(rest) + data
            rest.clear()
        blocks = data.split(b"\n\n")
        tail = blocks.pop()
        events: list[ServerEvent] = []
        for block in blocks:
            if len(block) > self._limit:
                self.too_long = True
                return events
            if block.startswith(b"data: ") and b"\n" not in block:
                events.append((b"", block[6:]))
            elif (event := _read_block(block)) is not None:
                events.append(event)
        if tail:
            self._keep(tail)
        return events

    def until_next(self, data: bytes) -> int:
        """How many bytes of `data` belong to the event that is open; all of them where that is not easy to say."""
        if self._after_cr or self.too_long or b"\r" in data:
            return len(data)
        if not self._rest:
            return 0
        if self._rest[-1] == 0x0A and data[:1] == b"\n":
            return 1
        return data.find(b"\n\n") + 2 if b"\n\n" in data else len(data)

    def pending(self) -> bytes:
        """The event that is still open, if it looks like a bare JSON error: no end may ever come."""
        rest = self._rest
        if not rest or len(rest) > _MAX_BARE_BYTES or not rest.rstrip().endswith(b"}"):
            return b""
        return bytes(rest) if rest.lstrip().startswith(b"{") else b""

    def close(self) -> list[ServerEvent]:
        """The event left open when the stream ended. Whether its data is whole is for the reader of the data to say."""
        event = _read_block(bytes(self._rest))
        self._rest.clear()
        return [event] if event is not None else []

    def _keep(self, data: bytes) -> list[ServerEvent]:
        self._rest += data
        self.too_long = len(self._rest) > self._limit + 1  # the last byte may be half of the end
        return []

    def _with_line_feeds(self, data: bytes) -> bytes:
        """All three line ends as `\\n`; a `\\r` at the end of a read counts at once, the `\\n` after it no more."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _read_block(block: bytes) -> ServerEvent | None:
    """The event in the lines between two blank lines, or nothing when it has no data."""
    block = block.removeprefix(_BOM)
    if block.lstrip()[:1] == b"{":
        return b"", block.strip()
    name = b""
    data: list[bytes] = []
    for line in block.split(b"\n"):
        field, _colon, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.strip()
    return (name, b"\n".join(data)) if data else None

"""A tokeniser and a prefix cache that behave like an engine's, in a few lines.

A token is up to four bytes of text. That makes counts plausible and reversible and, because every message is cut for
itself, stable: a longer conversation begins with the tokens of the shorter one.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

BLOCK = 16
_BYTES = 4


def encode(text: str) -> list[int]:
    raw = text.encode()
    return [int.from_bytes(b"\1" + raw[i : i + _BYTES], "big") for i in range(0, len(raw), _BYTES)]


def decode(tokens: Iterable[int]) -> str:
    pieces = [token.to_bytes((token.bit_length() + 7) // 8, "big")[1:] for token in tokens]
    return b"".join(pieces).decode(errors="replace")


def encode_chat(
    messages: Sequence[Mapping[str, object]], *, answers: bool = True, continues: bool = False
) -> list[int]:
    """The tokens of a conversation as its template writes it.

    `answers` adds the opening of the next turn; `continues` leaves the last one open instead.
    """
    tokens: list[int] = []
    for number, message in enumerate(messages, 1):
        end = "" if continues and number == len(messages) else "<|end|>\n"
        tokens += encode(f"<|{message.get('role')}|>\n{_written(message.get('content'))}{end}")
    return tokens + encode("<|assistant|>\n") if answers and not continues else tokens


def encode_body(body: Mapping[str, Any]) -> list[int]:
    """The prompt that a chat, or a question for its length, comes to."""
    return encode_chat(
        body["messages"],
        answers=body.get("add_generation_prompt", True),
        continues=body.get("continue_final_message", False),
    )


def text_of(content: object) -> str:
    """What is said in words: a content may also be a list of parts."""
    if not isinstance(content, list):
        return str(content or "")
    return " ".join(str(part.get("text")) for part in content if part.get("type") == "text")


def _written(content: object) -> str:
    """A picture takes the room of 64 tokens, its own ones."""
    pictures = (
        [part["image_url"]["url"] for part in content if "image_url" in part] if isinstance(content, list) else []
    )
    return text_of(content) + "".join(sha256(url.encode()).hexdigest() * 4 for url in pictures)


class PrefixCache:
    """Whole blocks of tokens it has seen, each known by everything before it, starting with the salt."""

    def __init__(self) -> None:
        self.queries = 0
        self.hits = 0
        self._blocks: set[int] = set()

    def look_up(self, tokens: list[int], salt: str = "") -> int:
        """How many of `tokens` are cached; afterwards all full blocks are. The last token is always computed."""
        cached = 0
        chain = hash(("salt", salt))
        unbroken = True
        for start in range(0, len(tokens) - BLOCK, BLOCK):
            chain = hash((chain, *tokens[start : start + BLOCK]))
            unbroken = unbroken and chain in self._blocks
            cached += BLOCK if unbroken else 0
            self._blocks.add(chain)
        self.queries += len(tokens)
        self.hits += cached
        return cached

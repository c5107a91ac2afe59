"""A tokeniser and a prefix cache that behave like an engine's, in a few lines.

A token is up to four bytes of text. That makes counts plausible and reversible and, because every message is cut for
itself, stable: a longer conversation begins with the tokens of the shorter one.
"""

import json
from collections.abc import Iterable, Mapping

BLOCK = 16
_BYTES = 4


def encode(text: str) -> list[int]:
    raw = text.encode()
    return [int.from_bytes(b"\1" + raw[i : i + _BYTES], "big") for i in range(0, len(raw), _BYTES)]


def decode(tokens: Iterable[int]) -> str:
    pieces = [token.to_bytes((token.bit_length() + 7) // 8, "big")[1:] for token in tokens]
    return b"".join(pieces).decode(errors="replace")


def encode_chat(messages: Iterable[Mapping[str, object]], *, answers: bool = True) -> list[int]:
    """The tokens of a conversation as its template writes it; `answers` adds the opening of the next turn."""
    tokens: list[int] = []
    for message in messages:
        content = message.get("content")
        text = content if isinstance(content, str) else json.dumps(content)
        tokens += encode(f"<|{message.get('role')}|>\n{text}<|end|>\n")
    return tokens + encode("<|assistant|>\n") if answers else tokens


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

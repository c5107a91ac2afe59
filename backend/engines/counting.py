"""Where each kind of engine counts the tokens of a prompt, and where in its answer the number stands."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from backend.engines.discovery import Kind, Page
from backend.engines.events import Failure
from backend.engines.failures import failed


@dataclass(frozen=True, slots=True)
class Counter:
    path: tuple[str, ...]
    number: Callable[[object], object]
    in_api: bool = False  # below `/v1`, else beside it

    def read(self, page: Page) -> int:
        """Raises `EngineFailed` with `NONSENSE` for a page that is no count."""
        try:
            count = self.number(orjson.loads(page.body))
        except (ValueError, TypeError, KeyError):
            count = None
        if type(count) is not int or count < 0:
            raise failed(Failure.NONSENSE, page.body[:500].decode("utf-8", "replace"))
        return count


def _field(name: str) -> Callable[[object], object]:
    return lambda payload: payload.get(name) if isinstance(payload, dict) else None


def _length_of_tokens(payload: object) -> object:
    tokens = _field("tokenize_response")(payload)
    return len(tokens) if isinstance(tokens, list) else None


COUNTERS: Mapping[str, Counter] = {
    Kind.VLLM: Counter(("tokenize",), _field("count")),
    Kind.SGLANG: Counter(("tokenize",), _field("count")),
    Kind.LLAMACPP: Counter(("chat", "completions", "input_tokens"), _field("input_tokens"), in_api=True),
    Kind.TGI: Counter(("chat_tokenize",), _length_of_tokens),
}

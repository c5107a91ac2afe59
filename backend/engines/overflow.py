"""Recognises "too long for this model" in the words of each engine; no two say it alike."""

import re
from collections.abc import Iterable

from backend.engines.events import Overflow

_MAX_SENTENCE = 4_000
"""The engine's sentence comes first; what follows may be the prompt it complains about."""


def _any_of(*patterns: str) -> list[re.Pattern[str]]:
    return [re.compile(pattern, re.IGNORECASE | re.DOTALL) for pattern in patterns]


_ANSWER_TOO_LONG = _any_of(
    r"max_tokens=\d+ cannot be greater than max_model_len(?:=(?P<window>\d+))?",  # vLLM
    r"'max_(?:completion_)?tokens'.{0,80}too large(?:.{0,120}?maximum context length is (?P<window>\d+))?",  # vLLM, old
)
_PROMPT_TOO_LONG = _any_of(
    r"maximum context length is (?P<window>\d+) tokens",  # vLLM, OpenAI and the many that follow them
    r"prompt \(length (?P<prompt>\d+)\).{0,80}longer than the maximum model length of (?P<window>\d+)",  # vLLM, files
    r"max_tokens must be at least 1, got 0",  # vLLM: the prompt fills the window to the last token
    r"input \((?P<prompt>\d+) tokens\) is longer than the model's context length \((?P<window>\d+) tokens\)",  # SGLang
    r"exceeds the model's maximum context length of (?P<window>\d+)",  # SGLang
    r"exceeds the available context size",  # llama.cpp; its numbers are fields
    r"prompt is longer than the context length",  # Ollama
    r"input length exceeds the context length",  # Ollama
    r"tokens to keep from the initial prompt is greater than the context",  # LM Studio, and the three below
    r"trying to keep the first \d+ tokens when context the overflows",
    r"context size has been exceeded",
    r"reached context length of (?P<window>\d+)",
    r"must be <= (?P<window>\d+)\. given: (?P<prompt>\d+) .inputs. tokens",  # TGI
    r"context window exceeded",  # LiteLLM
)
_CODES = frozenset({"exceed_context_size_error", "context_length_exceeded"})

_COUNTED = re.compile(r"contains (at least )?(\d+) input tokens", re.IGNORECASE)  # vLLM
_COUNTED_APART = re.compile(r"requested \d+ tokens \((\d+) in the messages", re.IGNORECASE)  # OpenAI


def find_overflow(
    message: str, *, words: Iterable[str] = (), prompt_tokens: int | None = None, window: int | None = None
) -> Overflow | None:
    """What the engine says about lengths; `words` are its code and type, the numbers its own fields if it has them."""
    message = message[:_MAX_SENTENCE]
    for pattern in _ANSWER_TOO_LONG:
        if found := pattern.search(message):
            return Overflow(window=_number(found, "window") or window, answer_only=True)
    for pattern in _PROMPT_TOO_LONG:
        if found := pattern.search(message):
            return _count(message, _number(found, "prompt") or prompt_tokens, _number(found, "window") or window)
    if _CODES.intersection(words):
        return _count(message, prompt_tokens, window)
    return None


def _count(message: str, prompt_tokens: int | None, window: int | None) -> Overflow:
    if counted := _COUNTED.search(message):
        return Overflow(window, _tokens(counted[2]), at_least=counted[1] is not None)
    if counted := _COUNTED_APART.search(message):
        prompt_tokens = _tokens(counted[1])
    fits = prompt_tokens is not None and window is not None and prompt_tokens < window
    return Overflow(window, prompt_tokens, answer_only=fits)


def _number(found: re.Match[str], name: str) -> int | None:
    text = found.groupdict().get(name)
    return _tokens(text) if text else None


def _tokens(digits: str) -> int | None:
    """None for more than any model reads: it would neither fit into a sentence nor into a column."""
    return int(digits) if len(digits) < 10 else None

"""Colours for code, by Pygments' short class names.

Pygments itself takes 2 to 7 ms for a kilobyte, and some of its lexers far more than linear time: 4,000 empty lines of
C cost 1.6 s, in which every other answer of the process would stand still. A reader needs comments, strings, numbers,
keywords and the names that are defined to stand out; one regular expression for each language finds those in a single
pass. No part of such an expression can give back what it took, so the time is linear whatever the code is.
"""

import re
from functools import cache, lru_cache

from web.chat.markdown import escaping
from web.chat.markdown.languages import ALIASES, LANGUAGES

CLASSES = frozenset("c1 cm gd gh gi k kc kd kn kt m na nb nc nd nf nt nv ow s1 s2 sb sd".split())

_LONGEST = 100_000
# The block that grows may be a list with finished code in it, which is rendered 20 times a second.
_REMEMBERED = 8_000
_NAME = re.compile(r"[\w+#.-]{1,30}")


def language_of(info: str) -> tuple[str, str]:
    """The key of the language that the line of the fence names, or "", and what to call it."""
    match = _NAME.match(info.strip().lstrip("{."))
    if not match:
        return "", ""
    key = ALIASES.get(match[0].lower(), "")
    return key, LANGUAGES[key].name if key else match[0]


def coloured(key: str, code: str) -> str:
    """The code as HTML; its text stays exactly what it is."""
    if key not in LANGUAGES or not LANGUAGES[key].expression or len(code) > _LONGEST:
        return escaping.text(code)
    return _remembered(key, code) if len(code) <= _REMEMBERED else _coloured(key, code)


@lru_cache(maxsize=256)
def _remembered(key: str, code: str) -> str:
    return _coloured(key, code)


@cache
def _pattern(key: str) -> re.Pattern[str]:
    return re.compile(LANGUAGES[key].expression, re.DOTALL | re.MULTILINE)


def _coloured(key: str, code: str) -> str:
    language = LANGUAGES[key]
    out: list[str] = []
    done = named_from = 0
    expected: str | None = None
    for match in _pattern(key).finditer(code):
        kind, token = match.lastgroup, match[0]
        if kind == "word":
            word = token.lower() if language.any_case else token
            kind = language.words.get(word)
            if expected and not kind and code[named_from : match.start()].isspace():
                kind = expected
            expected, named_from = language.names_after.get(word), match.end()
        if kind:
            out.append(escaping.text(code[done : match.start()]))
            out.append(f'<span class="{kind}">{escaping.text(token)}</span>')
            done = match.end()
    out.append(escaping.text(code[done:]))
    return "".join(out)

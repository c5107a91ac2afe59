"""Which passwords are taken: long enough, and not made of what everybody tries first.

There is no rule about kinds of characters, which only lead to "Passw0rd!2026". Instead a password is taken apart as an
attacker would do it: a well-known word, the name of the person or of the company, a number, a row of keys, something
said twice. Each such piece is worth as much as one character chosen at random, because it is found as quickly. What is
left has to be worth five.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from backend.core.i18n import _, ngettext

MIN_LENGTH: Final = 12
MIN_LENGTH_OF_ADMINS: Final = 15
MAX_LENGTH: Final = 128

_LEAST_WORTH = 5
_COMMON = Path(__file__).with_name("common_passwords.txt")
_LONGEST_PIECE = 24
_SHORTEST_PIECE = 3
_DIGITS_OF_A_NUMBER = 4
_ROWS = (
    "abcdefghijklmnopqrstuvwxyz",
    "01234567890123456789",
    "qwertyuiop",
    "qwertzuiop",
    "azertyuiop",
    "asdfghjkl",
    "zxcvbnm",
    "yxcvbnm",
    "1q2w3e4r5t6z7u8i9o0p",
    "1q2w3e4r5t6y7u8i9o0p",
    "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik9ol0p",
    "!@#$%^&*()",
    '!"§$%&/()=',
)
_DISGUISES = str.maketrans("013457@$!", "oieastasi")


def least_length(*, is_admin: bool) -> int:
    return MIN_LENGTH_OF_ADMINS if is_admin else MIN_LENGTH


def weakness(password: str, *, is_admin: bool = False, about: Iterable[str] = ()) -> str | None:
    """A sentence that says why `password` cannot be taken, or None.

    `about` is what is known of its person: name, address, company.
    """
    length, least = len(password), least_length(is_admin=is_admin)
    if length < least:
        return ngettext(
            "This one has {length} character; at least {least} are needed.",
            "This one has {length} characters; at least {least} are needed.",
            length,
        ).format(length=length, least=least)
    if length > MAX_LENGTH:
        return _("This one has {length} characters; at most {most} can be kept.").format(length=length, most=MAX_LENGTH)
    if _worth(password.lower(), _words(about)) < _LEAST_WORTH:
        return _("This one is easily guessed. Take a few words that have nothing to do with each other or with you.")
    return None


@cache
def _common() -> frozenset[str]:
    lines = _COMMON.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


def _words(about: Iterable[str]) -> frozenset[str]:
    """The pieces of names and addresses that somebody would make a password of."""
    parts = "".join(letter if letter.isalnum() else " " for text in about for letter in f"{text} ".lower()).split()
    return frozenset(part for part in parts if len(part) >= _SHORTEST_PIECE)


def _worth(password: str, about: frozenset[str]) -> int:
    """The least it takes to put the password together: 1 for a piece or a single character, 0 for what was said before
    or is known of the person."""
    plain = password.translate(_DISGUISES)
    cheapest = [0]
    for end in range(1, len(password) + 1):
        best = cheapest[end - 1] + 1
        for start in range(max(0, end - MAX_LENGTH), end - 1):
            if cheapest[start] < best and (password[start:end] in about or _is_repeated(password, start, end)):
                best = cheapest[start]
            elif cheapest[start] + 1 < best and _is_piece(password[start:end], plain[start:end]):
                best = cheapest[start] + 1
        cheapest.append(best)
    return cheapest[-1]


def _is_piece(piece: str, plain: str) -> bool:
    """`plain` is the same without its disguise."""
    if len(set(piece)) == 1 or (piece.isdecimal() and len(piece) <= _DIGITS_OF_A_NUMBER):
        return True
    if not _SHORTEST_PIECE <= len(piece) <= _LONGEST_PIECE:
        return False
    return piece in _common() or plain in _common() or any(piece in row or piece[::-1] in row for row in _ROWS)


def _is_repeated(password: str, start: int, end: int) -> bool:
    """Whether this piece stands further left already, perhaps running over into itself."""
    return end - start >= _SHORTEST_PIECE and password.find(password[start:end], 0, end - 1) >= 0

"""Passwords that everybody tries first are not taken, whatever kinds of characters are in them; all others are."""

from time import perf_counter

import pytest

from backend.accounts.strength import MAX_LENGTH, MIN_LENGTH_OF_ADMINS, weakness

ALICE = ("Alice Löwenherz", "a.lowe@corp-widgets.example", "Widgets & Sons")


@pytest.mark.parametrize(
    "password",
    [
        "correct horse battery",
        "ключ от всех дверей",
        "my cat eats parsley",
        "gT7#qLw2zP9!",
        "x" + " zq" * 30 + "whatever else",
    ],
)
def test_any_password_that_is_not_easily_guessed_is_taken(password: str) -> None:
    assert weakness(password, about=ALICE) is None


@pytest.mark.parametrize(
    "password",
    [
        "password1234",
        "P@ssw0rd2026!",
        "passwordpassword",
        "qwertyuiop12",
        "Sommer2026!!!",
        "Willkommen2026",
        "abcdefghijkl",
        "zyxwvutsrqponm",
        "aaaaaaaaaaaa",
        "abababababab",
        "xK9$xK9$xK9$",
        "123456789012",
        "1q2w3e4r5t6z",
        "letmein letmein letmein",
        "alicealice2026",
        "Löwenherz2026!",
        "corp-widgets-1",
        "alice.widgets.1",
    ],
)
def test_one_of_well_known_pieces_is_not(password: str) -> None:
    assert "easily guessed" in (weakness(password, about=ALICE) or "")


@pytest.mark.parametrize(
    ("password", "says"),
    [("short", "This one has 5 characters"), ("x", "has 1 character;"), ("y" * (MAX_LENGTH + 1), "at most 128")],
)
def test_one_of_the_wrong_length_is_told_so(password: str, says: str) -> None:
    assert says in (weakness(password) or "")


def test_administrators_need_longer_ones() -> None:
    assert weakness("gT7#qLw2zP9!") is None
    assert f"at least {MIN_LENGTH_OF_ADMINS} are" in (weakness("gT7#qLw2zP9!", is_admin=True) or "")


def test_the_longest_one_is_judged_in_a_moment() -> None:
    began = perf_counter()

    weakness("ab" * 64, about=["ab" * 60])

    assert perf_counter() - began < 1

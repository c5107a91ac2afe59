"""Tokens, derived keys and sealed values."""

import hashlib

import pytest
from hypothesis import given, settings, strategies as st

from backend.core.security import Sealer, Unreadable, digest, new_token, subkey

OLD, NEW = "old-secret-" * 4, "new-secret-" * 4


def test_a_sealed_value_can_be_opened_where_it_belongs() -> None:
    sealer = Sealer([NEW], "engine keys")

    sealed = sealer.seal("sk-geheim 🔑", "engine 1")

    assert sealer.open(sealed, "engine 1") == "sk-geheim 🔑"
    assert b"geheim" not in sealed


def test_a_sealed_value_cannot_be_moved_to_another_place() -> None:
    """Who can write to the table must not be able to give one engine the key of another."""
    sealer = Sealer([NEW], "engine keys")
    sealed = sealer.seal("sk-1", "engine 1")

    with pytest.raises(Unreadable):
        sealer.open(sealed, "engine 2")


def test_a_value_sealed_with_the_old_secret_opens_while_the_secret_is_changed() -> None:
    sealed_before = Sealer([OLD], "engine keys").seal("sk-1", "engine 1")
    between = Sealer([NEW, OLD], "engine keys")

    resealed = between.seal(between.open(sealed_before, "engine 1"), "engine 1")

    afterwards = Sealer([NEW], "engine keys")
    assert afterwards.open(resealed, "engine 1") == "sk-1"
    with pytest.raises(Unreadable, match="another secret"):
        afterwards.open(sealed_before, "engine 1")


def test_a_value_sealed_for_another_purpose_cannot_be_opened() -> None:
    sealed = Sealer([NEW], "engine keys").seal("sk-1", "engine 1")

    with pytest.raises(Unreadable):
        Sealer([NEW], "something else").open(sealed, "engine 1")


def test_the_same_value_is_sealed_differently_every_time() -> None:
    """A nonce that came twice would give the key away."""
    sealer = Sealer([NEW], "engine keys")

    assert len({sealer.seal("sk-1", "engine 1") for _ in range(100)}) == 100


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_value_is_unreadable(position: int, change: int) -> None:
    sealer = Sealer([NEW], "engine keys")
    sealed = bytearray(sealer.seal("sk-1", "engine 1"))
    sealed[position % len(sealed)] ^= change

    with pytest.raises(Unreadable):
        sealer.open(bytes(sealed), "engine 1")


def test_a_value_that_was_cut_off_is_unreadable() -> None:
    sealer = Sealer([NEW], "engine keys")
    sealed = sealer.seal("sk-1", "engine 1")

    for length in range(len(sealed)):
        with pytest.raises(Unreadable):
            sealer.open(sealed[:length], "engine 1")


def test_tokens_are_long_random_and_fit_into_an_address() -> None:
    tokens = {new_token() for _ in range(1_000)}

    assert len(tokens) == 1_000
    assert all(len(token) == 43 and token.replace("-", "").replace("_", "").isalnum() for token in tokens)


@pytest.mark.parametrize("token", ["", "abc", "ü", "\udcff", "x" * 10_000])
def test_whatever_a_stranger_sends_as_a_token_has_a_digest(token: str) -> None:
    assert len(digest(token)) == 32


def test_the_digest_of_a_token_is_sha256() -> None:
    """Stored sessions and links depend on it: another digest would sign everybody out."""
    assert digest("abc") == hashlib.sha256(b"abc").digest()


def test_each_purpose_has_its_own_key() -> None:
    keys = {subkey(secret, purpose) for secret in (OLD, NEW) for purpose in ("engine keys", "prefix cache salt")}

    assert len(keys) == 4
    assert {len(key) for key in keys} == {32}
    assert subkey(NEW, "engine keys") == subkey(NEW, "engine keys")


def test_a_derived_key_never_changes() -> None:
    """HKDF-SHA-256 without salt, info "parley:" + purpose (RFC 5869): what was sealed must open after an upgrade."""
    assert subkey("0" * 32, "engine keys").hex() == "951df99344f1e6634bd370253429b443a825f90e80dda89b516b8481ed2ca712"

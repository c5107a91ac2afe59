"""Secrets: made here, derived here, sealed here."""

import hashlib
import os
import secrets
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_NONCE_BYTES = 12  # what AES-GCM asks for


def new_token() -> str:
    """256 random bits, URL-safe. Hand it out once, store its `digest`."""
    return secrets.token_urlsafe(32)


def digest(token: str) -> bytes:
    """What is stored of a token: 32 bytes of SHA-256, from which a random token cannot be found again."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def subkey(secret: str, purpose: str) -> bytes:
    """32 bytes for one purpose, so that a key leaked in one place opens nothing elsewhere (HKDF, RFC 5869)."""
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=b"parley:" + purpose.encode()).derive(secret.encode())


class Unreadable(Exception):
    """A sealed value was made with another secret, for another place, or was changed."""


class Sealer:
    """Encrypts small values with AES-256-GCM, bound to the place they belong to.

    `secrets` is the master secret, or new and old while it is being changed: the first seals, all open.
    A sealed value is key id (4 bytes) + nonce (12) + ciphertext and tag.
    """

    def __init__(self, secrets: Sequence[str], purpose: str) -> None:
        keys = [subkey(secret, purpose) for secret in secrets]
        self._keys = {hashlib.sha256(key).digest()[:4]: AESGCM(key) for key in keys}
        self._current = hashlib.sha256(keys[0]).digest()[:4]

    def seal(self, value: str, place: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return self._current + nonce + self._keys[self._current].encrypt(nonce, value.encode(), place.encode())

    def open(self, sealed: bytes, place: str) -> str:
        """The value; raises `Unreadable` where `place` differs from the one it was sealed for."""
        key = self._keys.get(sealed[:4])
        if key is None:
            raise Unreadable("sealed with another secret")
        try:
            return key.decrypt(sealed[4 : 4 + _NONCE_BYTES], sealed[4 + _NONCE_BYTES :], place.encode()).decode()
        except (InvalidTag, ValueError) as error:  # ValueError: not even the nonce is whole
            raise Unreadable("sealed for another place, or changed") from error
